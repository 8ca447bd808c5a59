"""Transactions of 5.x clients: half messages, their ends, and checks over Telemetry streams.

A 5.x producer has no group: RocketMQ uses the topic as its group.  A client that publishes to a
topic, as its settings say, or that has sent a half message to it, may be asked how a transaction of
that topic ended, as long as the client may send there.  For transactions of a 4.x group no 5.x
client is asked, not even one that publishes to a topic with the group's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import PRODUCER_TOPICS_MAX
from horolog.protocol.commands import SendMessages, Sent
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.message_fields import transaction_id
from horolog.protocol.grpc.status import OK, common_status, status_of
from horolog.protocol.grpc.transactions import check_command, transaction_of
from horolog.protocol.grpc.translate import name_of
from horolog.protocol.http2.grpc_wire import framed
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.transaction_commands import (
    CheckDue,
    EndTransaction,
    Resolution,
    SendHalf,
    TransactionCheck,
)
from horolog.server.call import Call
from horolog.server.grpc_clients import Stream
from horolog.server.running import GrpcEngine

_RESOLUTIONS = {
    pb.COMMIT: Resolution.COMMIT,
    pb.ROLLBACK: Resolution.ROLLBACK,
}


class GrpcProducers:
    """Producers with an open Telemetry stream, by topic; those of a topic are asked in turn."""

    def __init__(self) -> None:
        self.on_producer_connected: Callable[[str], None] = lambda _: None
        self._of_topic: dict[str, dict[Stream, None]] = {}
        self._topics: dict[Stream, set[str]] = {}
        self._streams: dict[str, Stream] = {}  # by client id

    def add(self, stream: Stream, topics: Iterable[str]) -> None:
        """Add the topics that a producer publishes to; topics added before stay."""
        known = self._topics.setdefault(stream, set())
        self._streams[stream.client_id] = stream
        for topic in topics:
            if topic not in known and len(known) < PRODUCER_TOPICS_MAX:
                known.add(topic)
                self._of_topic.setdefault(topic, {})[stream] = None
                self.on_producer_connected(topic)

    def record_sender(self, client_id: str, topic: str) -> None:
        """Add the topic of a half message to its sender; settings may not name the topic yet."""
        stream = self._streams.get(client_id)
        if stream is not None:
            self.add(stream, (topic,))

    def remove(self, stream: Stream) -> None:
        """Remove a producer whose stream has ended."""
        for topic in self._topics.pop(stream, ()):
            del self._of_topic[topic][stream]
            if not self._of_topic[topic]:
                del self._of_topic[topic]
        if self._streams.get(stream.client_id) is stream:
            del self._streams[stream.client_id]

    def has(self, due: CheckDue) -> bool:
        """Return whether a client publishes to the topic, may do so, and reads its stream."""
        return any(stream.may_be_asked(due.topic) for stream in self._asked(due))

    def _asked(self, due: CheckDue | TransactionCheck) -> dict[Stream, None]:
        """Return the streams that may be asked of a transaction: none if it is of a 4.x group."""
        return self._of_topic.get(due.topic, {}) if due.group == due.topic else {}

    def ask(self, check: TransactionCheck) -> bool:
        """Ask a producer of the topic how a transaction ended; return False if none can be."""
        streams = self._asked(check)
        for stream in list(streams):
            del streams[stream]
            streams[stream] = None  # asked last from here on
            if stream.may_be_asked(check.topic) and stream.send_command(check_command(check)):
                return True
        return False


class TransactionCalls:
    """Handlers of EndTransaction, and of SendMessage with half messages."""

    def __init__(self, engine: GrpcEngine, producers: GrpcProducers) -> None:
        self._engine = engine
        self._producers = producers

    async def end(self, request: pb.EndTransactionRequest, call: Call) -> pb.EndTransactionResponse:
        """Commit or roll back a transaction.

        Raise INVALID_TRANSACTION_ID for one that is not known, or has ended in the other way.
        """
        topic = check_topic(name_of(request.topic))
        await self._engine.submit(
            EndTransaction(
                transaction_of(request.transaction_id),
                _RESOLUTIONS.get(request.resolution, Resolution.UNKNOWN),
                topic,
                request.message_id,
            )
        )
        return pb.EndTransactionResponse(status=OK)

    def half(self, command: SendMessages, call: Call) -> SendHalf:
        """Return the command for half messages; their sender may be asked how they end."""
        self._producers.record_sender(call.header(b"x-mq-client-id"), command.topic)
        return SendHalf(command.topic, command.messages)

    @staticmethod
    def answer(ids: list[str], refused: dict[int, HorologError], sent: Sent) -> bytes:
        """Return the framed answer to half messages, with an entry for each id.

        `sent` has none of the messages in `refused`.
        """
        names = map(transaction_id, sent.origins)
        stored = [(name, at, b"") for name, at in zip(names, sent.queue_offsets, strict=True)]
        return each_outcome(ids, refused, sent, stored)


def each_outcome(
    ids: Sequence[str],
    refused: Mapping[int, HorologError],
    sent: Sent,
    stored: Sequence[tuple[str, int, bytes]],
) -> bytes:
    """Return the framed answer to a send, with an entry for each id.

    refused  errors by the place of the id, of messages that the core was not given
    sent     of the others
    stored   transaction id, queue offset and recall handle of the others
    """
    given = iter(enumerate(stored))
    entries = []
    for place, message_id in enumerate(ids):
        error = refused.get(place)
        if error is None:
            at, (transaction, offset, handle) = next(given)
            error = sent.refused.get(at)
        if error is not None:
            entry = pb.SendResultEntry(status=status_of(error), message_id=message_id)
        else:
            entry = pb.SendResultEntry(
                status=OK,
                message_id=message_id,
                transaction_id=transaction,
                offset=offset,
                recall_handle=handle.decode(),
            )
        entries.append(entry)
    status = common_status(entry.status for entry in entries)
    return framed(pb.SendMessageResponse(status=status, entries=entries).SerializeToString())


def check_are_halves(messages: Iterable[pb.Message]) -> bool:
    """Return whether messages are half messages; raise TYPE_CONFLICT if only some of them are."""
    found = {each.system_properties.message_type == pb.TRANSACTION for each in messages}
    if len(found) > 1:
        raise refused(
            "message_type",
            "TRANSACTION and others in one request; send them apart",
            code=ErrorCode.TYPE_CONFLICT,
        )
    return True in found
