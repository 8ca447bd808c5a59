"""Transactions of 5.x clients: half messages, their ends, and checks over Telemetry streams.

A 5.x producer has no group: RocketMQ uses the topic as its group.  A client that publishes to a
topic, as its settings say, or that has sent a half message to it, may be asked how a transaction of
that topic ended, as long as the client may send there.  For transactions of a 4.x group no 5.x
client is asked, not even one that publishes to a topic with the group's name.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import PRODUCER_TOPICS_MAX, PRODUCERS_TOPICS_MAX
from horolog.protocol.commands import SendMessages, Sent
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.message_fields import transaction_id
from horolog.protocol.grpc.status import OK, common_status, status_of
from horolog.protocol.grpc.transactions import check_command, transaction_of
from horolog.protocol.grpc.translate import name_of, resource_of
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

_log = logging.getLogger("horolog")
_WARNING_S = 60.0  # between two warnings that a limit is reached
_REMOVED_AT_ONCE = 2_048  # topics of producers that have gone: 1 to 3 ms
_RESOLUTIONS = {
    pb.COMMIT: Resolution.COMMIT,
    pb.ROLLBACK: Resolution.ROLLBACK,
}


class GrpcProducers:
    """Producers with an open Telemetry stream, by topic; those of a topic are asked in turn.

    A connection may end with a thousand producers of a thousand topics each, so their topics are
    removed later, some in each turn of the loop.
    """

    def __init__(self) -> None:
        self.on_producer_connected: Callable[[str], None] = lambda _: None
        self._of_topic: dict[str, dict[Stream, None]] = {}  # also those in `_gone`
        self._topics: dict[Stream, dict[str, str]] = {}  # and the namespace that each is named with
        self._streams: dict[str, Stream] = {}  # by client id
        self._gone: list[tuple[Stream, dict[str, str]]] = []  # with topics not removed yet
        self._count = 0  # of all topics of all streams
        self._warned_s: dict[str, float] = {}  # by limit: when its last warning was logged

    def add(self, stream: Stream, topics: Iterable[pb.Resource]) -> None:
        """Add the topics that a producer publishes to; topics added before stay."""
        known = self._topics.setdefault(stream, {})
        self._streams[stream.client_id] = stream
        for each in topics:
            topic = sys.intern(name_of(each))  # many producers have the same topics
            if topic in known:
                continue
            is_full = len(known) >= PRODUCER_TOPICS_MAX
            if is_full or self._count >= PRODUCERS_TOPICS_MAX:
                reached = "PRODUCER_TOPICS_MAX" if is_full else "PRODUCERS_TOPICS_MAX"
                self._warn(stream, topic, reached)
                break
            known[topic] = sys.intern(each.resource_namespace)
            self._count += 1
            self._of_topic.setdefault(topic, {})[stream] = None
            self.on_producer_connected(topic)

    def _warn(self, stream: Stream, topic: str, limit: str) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s.get(limit, -_WARNING_S) >= _WARNING_S:
            self._warned_s[limit] = now_s
            _log.warning(
                "producer %r is not asked about transactions of topic %s: %s is reached",
                stream.client_id,
                topic,
                limit,
            )

    def record_sender(self, client_id: str, topic: pb.Resource) -> None:
        """Add the topic of a half message to its sender; settings may not name the topic yet."""
        stream = self._streams.get(client_id)
        if stream is not None:
            self.add(stream, (topic,))

    def remove(self, stream: Stream) -> None:
        """Remove a producer whose stream has ended."""
        if topics := self._topics.pop(stream, None):
            if not self._gone:
                asyncio.get_running_loop().call_soon(self._remove_some)
            self._gone.append((stream, topics))
        if self._streams.get(stream.client_id) is stream:
            del self._streams[stream.client_id]

    def _remove_some(self) -> None:
        for _ in range(_REMOVED_AT_ONCE):
            stream, topics = self._gone[-1]
            topic, _ = topics.popitem()
            self._count -= 1
            streams = self._of_topic.get(topic, {})
            if stream in streams and not self._publishes(stream, topic):  # it may have come back
                del streams[stream]
                if not streams:
                    del self._of_topic[topic]
            if not topics:
                self._gone.pop()
                if not self._gone:
                    return
        asyncio.get_running_loop().call_soon(self._remove_some)

    def has(self, due: CheckDue) -> bool:
        """Return whether a client publishes to the topic, may do so, and reads its stream."""
        return any(self._may_ask(stream, due.topic) for stream in self._asked(due))

    def _asked(self, due: CheckDue | TransactionCheck) -> dict[Stream, None]:
        """Return the streams that may be asked of a transaction: none if it is of a 4.x group."""
        return self._of_topic.get(due.topic, {}) if due.group == due.topic else {}

    def _may_ask(self, stream: Stream, topic: str) -> bool:
        return self._publishes(stream, topic) and stream.may_be_asked(topic)

    def _publishes(self, stream: Stream, topic: str) -> bool:
        return topic in self._topics.get(stream, ())

    def ask(self, check: TransactionCheck) -> bool:
        """Ask a producer of the topic how a transaction ended; return False if none can be."""
        streams = self._asked(check)
        for stream in list(streams):
            del streams[stream]
            streams[stream] = None  # asked last from here on
            if self._may_ask(stream, check.topic):
                named = resource_of(check.topic, self._topics[stream][check.topic])
                if stream.send_command(check_command(check, named)):
                    return True
        return False

    def check_invariants(self) -> None:
        """Check that streams and topics know each other, and all topics are counted."""
        listed = [*self._topics.items(), *self._gone]
        assert self._count == sum(len(topics) for _, topics in listed)
        known = {(stream, topic) for stream, topics in listed for topic in topics}
        asked = {(stream, topic) for topic, its in self._of_topic.items() for stream in its}
        assert known >= asked
        assert all((stream, at) in asked for stream, its in self._topics.items() for at in its)
        assert all(self._of_topic.values())


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

    def half(self, command: SendMessages, topic: pb.Resource, call: Call) -> SendHalf:
        """Return the command for half messages; their sender may be asked how they end.

        topic  as the sender names it
        """
        self._producers.record_sender(call.header(b"x-mq-client-id"), topic)
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
