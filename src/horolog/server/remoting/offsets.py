"""Handlers of offsets: committed offsets of groups, and offsets of queues."""

from __future__ import annotations

from functools import partial

from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import DescribeTopic, TopicView
from horolog.protocol.queue_commands import (
    CommitOffsets,
    EarliestStoreTime,
    GetOffsets,
    SearchOffset,
)
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.request import DONE, I32_MAX, I32_MIN, Answer, flag, integer, text
from horolog.protocol.rocketmq.names import check_group_name
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_BOUNDS = ("LOWER", "UPPER")


class OffsetCodes:
    """Handlers of QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET, and of offsets of queues.

    SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.QUERY_CONSUMER_OFFSET: self.consumed,
            Code.UPDATE_CONSUMER_OFFSET: self.commit,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            Code.GET_MAX_OFFSET: self.max_offset,
            Code.GET_MIN_OFFSET: self.min_offset,
            Code.GET_EARLIEST_MSG_STORETIME: self.earliest,
        }

    async def consumed(self, request: Request) -> Answer:
        """Return the offset at which a group goes on in a queue.

        A group without progress begins at 0 in a queue that still has its first message, whatever
        the client is configured to begin with: otherwise the group would lose messages sent before
        its first member came.
        """
        frame = request.frame
        group = check_group_name(text(frame, "consumerGroup"))
        topic = text(frame, "topic")
        queue_id = _queue_of(request)
        try:
            view = await self._view(topic, queue_id)
            committed = await self._node.engine.submit(GetOffsets(group, topic))
        except HorologError as error:
            if error.code is ErrorCode.TOPIC_NOT_FOUND:
                # Consumers then begin where they are configured to begin.
                return Answer(Status.QUERY_NOT_FOUND, remark=error.message)
            if error.code is not ErrorCode.GROUP_NOT_FOUND:
                raise
            committed = {}
        offset = committed.get(queue_id)
        if (
            offset is None
            and not view.min_offsets[queue_id]
            and flag(frame, "setZeroIfNotFound", default=True)
        ):
            offset = 0
        if offset is None:
            return Answer(
                Status.QUERY_NOT_FOUND,
                remark=f"consumerGroup: {group!r} has no offset in queue {queue_id} of {topic!r}",
            )
        return Answer(fields={"offset": str(offset)})

    def commit(self, request: Request) -> None:
        """Commit an offset; ignore it from a pull consumer that is not notified of a reset yet."""
        frame = request.frame
        group, topic = check_group_name(text(frame, "consumerGroup")), text(frame, "topic")
        queue_id, offset = _queue_of(request), integer(frame, "commitOffset", low=0)
        node = self._node
        if not node.registry.has(request.link):
            node.returning.add(request.link, group)
        if node.unseen_resets.has(group, topic, queue_id):
            if node.registry.has_pulling(group, request.link):
                request.answer(Answer(remark=f"group {group!r} was reset: its next pull tells"))
                return
            node.unseen_resets.take(group, topic, queue_id)  # the commit replaces the reset
        command = CommitOffsets(group, topic, {queue_id: offset})
        self._node.engine.ask(command, partial(self._on_committed, request))

    @staticmethod
    def _on_committed(request: Request, result: object) -> None:
        if isinstance(result, HorologError):
            request.fail(result)
        else:
            request.answer(DONE)

    async def search(self, request: Request) -> Answer:
        """Return the offset of the first message from a time on, or of the last one until then."""
        frame = request.frame
        bound = text(frame, "boundaryType", "LOWER").upper() or "LOWER"
        if bound not in _BOUNDS:
            raise refused("boundaryType", f"{bound[:40]!r} is none of {', '.join(_BOUNDS)}")
        command = SearchOffset(
            text(frame, "topic"),
            _queue_of(request),
            integer(frame, "timestamp"),
            upper=bound == "UPPER",
        )
        return _offset_answer(await self._node.engine.submit(command))

    async def max_offset(self, request: Request) -> Answer:
        """Return the offset of the next message of a queue."""
        queue_id = _queue_of(request)
        view = await self._view(text(request.frame, "topic"), queue_id)
        return _offset_answer(view.queue_offsets[queue_id])

    async def min_offset(self, request: Request) -> Answer:
        """Return the offset of the oldest message of a queue that is kept."""
        queue_id = _queue_of(request)
        view = await self._view(text(request.frame, "topic"), queue_id)
        return _offset_answer(view.min_offsets[queue_id])

    async def earliest(self, request: Request) -> Answer:
        """Return when the oldest kept message of a queue was stored, in epoch ms; −1 if none is."""
        queue_id = _queue_of(request)
        topic = text(request.frame, "topic")
        await self._view(topic, queue_id)
        store_ms: int = await self._node.engine.submit(EarliestStoreTime(topic, queue_id))
        return Answer(fields={"timestamp": str(store_ms)})

    async def _view(self, topic: str, queue_id: int) -> TopicView:
        view: TopicView = await self._node.engine.submit(DescribeTopic(topic, with_pending=False))
        if not 0 <= queue_id < view.queues:
            raise refused(
                "queueId",
                f"{queue_id}; topic {topic!r} has the queues 0 to {view.queues - 1}",
                f"0 to {view.queues - 1}",
            )
        return view


def _queue_of(request: Request) -> int:
    return integer(request.frame, "queueId", low=I32_MIN, high=I32_MAX)


def _offset_answer(offset: int) -> Answer:
    return Answer(fields={"offset": str(offset)})
