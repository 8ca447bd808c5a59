"""Hand-over: due messages are appended once more, now with their queue offsets.

The frame holds one HAND_OVER record with the origins for every hour taken from, and the messages
themselves: so the log says what has been handed over, and no crash can hand a message over twice or
leave one out.  Until the frame is committed the entries carry the mark HANDING_OVER in memory,
which keeps recalls truthful.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Applied, Settled
from horolog.broker.columns import queue_ids, stamp
from horolog.broker.key_columns import key_columns
from horolog.broker.late_messages import DueMessages, LateMessages
from horolog.broker.queue_units import visible_units
from horolog.broker.shard import Shard
from horolog.delay.state import SECONDS, EntryState
from horolog.limits import TURN_HAND_OVER_MAX
from horolog.log import whole_rows
from horolog.log.control_records import encode_hand_over, origins_of
from horolog.log.record import KIND_AT, Kind, heads_of
from horolog.wheel.wheel import Taken, stretches


class _Part(NamedTuple):
    hour: int
    refs: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]
    records: list[memoryview]


class _Joined(NamedTuple):
    """Parts joined into the body of a frame."""

    body: bytearray
    offsets: npt.NDArray[np.int64]  # of the messages
    heads: npt.NDArray[Any]


def hand_over(shard: Shard, late: LateMessages, wall_ms: int) -> int:
    """Hand over due messages, within the budget of one turn; return how many."""
    due = shard.wheel.take(wall_ms, TURN_HAND_OVER_MAX)
    if not len(due.ref):
        return 0
    parts = []
    budget = min(shard.settings.turn_bytes, shard.log.segment_bytes // 4)
    for first, stop in stretches(due.second // SECONDS):
        taken = Taken(*(column[first:stop] for column in due))
        if budget <= 0:
            shard.wheel.give_back(taken)
            continue
        part, used, rest = _read(shard, taken, budget)
        budget -= used
        if len(rest.ref):
            shard.wheel.give_back(rest)
            budget = 0
        if len(part.refs):
            parts.append(part)
    if not parts:
        return 0
    joined = _join(parts, wall_ms)
    is_late = late.expire(_due_messages(parts, joined), wall_ms)
    if is_late is not None:
        parts = _without_late(parts, is_late)
        joined = _join(parts, wall_ms) if parts else joined
    if parts:
        _append(shard, parts, joined, wall_ms)
    return sum(len(part.refs) for part in parts)


def _read(shard: Shard, taken: Taken, budget: int) -> tuple[_Part, int, Taken]:
    """Read the messages of one hour that fit into the budget.

    Return them, the bytes that they take, and the rest.
    """
    waits = shard.delay.states(taken.ref) == EntryState.WAITING  # others were recalled meanwhile
    if not bool(waits.all()):
        taken = Taken(*(column[waits] for column in taken))
    second, _, refs = taken
    entries = shard.delay.entries(refs)
    ends = np.cumsum(entries["size"].astype(np.int64))
    fits = max(1, int(np.searchsorted(ends, budget, side="right")))
    used = int(ends[min(fits, len(ends)) - 1]) if len(ends) else 0
    good, entries, records = shard.delay.read_intact(refs[:fits], entries[:fits])
    hour = int(second[0]) // SECONDS if len(second) else 0
    rest = Taken(*(column[fits:] for column in taken))
    return _Part(hour, good, entries, records), used, rest


def _due_messages(parts: list[_Part], joined: _Joined) -> DueMessages:
    refs = np.concatenate([part.refs for part in parts])
    entries = whole_rows.joined([part.entries for part in parts])
    return DueMessages(refs, entries, joined.heads, joined.body, joined.offsets)


def _without_late(parts: list[_Part], is_late: npt.NDArray[np.bool_]) -> list[_Part]:
    """Return the parts without the late messages."""
    kept, first = [], 0
    for part in parts:
        stays = ~is_late[first : first + len(part.refs)]
        first += len(part.refs)
        if bool(stays.any()):
            records = [record for record, stay in zip(part.records, stays, strict=True) if stay]
            kept.append(_Part(part.hour, part.refs[stays], part.entries.compress(stays), records))
    return kept


def _join(parts: list[_Part], wall_ms: int) -> _Joined:
    pieces: list[bytes | memoryview] = []
    starts = []  # of the message records in the body
    at = 0
    for part in parts:
        control = encode_hand_over(
            part.hour, origins_of(part.entries["origin"], part.entries["row"])
        )
        pieces.append(control)
        pieces += part.records
        at += len(control)
        assert len(part.refs) == len(part.entries) == len(part.records), part.hour
        assert int(part.entries["due_ms"].max()) <= wall_ms, f"P1: hour {part.hour} at {wall_ms}"
        sizes = part.entries["size"].astype(np.int64)
        ends = at + np.cumsum(sizes)
        starts.append(ends - sizes)
        at = int(ends[-1])
    body = bytearray(b"".join(pieces))
    offsets = np.concatenate(starts)
    return _Joined(body, offsets, heads_of(body, offsets))


def _append(shard: Shard, parts: list[_Part], joined: _Joined, wall_ms: int) -> None:
    body, offsets, heads = joined
    for part in parts:
        shard.delay.mark_inflight(part.refs, EntryState.HANDING_OVER)
    raw = np.frombuffer(body, np.uint8)
    raw[offsets + KIND_AT] = Kind.HANDED
    heads["kind"] = Kind.HANDED
    base = shard.log.next_body_position(len(body))
    queue_offset, groups = shard.topics.assign(heads["topic"], queue_ids(raw, offsets))
    stamp(
        raw,
        offsets,
        base=base,
        queue_offset=queue_offset,
        store_ms=shard.stamp_ms(wall_ms),
        store_host=shard.settings.store_host,
    )
    units = visible_units(body, offsets, base, heads, groups)
    lanes = np.split(heads["lane"], np.cumsum([len(part.refs) for part in parts])[:-1])
    settled = [
        Settled(part.refs, EntryState.HANDED_OVER, of)
        for part, of in zip(parts, lanes, strict=True)
    ]
    shard.log.append(body, len(parts) + len(offsets), wall_ms)
    shard.counters.note_hand_over(shard.log.end, heads["topic"], heads["due_ms"])
    keyed = key_columns(heads, offsets, base, body)
    shard.uncommitted.append(Applied(shard.log.end, units, None, settled, keyed))
