"""Handlers of queue locks, which orderly consumers take on the queues that they consume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from horolog.clock import monotonic_ms
from horolog.errors import refused
from horolog.limits import HEARTBEAT_NAME_MAX, QUEUES_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.queue_locks import LockedQueue
from horolog.protocol.remoting.request import DONE, Answer, content
from horolog.protocol.rocketmq.names import check_group_name
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_NAME_MAX = 255  # of topic and broker names: neither can be longer


class LockCodes:
    """Handlers of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {Code.LOCK_BATCH_MQ: self.lock, Code.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, request: Request) -> Answer:
        """Lock queues for a client of a group; return the queues that the client holds now."""
        wanted = content(request.frame)
        group, client_id = _named(wanted, "consumerGroup"), _named(wanted, "clientId")
        now_ms = monotonic_ms()
        granted = self._node.locks.lock(check_group_name(group), client_id, _queues(wanted), now_ms)
        locked = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for queue in granted
        ]
        return Answer(body=orjson.dumps({"lockOKMQSet": locked}))

    def unlock(self, request: Request) -> Answer:
        """Unlock queues."""
        wanted = content(request.frame)
        group, client_id = _named(wanted, "consumerGroup"), _named(wanted, "clientId")
        self._node.locks.unlock(group, client_id, _queues(wanted))
        return DONE

    def sweep(self, now_ms: int) -> None:
        """Drop locks that have expired."""
        self._node.locks.sweep(now_ms)


def _queues(wanted: dict[str, Any]) -> list[LockedQueue]:
    return list(_read_queues(wanted.get("mqSet")))


def _read_queues(entries: object) -> Iterator[LockedQueue]:
    if not isinstance(entries, list) or len(entries) > QUEUES_MAX:
        raise refused("mqSet", f"no list of at most {QUEUES_MAX} queues")
    for entry in entries:
        if not isinstance(entry, dict) or type(entry.get("queueId")) is not int:
            raise refused("mqSet", "an entry is no queue")
        topic, broker = _named(entry, "topic", _NAME_MAX), _named(entry, "brokerName", _NAME_MAX)
        yield LockedQueue(topic, broker, entry["queueId"])


def _named(entry: dict[str, Any], name: str, limit: int = HEARTBEAT_NAME_MAX) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise refused(name, "missing, blank or too long")
    return value
