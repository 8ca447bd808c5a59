"""Applies GRANT and ACK records to the progress of a queue: in a replay, and for Spark."""

from __future__ import annotations

from collections.abc import Callable

from horolog.log.control_records import AckRecord, Grant
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress


def grant_again(
    progress: QueueProgress, record: Grant, epoch: int, lease: Callable[[int, int], Lease]
) -> None:
    """Lease the offsets of a GRANT that are not consumed.

    epoch  epoch of the frame with the record
    lease  makes a lease from attempt and grant id
    """
    of_epoch = (record.holder.epoch or epoch) << 32
    for offset, attempt, grant in record.granted.tolist():
        if offset >= progress.floor and offset not in progress.acked:
            progress.lease(offset, lease(attempt, of_epoch | grant), Event.RECORD)
    progress.skip_to(record.next_offset, set(record.granted["offset"].tolist()))


def ack_again(progress: QueueProgress, record: AckRecord) -> None:
    """Mark the offsets of an ACK as consumed."""
    for offset in record.offsets.tolist():
        progress.consume(offset, Event.ACK)
