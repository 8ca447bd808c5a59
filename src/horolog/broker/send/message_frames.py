"""Append frames of messages; scheduled messages in a frame are filed when it is committed.

All paths that make messages end here: sends of clients, ends of transactions, adoptions, firings of
schedules, dead letters, reschedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Applied, Settled
from horolog.broker.columns import place
from horolog.broker.key_columns import key_columns
from horolog.broker.queue_units import visible_units
from horolog.broker.send import late_marks
from horolog.broker.shard import Shard
from horolog.delay.far.adopted import Adoption
from horolog.delay.filing import Unfiled
from horolog.delay.tier import Step
from horolog.log.control_records import encode_adopt
from horolog.log.record import Kind

_Column = npt.NDArray[np.int64]
_MESSAGE, _SCHEDULED = np.uint8(Kind.MESSAGE), np.uint8(Kind.SCHEDULED)


def append_messages(
    shard: Shard,
    records: bytes | memoryview,
    heads: npt.NDArray[Any],
    queues: _Column,
    wall_ms: int,
    adoption: Adoption | None = None,
    controls: Sequence[bytes] = (),
    settled: Sequence[Settled] = (),
) -> tuple[_Column, _Column]:
    """Append one frame of messages; return their queue offsets (−1: scheduled) and log positions.

    records   all message records, back to back; `heads` and `queues` replace the values in them
    adoption  the transaction to which all messages of the frame belong; its record comes first
    controls  other records of the same frame, which come before the messages
    settled   scheduled messages that the controls end
    """
    if adoption is not None:
        controls = [encode_adopt(adoption.fields()), *controls]
    control = b"".join(controls)
    body = bytearray(control)
    body += records
    sizes = heads["size"].astype(np.int64)
    at = len(control) + sizes.cumsum() - sizes
    if controls and adoption is None and bool((heads["kind"] == _SCHEDULED).any()):
        late_marks.mark(bytes(records), at - len(control), heads)  # no send has flagged them
    count = len(controls) + len(heads)
    return append_body(shard, body, at, heads, queues, count, wall_ms, settled, adoption)


def append_body(
    shard: Shard,
    body: bytearray,
    at: _Column,
    heads: npt.NDArray[Any],
    queues: _Column,
    count: int,
    wall_ms: int,
    settled: Sequence[Settled],
    adoption: Adoption | None = None,
    step: Step | None = None,
) -> tuple[_Column, _Column]:
    """Append one frame whose records are already in order; return what `append_messages` returns.

    at     offsets of the messages in the body
    count  of all records, messages and controls
    step   step of the tier that the frame carries
    """
    base = shard.log.next_body_position(len(body))
    offsets = np.full(len(heads), -1, np.int64)
    now = (heads["kind"] == _MESSAGE).nonzero()[0]
    units = []
    if len(now):
        offsets[now], groups = shard.topics.assign(heads["topic"][now], queues[now])
        groups = [(topic, queue_id, now[rows]) for topic, queue_id, rows in groups]
        units = visible_units(body, at, base, heads, groups)
    place(
        np.frombuffer(body, np.uint8),
        at,
        heads,
        queues,
        base=base,
        queue_offset=np.maximum(offsets, 0),
        store_ms=shard.stamp_ms(wall_ms),
        store_host=shard.settings.store_host,
    )
    if adoption is not None:
        adoption = adoption._replace(position=base)
    shard.log.append(body, count, wall_ms)
    shard.uncommitted.append(
        Applied(
            shard.log.end,
            units,
            unfiled_of(heads, at, base, body, wall_ms),
            list(settled),
            key_columns(heads, at, base, body),
            adoption,
            step,
        )
    )
    return offsets, at + base


def unfiled_of(
    heads: np.ndarray, at: np.ndarray, base: int, body: bytes | bytearray, append_ms: int
) -> Unfiled | None:
    """Collect the scheduled messages of a frame body; None if there are none.

    They are filed when the frame is committed.
    """
    rows = (heads["kind"] == _SCHEDULED).nonzero()[0]
    if not len(rows):
        return None
    if len(rows) == len(heads) and int(heads["size"].sum()) == len(body):
        return Unfiled(heads, (at + base).astype(np.uint64), memoryview(body), append_ms)
    view = memoryview(body)
    starts = at[rows]
    ends = starts + heads["size"][rows]
    records = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
    return Unfiled(
        heads.take(rows), (starts + base).astype(np.uint64), memoryview(records), append_ms
    )
