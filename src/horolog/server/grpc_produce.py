"""Handlers of sends and recalls of 5.x clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import (
    DescribeTopic,
    Recall,
    RecallStatus,
    Sent,
    TopicType,
    TopicView,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_records import Gathered, gather, to_send_quickly
from horolog.protocol.grpc.quick_sends import QuickSend
from horolog.protocol.grpc.ready import all_stored, each_stored
from horolog.protocol.grpc.status import RECALL_CODES, status_of
from horolog.protocol.grpc.translate import name_of, to_send
from horolog.protocol.http2.grpc_wire import framed
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import (
    decode_recall_handle,
    encode_recall_handles,
)
from horolog.server import messages
from horolog.server.call import Call, answer_all, answer_with, as_horolog_error
from horolog.server.grpc_transactions import TransactionCalls, check_are_halves, each_outcome
from horolog.server.running import GrpcEngine


class ProducerCalls:
    """Handlers of SendMessage and RecallMessage."""

    def __init__(
        self, engine: GrpcEngine, broker_name: str, transactions: TransactionCalls
    ) -> None:
        self._engine = engine
        self._transactions = transactions
        self._broker_name = broker_name

    def send(self, request: QuickSend | pb.SendMessageRequest, call: Call) -> None:
        """Store the messages of one request; the answer has an entry for each message."""
        half_topic: pb.Resource | None = None
        if isinstance(request, QuickSend):
            ids = request.names()
        else:
            ids = [message.system_properties.message_id for message in request.messages[:]]
        try:
            if isinstance(request, QuickSend):
                command, refused = to_send_quickly(request, call.peer)
            else:
                if check_are_halves(request.messages[:]):
                    half_topic = request.messages[0].topic
                command, refused = to_send(request, call.peer)
        except HorologError as error:
            call.answer(_all_refused(ids, error))
            return
        if len(refused) == len(ids):
            call.answer(self._answer(command.topic, ids, refused, Sent([], [], [])))
            return
        if half_topic is not None:
            begin = partial(self._transactions.answer, ids, refused)
            half = self._transactions.half(command, half_topic, call)
            self._engine.ask(half, partial(self._answer_call, call, ids, begin))
            return
        self._engine.ask(command, partial(self._on_sent, call, command.topic, ids, refused))

    def send_all(self, sends: Sequence[tuple[QuickSend, Call]]) -> None:
        """Store the messages of requests that came together."""
        peers = [call.peer for _, call in sends]
        found, alone = gather([request for request, _ in sends], peers)
        for place in alone:
            self.send(*sends[place])
        for gathered in found:
            calls = [sends[place][1] for place in gathered.places]
            self._engine.ask(gathered.command, partial(self._on_all_sent, calls, gathered))

    def _on_all_sent(self, calls: list[Call], gathered: Gathered, sent: object) -> None:
        topic, ids = gathered.command.topic, [name.decode() for name in gathered.ids]
        if isinstance(sent, Sent) and not sent.refused:
            try:
                answers = each_stored(self._stored(topic, ids, sent), gathered.ends)
            except Exception as error:  # noqa: BLE001 - as in `answer_with`
                sent = error
            else:
                answer_all(calls, answers)
                return
        why = None if isinstance(sent, Sent) else as_horolog_error(sent)
        start = 0
        for call, end in zip(calls, gathered.ends, strict=True):
            result = sent.part(start, end) if isinstance(sent, Sent) else why
            self._on_sent(call, topic, ids[start:end], {}, result)
            start = end

    def _on_sent(
        self,
        call: Call,
        topic: str,
        ids: list[str],
        refused: dict[int, HorologError],
        sent: object,
    ) -> None:
        self._answer_call(call, ids, partial(self._answer, topic, ids, refused), sent)

    @staticmethod
    def _answer_call(
        call: Call, ids: list[str], answer: Callable[[Sent], bytes], sent: object
    ) -> None:
        refuse = partial(_all_refused, ids)
        if isinstance(sent, Sent):
            answer_with(call, partial(answer, sent), refuse)
        else:
            call.answer(refuse(as_horolog_error(sent)))

    def _answer(
        self, topic: str, ids: list[str], refused: dict[int, HorologError], sent: Sent
    ) -> bytes:
        """Return the answer, with an entry for each id; `sent` has none of those in `refused`."""
        accepted = (
            [name for place, name in enumerate(ids) if place not in refused] if refused else ids
        )
        stored = self._stored(topic, accepted, sent)
        if not refused and not sent.refused:
            return all_stored(stored)
        return each_outcome(ids, refused, sent, stored)

    def _stored(self, topic: str, ids: list[str], sent: Sent) -> list[tuple[str, int, bytes]]:
        """Return message id, queue offset, and recall handle of messages that are stored."""
        if not ids:
            return []
        offsets = sent.queue_offsets
        if min(offsets) >= 0:
            return [(name, offset, b"") for name, offset in zip(ids, offsets, strict=True)]
        messages = zip(sent.due_ms, ids, sent.origins, strict=True)
        handles = encode_recall_handles(topic, self._broker_name, messages)
        return [
            (name, 0, handle) if offset < 0 else (name, offset, b"")
            for name, offset, handle in zip(ids, offsets, handles, strict=True)
        ]

    async def recall(
        self, request: pb.RecallMessageRequest, call: Call
    ) -> pb.RecallMessageResponse:
        """Recall a scheduled message by its handle."""
        topic = check_topic(name_of(request.topic))
        handle = decode_recall_handle(request.recall_handle)
        if handle.topic != topic:
            raise refused("recall_handle", f"of topic {handle.topic!r}, not {topic!r}")
        command = Recall(topic, handle.message_id, handle.due_ms, handle.origin)
        recalled = await messages.recall(self._engine, command)
        if recalled.status is RecallStatus.NOT_FOUND:
            await self._check_takes_delay(topic)
        status = pb.Status(code=RECALL_CODES[recalled.status], message=recalled.detail)
        # The official Python client takes 40401 as success and returns the id.  Without an id the
        # caller can see the difference.
        done = recalled.status is RecallStatus.CANCELLED
        return pb.RecallMessageResponse(
            status=status, message_id=recalled.message_id if done else ""
        )

    async def _check_takes_delay(self, topic: str) -> None:
        """Raise TYPE_CONFLICT if the topic takes no scheduled messages: the handle is wrong."""
        view: TopicView = await self._engine.submit(DescribeTopic(topic, with_pending=False))
        if view.type not in (TopicType.DELAY, TopicType.MIXED):
            raise refused(
                "topic",
                f"{topic!r} takes {view.type} messages; none of them can be recalled",
                code=ErrorCode.TYPE_CONFLICT,
            )


def _all_refused(ids: list[str], error: HorologError) -> bytes:
    status = status_of(error)
    entries = [pb.SendResultEntry(status=status, message_id=i) for i in ids]
    return framed(pb.SendMessageResponse(status=status, entries=entries).SerializeToString())
