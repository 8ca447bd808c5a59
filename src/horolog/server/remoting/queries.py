"""Handlers of look-ups of messages by log position, id or key."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ANSWER_BYTES_MAX
from horolog.protocol.commands import FindMessages, FoundMessage, MessageState
from horolog.protocol.queue_commands import ReadMessage
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.request import Answer, flag, integer, text
from horolog.protocol.rocketmq.layout import with_store_host
from horolog.server.messages import find
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_SHOWN = frozenset({MessageState.DELIVERED, MessageState.PENDING})
_FOUND_MAX = 64  # the limit that RocketMQ's own tools ask for
_FAR_MS = (1 << 63) - 1
_BY_KEY, _BY_ID = "K", "U"  # from tools of 5.5; earlier ones ask by key, or set a flag


class QueryCodes:
    """Handlers of VIEW_MESSAGE_BY_ID and QUERY_MESSAGE."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.VIEW_MESSAGE_BY_ID: self.view,
            Code.QUERY_MESSAGE: self.query,
        }

    async def view(self, request: Request) -> Answer:
        """Return the message at a log position, which is a part of the ids in answers to sends."""
        position = integer(request.frame, "offset", low=0)
        try:
            layout: bytes = await self._node.engine.submit(ReadMessage(position))
        except HorologError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            return Answer(Status.SYSTEM_ERROR, remark=error.message)
        return Answer(body=with_store_host(bytes(layout), self._node.store_host_for(request)))

    async def query(self, request: Request) -> Answer:
        """Return messages of a topic that have a key or an id and were stored in a period.

        Pending messages are included: their queue offset is not decided yet.  If there are too many
        for one answer, return the newest.
        """
        frame = request.frame
        topic, key = text(frame, "topic"), text(frame, "key")
        most = integer(frame, "maxNum", _FOUND_MAX, low=1)
        begin_ms = integer(frame, "beginTimestamp", 0)
        end_ms = integer(frame, "endTimestamp", _FAR_MS)
        index = text(frame, "indexType", "") or _BY_KEY
        if index not in (_BY_KEY, _BY_ID):
            raise refused(
                "indexType",
                f"{index[:40]!r}; messages are indexed by key (K) and id (U), not by tag:"
                " `horolog message search --tag` reads the log for them",
                "K or U",
            )
        if index == _BY_ID or flag(frame, "_UNIQUE_KEY_QUERY"):
            query = FindMessages(topic, message_id=key)
        else:
            query = FindMessages(topic, key=key)
        found = [
            message
            for message in await find(self._node.engine, query)
            if message.state in _SHOWN and begin_ms <= message.store_ms <= end_ms
        ]
        newest = _that_fit(found[-min(most, _FOUND_MAX) :])
        if not newest:
            return Answer(Status.QUERY_NOT_FOUND, remark=f"key: {key[:200]!r} has no message")
        fields = {
            "indexLastUpdateTimestamp": str(newest[-1].store_ms),
            "indexLastUpdatePhyoffset": str(newest[-1].origin),
        }
        host = self._node.store_host_for(request)
        layouts = [with_store_host(bytes(message.layout), host) for message in newest]
        return Answer(fields=fields, body=b"".join(layouts))


def _that_fit(found: list[FoundMessage]) -> list[FoundMessage]:
    """Return the newest messages for which one answer has room, at least one."""
    room, first = ANSWER_BYTES_MAX, len(found)
    while first and (room > 0 or first == len(found)):
        first -= 1
        room -= len(found[first].layout)
    return found[first:]
