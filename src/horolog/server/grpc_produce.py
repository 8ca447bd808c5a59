"""Sends and recalls of 5.x clients."""

from __future__ import annotations

from functools import partial

from horolog.admin.engine import recalled as recalled_anywhere
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    DescribeTopic,
    NewRecords,
    Recall,
    RecallStatus,
    SendMessages,
    Sent,
    TopicType,
    TopicView,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.ready import all_stored
from horolog.protocol.grpc.status import OK, RECALL_CODES, common_status, status_of
from horolog.protocol.grpc.translate import name_of, to_send
from horolog.protocol.http2.calls import framed
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from horolog.server.call import Call, answer_with, expected
from horolog.server.loop import Engine


class ProducerCalls:
    """SendMessage and RecallMessage."""

    def __init__(self, engine: Engine, broker_name: str) -> None:
        self._engine = engine
        self._broker_name = broker_name

    def send(self, request: pb.SendMessageRequest, call: Call) -> None:
        """Store the messages of one request; every one has its entry."""
        ids = [message.system_properties.message_id for message in request.messages[:]]
        try:
            command, refused = to_send(request, call.peer)
        except HorologError as error:
            call.answer(_all_refused(ids, error))
            return
        if not command.messages:
            call.answer(self._answer(ids, command, refused, Sent([], [], [])))
            return
        self._engine.ask(command, partial(self._sent, call, ids, command, refused))

    def _sent(
        self,
        call: Call,
        ids: list[str],
        command: SendMessages,
        refused: dict[int, HorologError],
        sent: object,
    ) -> None:
        refuse = partial(_all_refused, ids)
        if isinstance(sent, Sent):
            answer_with(call, lambda: self._answer(ids, command, refused, sent), refuse)
        else:
            call.answer(refuse(expected(sent)))

    def _answer(
        self, ids: list[str], command: SendMessages, refused: dict[int, HorologError], sent: Sent
    ) -> bytes:
        if not refused and not sent.refused:
            return all_stored(self._stored(command, sent, at) for at in range(len(ids)))
        entries = []
        at = 0  # in the command, which has not what was refused before
        for place, message_id in enumerate(ids):
            error = refused.get(place) or sent.refused.get(at)
            at += place not in refused
            if error is not None:
                entry = pb.SendResultEntry(status=status_of(error), message_id=message_id)
            else:
                name, offset, handle = self._stored(command, sent, at - 1)
                entry = pb.SendResultEntry(
                    status=OK, message_id=name, offset=offset, recall_handle=handle
                )
            entries.append(entry)
        status = common_status(entry.status for entry in entries)
        return framed(pb.SendMessageResponse(status=status, entries=entries).SerializeToString())

    def _stored(self, command: SendMessages, sent: Sent, at: int) -> tuple[str, int, str]:
        """Message id, queue offset, and recall handle of a message that is stored."""
        assert not isinstance(command.messages, NewRecords)
        message = command.messages[at]
        offset = sent.queue_offsets[at]
        if offset >= 0:
            return message.message_id, offset, ""
        handle = RecallHandle(
            command.topic,
            self._broker_name,
            sent.due_ms[at],
            message.message_id,
            sent.origins[at],
        )
        return message.message_id, 0, encode_recall_handle(handle)

    async def recall(
        self, request: pb.RecallMessageRequest, call: Call
    ) -> pb.RecallMessageResponse:
        """Cancel a scheduled message by its handle."""
        topic = check_topic(name_of(request.topic))
        handle = decode_recall_handle(request.recall_handle)
        if handle.topic != topic:
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"recall_handle: of topic {handle.topic!r}, not {topic!r}",
                field="recall_handle",
            )
        command = Recall(topic, handle.message_id, handle.due_ms, handle.origin)
        recalled = await recalled_anywhere(self._engine, command)
        if recalled.status is RecallStatus.NOT_FOUND:
            await self._check_takes_delay(topic)
        status = pb.Status(code=RECALL_CODES[recalled.status], message=recalled.detail)
        # The official Python client takes 40401 for success and returns the id: without one, a caller can tell.
        done = recalled.status is RecallStatus.CANCELLED
        return pb.RecallMessageResponse(
            status=status, message_id=recalled.message_id if done else ""
        )

    async def _check_takes_delay(self, topic: str) -> None:
        """A topic that takes no scheduled messages never had one to recall: the handle is wrong."""
        view: TopicView = await self._engine.submit(DescribeTopic(topic, with_pending=False))
        if view.type not in (TopicType.DELAY, TopicType.MIXED):
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"topic: {topic!r} takes {view.type} messages; none of them can be recalled",
                field="topic",
            )


def _all_refused(ids: list[str], error: HorologError) -> bytes:
    status = status_of(error)
    entries = [pb.SendResultEntry(status=status, message_id=i) for i in ids]
    return framed(pb.SendMessageResponse(status=status, entries=entries).SerializeToString())
