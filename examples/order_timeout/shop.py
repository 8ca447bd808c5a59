"""A shop that cancels orders which are not paid within 30 minutes.

When an order is placed, the shop schedules a message "is it paid?" for in 30 minutes and keeps the
recall handle. When it is paid, the message is recalled.  Whatever arrives is therefore an unpaid
order - unless the payment and the due time met: then the recall says ALREADY_DELIVERED, the message
arrives, and the shop looks before it cancels.

It speaks HTTP to the admin port, so that the example needs nothing but Python; a real shop does the
same with its RocketMQ client (`send` with a delivery timestamp, `recall`, `receive`, `ack`).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

TOPIC = "orders"
GROUP = "shop"
PAY_WITHIN_MS = 30 * 60_000


@dataclass
class Order:
    """One order; `state` is placed, paid or cancelled."""

    number: str
    recall_handle: str
    state: str = "placed"


@dataclass
class Shop:
    """Orders in memory, time in the broker."""

    admin_url: str
    orders: dict[str, Order] = field(default_factory=dict)

    def place(self, number: str) -> None:
        """Take an order; the question whether it is paid comes back in 30 minutes."""
        message = {"topic": TOPIC, "body": number, "in_ms": PAY_WITHIN_MS, "keys": [number]}
        sent = self._post("/v1/messages", message)
        self.orders[number] = Order(number, sent["recall_handle"])

    def pay(self, number: str) -> None:
        """Take the money and recall the question.

        Too late for the recall is not too late to pay.
        """
        order = self.orders[number]
        if order.state == "cancelled":
            raise ValueError(f"order {number} has been cancelled")
        order.state = "paid"
        try:
            self._post("/v1/recall", {"handle": order.recall_handle})
        except urllib.error.HTTPError as error:
            if error.code != 409:  # already delivered: `cancel_unpaid` will see that it is paid
                raise

    def cancel_unpaid(self) -> list[str]:
        """Receive what has become due, cancel what is unpaid, acknowledge.

        Gives the cancelled numbers.
        """
        cancelled = []
        group = {"topic": TOPIC, "group": GROUP}
        while messages := self._post("/v1/receive", {**group, "limit": 32})["messages"]:
            for message in messages:
                order = self.orders[message["body"]]
                if order.state == "placed":
                    order.state = "cancelled"
                    cancelled.append(order.number)
            handles = [message["receipt_handle"] for message in messages]
            self._post("/v1/ack", {**group, "receipt_handles": handles})
        return cancelled

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.admin_url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            result: dict[str, Any] = json.load(response)["result"]
        return result
