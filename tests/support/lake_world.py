"""What tests of the lake do with a broker: fill it, receive everything, ask for its time."""

from __future__ import annotations

from horolog.limits import HOUR_MS
from horolog.testing.broker import BrokerProcess

TOPICS = ("alpha", "beta")


def now_ms(broker: BrokerProcess) -> int:
    return int(broker.admin.get("/v1/clock")["wall_ms"])


def fill(broker: BrokerProcess, count: int = 26) -> dict[str, int]:
    """Send messages to two topics, one every two hours from 30 hours ahead; return body → due ms."""
    for topic in TOPICS:
        broker.create_topic(topic)
    now = now_ms(broker)
    made = {}
    for i in range(count):
        due = now + 30 * HOUR_MS + i * 2 * HOUR_MS
        body = {"topic": TOPICS[i % 2], "body": f"b{i}", "deliver_at_ms": due, "keys": [f"k{i}"]}
        broker.admin.post("/v1/messages", body)
        made[f"b{i}"] = due
    return made


def total(broker: BrokerProcess) -> int:
    return int(broker.admin.get("/v1/pending")["total"])


def receive_all(broker: BrokerProcess) -> list[str]:
    """Receive and acknowledge everything that is visible; return the bodies."""
    got = []
    for topic in TOPICS:
        while True:
            asked = {"topic": topic, "group": "g", "limit": 32}
            messages = broker.admin.post("/v1/receive", asked)["messages"]
            if not messages:
                break
            got += [message["body"] for message in messages]
            handles = [message["receipt_handle"] for message in messages]
            broker.admin.post("/v1/ack", {"topic": topic, "group": "g", "receipt_handles": handles})
    return got
