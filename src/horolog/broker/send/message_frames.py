"""Frames of messages: one is appended whole, and what is scheduled of it is filed when it is committed.

Whoever makes messages ends here: sends of clients, ends of transactions, adoptions, firings of schedules, dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import place
from horolog.broker.key_columns import key_columns
from horolog.broker.queue_units import visible_units
from horolog.broker.send import late_marks
from horolog.broker.shard import Applied, Settled, Shard
from horolog.delay.far.adopted import Adoption
from horolog.delay.store import Unfiled
from horolog.log.record import Kind, encode_adopt

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
    """Append one frame of messages; gives their queue offsets (−1: scheduled) and log positions.

    records   of all of them, back to back; `heads` and `queues` take the place of theirs
    adoption  the transaction that these messages are all of; its record comes first
    controls  other records of the same frame, which come before the messages
    settled   what these end
    """
    if adoption is not None:
        controls = [encode_adopt(adoption.fields()), *controls]
    control = b"".join(controls)
    body = bytearray(control)
    body += records
    base = shard.log.place(len(body))
    sizes = heads["size"].astype(np.int64)
    at = len(control) + sizes.cumsum() - sizes
    if controls and adoption is None and bool((heads["kind"] == _SCHEDULED).any()):
        late_marks.mark(bytes(records), at - len(control), heads)  # nobody has sent them just now
    raw = np.frombuffer(body, np.uint8)
    offsets = np.full(len(heads), -1, np.int64)
    now = (heads["kind"] == _MESSAGE).nonzero()[0]
    units = []
    if len(now):
        offsets[now], groups = shard.topics.assign(heads["topic"][now], queues[now])
        groups = [(topic, queue_id, now[rows]) for topic, queue_id, rows in groups]
        units = visible_units(body, at, base, heads, groups)
    place(
        raw,
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
    shard.log.append(body, len(controls) + len(heads), wall_ms)
    shard.uncommitted.append(
        Applied(
            shard.log.end,
            units,
            unfiled_of(heads, at, base, body, wall_ms),
            list(settled),
            key_columns(heads, at, base, body),
            adoption,
        )
    )
    return offsets, at + base


def unfiled_of(
    heads: np.ndarray, at: np.ndarray, base: int, body: bytes | bytearray, append_ms: int
) -> Unfiled | None:
    """The scheduled messages of a frame body, to be filed when it is committed; None if it has none."""
    rows = (heads["kind"] == _SCHEDULED).nonzero()[0]
    if not len(rows):
        return None
    if len(rows) == len(heads) and int(heads["size"].sum()) == len(body):
        return Unfiled(heads, (at + base).astype(np.uint64), memoryview(body), append_ms)
    view = memoryview(body)
    starts = at[rows]
    ends = starts + heads["size"][rows]
    records = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
    return Unfiled(heads[rows], (starts + base).astype(np.uint64), memoryview(records), append_ms)
