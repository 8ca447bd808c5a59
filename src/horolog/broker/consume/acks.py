"""Acknowledgements: consume the messages of one request together.

Nearly every handle is of a live lease, and such messages are consumed at the end of the request,
all those of a queue at once.  Any other handle is checked alone, after everything before it has
been consumed, so the answers are as if each handle had been processed by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from horolog.broker.consume.renewals import Renewals
from horolog.broker.counters import Count
from horolog.broker.effects import Now
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import HorologError
from horolog.log.control_records import encode_ack
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress
from horolog.ready.receipt import Receipt, invalid_receipt


class _Queue:
    """Messages of one queue that the request acknowledges."""

    __slots__ = ("consumed", "leased", "length", "progress")

    def __init__(self, progress: QueueProgress, length: int) -> None:
        self.progress = progress
        self.length = length
        self.leased: dict[int, None] = {}  # offsets to consume when the request ends
        self.consumed: list[int] = []  # offsets that are consumed and have to be logged


class Acks:
    """One request to acknowledge messages of a topic; `take` every handle, then `seal`."""

    def __init__(
        self, shard: Shard, renewals: Renewals, topic: Topic, group: int, now: Now
    ) -> None:
        self.group = group
        self._shard = shard
        self._renewals = renewals
        self._topic = topic
        self._now = now
        self._queues: dict[int, _Queue] = {}

    def take(self, receipts: Iterable[Receipt | HorologError]) -> list[HorologError | None]:
        """Process handles; return for each why it is refused, or None."""
        refused: list[HorologError | None] = []
        own, topic_id, mono_ms, queues = self.group, self._topic.id, self._now.mono_ms, self._queues
        for read in receipts:
            if type(read) is Receipt:
                group, topic, queue_id, _, grant, epoch, offset, _ = read
                queue = queues.get(queue_id) or self._open(queue_id)
                lease = queue.progress.leases.get(offset) if queue is not None else None
                if (
                    lease is not None
                    and queue is not None
                    and lease.grant == epoch << 32 | grant
                    and lease.ends_at > mono_ms
                    and offset < queue.length
                    and group == own
                    and topic == topic_id
                ):
                    queue.leased[offset] = None
                    if lease.client_id:
                        self._renewals.release((group, topic, queue_id, offset))
                    refused.append(None)
                    continue
            try:
                self._take_alone(read)
                refused.append(None)
            except HorologError as error:
                refused.append(error.without_traceback())
        return refused

    def _open(self, queue_id: int) -> _Queue | None:
        ready, topic = self._shard.ready, self._topic
        progress = ready.progress_if_any(self.group, topic.id, queue_id)
        if progress is None or queue_id >= len(topic.queues):
            return None
        queue = self._queues[queue_id] = _Queue(progress, topic.queues[queue_id].length)
        return queue

    def _take_alone(self, read: Receipt | HorologError) -> None:
        self._consume()
        receipt = message_of(self._topic, read)
        queue_id, offset = receipt.queue, receipt.offset
        topic_id = self._topic.id
        progress, lease = lease_of(self._shard, self._topic, receipt, self.group, self._now)
        if lease is not None and lease.client_id:
            self._renewals.release((self.group, topic_id, queue_id, offset))
        queue = self._queues.get(queue_id) or self._open(queue_id)
        assert queue is not None, "it was checked"
        # A message that retention has dropped is logged as well: a start from an older checkpoint
        # has it again.
        if progress.consume(offset, Event.ACK) or offset < self._topic.queues[queue_id].first:
            queue.consumed.append(offset)

    def _consume(self) -> None:
        for queue in self._queues.values():
            if queue.leased:
                offsets, queue.leased = list(queue.leased), {}
                queue.progress.consume_leased(offsets, Event.ACK)
                queue.consumed += offsets

    def seal(self) -> list[bytes]:
        """Consume the remaining messages; return the records of all that this request consumed."""
        self._consume()
        topic_id, records = self._topic.id, []
        for queue_id, queue in self._queues.items():
            if queue.consumed:
                self._shard.counters.add(topic_id, Count.ACKED, len(queue.consumed))
                records.append(encode_ack(self.group, topic_id, queue_id, queue.consumed))
                self._shard.ready.watch(self.group, topic_id, queue_id)
        return records


def message_of(topic: Topic, receipt: Receipt | HorologError) -> Receipt:
    """Return the receipt, if it names a message of this topic.

    Raise INVALID_RECEIPT_HANDLE if it does not.
    """
    if not isinstance(receipt, Receipt):
        raise receipt
    if receipt.queue >= len(topic.queues) or receipt.offset >= topic.queues[receipt.queue].length:
        raise invalid_receipt("of a message that does not exist")
    return receipt


def lease_of(
    shard: Shard, topic: Topic, receipt: Receipt, group: int, now: Now
) -> tuple[QueueProgress, Lease | None]:
    """Return the progress of a queue, and the lease of a handle of a message that exists there.

    There is no lease if the message is consumed.  Raise as `Ready.find_lease` does.

    Where the grant's record was lost, its message may be lost too: to a power cut, or because the
    directory is an older copy of itself.  Another message that has its queue offset now is of a
    newer epoch than the handle.
    """
    progress, lease = shard.ready.find_lease(receipt, group, topic.id, now.mono_ms, now.wall_ms)
    if lease is not None and (progress is None or receipt.offset not in progress.leases):
        epoch = shard.queued.epoch_at(topic, receipt.queue, receipt.offset)
        if epoch is None or epoch > receipt.epoch:
            raise invalid_receipt("of a message that is lost; another one may have its place")
    if progress is None:
        progress = shard.ready.progress_of(group, topic.id, receipt.queue)
    return progress, lease
