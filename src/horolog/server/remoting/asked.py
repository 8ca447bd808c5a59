"""Subscriptions of consumers that pull before the heartbeat that states them.

Clients of 4.x send a heartbeat every 30 s only, but pull soon after a restart of the broker.  And
each change of its queues gives a consumer a newer version of its subscriptions, with a heartbeat that
Java leaves out while the client's timer sends one.  So the broker asks such a client what it
subscribes to: it answers GET_CONSUMER_RUNNING_INFO, by which tools look at a consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from horolog.errors import HorologError
from horolog.limits import CLIENTS_REMEMBERED_MAX, REPORT_BYTES_MAX, SUBSCRIPTIONS_BYTES_MAX
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.heartbeat import Subscription, read_subscription

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink

_ANSWER_S = 2.0


@dataclass(slots=True)
class _Question:
    """What a client was asked about a group.

    version        of the subscription that the client was asked for
    wanted         newest version that a pull has asked for since then
    answer         None, once it is read or has failed
    subscriptions  by topic, once the client has answered
    """

    version: int
    wanted: int
    answer: asyncio.Future[Frame] | None
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory of the subscriptions."""
        return sum(each.size_bytes for each in self.subscriptions.values())


class AskedSubscriptions:
    """What clients have answered since their last heartbeat, by connection and group."""

    def __init__(self) -> None:
        self._asked: dict[RemotingLink, dict[str, _Question]] = {}
        self._count = 0
        self._bytes = 0

    def get(self, link: RemotingLink, group: str, topic: str) -> Subscription | None:
        """Return the subscription of a client that has answered."""
        asked = self._asked.get(link, {}).get(group)
        return asked.subscriptions.get(topic) if asked else None

    def ask(self, link: RemotingLink, group: str, version: int) -> asyncio.Future[Frame] | None:
        """Ask a client about a group, once a version; return the answer to wait for, or None."""
        known = self._asked.get(link, {}).get(group)
        if known is not None:
            known.wanted = max(known.wanted, version)
            if known.answer is not None or version <= known.version:
                return known.answer
            version = known.wanted  # so that pulls of many versions wait for two answers at most
            self._drop(known)
        elif self._count >= CLIENTS_REMEMBERED_MAX:
            return None
        # Java insists on a client id, and does not look at it.
        fields = {"consumerGroup": group, "clientId": link.peer.text, "jstackEnable": "false"}
        answer = link.ask(Code.GET_CONSUMER_RUNNING_INFO, fields, b"", _ANSWER_S)
        question = _Question(version, version, answer)
        self._asked.setdefault(link, {})[group] = question
        self._count += 1
        answer.add_done_callback(partial(self._take, link, group, question))
        return answer

    def _take(
        self, link: RemotingLink, group: str, question: _Question, answer: asyncio.Future[Frame]
    ) -> None:
        question.answer = None
        if answer.cancelled() or answer.exception() is not None:
            return
        if self._asked.get(link, {}).get(group) is not question:
            return  # a heartbeat came right after the answer
        question.subscriptions = _subscriptions_in(answer.result())
        if self._bytes + question.size_bytes > SUBSCRIPTIONS_BYTES_MAX:
            question.subscriptions = {}
        self._bytes += question.size_bytes

    def _drop(self, question: _Question) -> None:
        self._count -= 1
        self._bytes -= question.size_bytes

    def forget(self, link: RemotingLink) -> None:
        """Drop a client that has sent a heartbeat, or has gone."""
        for question in self._asked.pop(link, {}).values():
            self._drop(question)
            if question.answer is not None:
                question.answer.cancel()

    def check_invariants(self) -> None:
        """Check the counts."""
        everything = [asked for groups in self._asked.values() for asked in groups.values()]
        assert self._count == len(everything)
        assert self._bytes == sum(asked.size_bytes for asked in everything)


def _subscriptions_in(answer: Frame) -> dict[str, Subscription]:
    """Return the subscriptions of a client by topic; none if the answer has another form."""
    if answer.code != Status.SUCCESS or len(answer.body) > REPORT_BYTES_MAX:
        return {}
    try:
        entries = object_keys.read(answer.body).get("subscriptionSet")
        if not isinstance(entries, list):
            return {}
        found = [read_subscription(entry) for entry in entries if isinstance(entry, dict)]
    except HorologError:
        return {}
    return {subscription.topic: subscription for subscription in found}
