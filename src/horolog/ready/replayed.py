"""What GRANT and ACK records of the log do to the progress of a queue, again: in a replay, and where Spark rebuilds it."""

from __future__ import annotations

from collections.abc import Callable

from horolog.log.control_records import AckRecord, Grant
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress


def grant_again(
    progress: QueueProgress, record: Grant, epoch: int, lease: Callable[[int, int], Lease]
) -> None:
    """Lease what a GRANT, of a frame of this epoch, has given out and what is not consumed.

    `lease` makes one of attempt and grant number.
    """
    of_epoch = (record.holder.epoch or epoch) << 32
    for offset, attempt, grant in record.granted.tolist():
        if offset >= progress.floor and offset not in progress.acked:
            progress.lease(offset, lease(attempt, of_epoch | grant), Event.RECORD)
    progress.skip_to(record.next_offset, set(record.granted["offset"].tolist()))


def ack_again(progress: QueueProgress, record: AckRecord) -> None:
    """Consume what an ACK names."""
    for offset in record.offsets.tolist():
        progress.consume(offset, Event.ACK)
