"""Rows of a log (`log_table`), built from its records as columns, a stretch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from horolog.delay.tier import Promotion
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.log.control_records import RecallRecord
from horolog.log.controls import ENDING, UNREADABLE, Control, Outcome
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.log.stored import stored
from horolog.log.unaligned import get
from horolog.pipeline.adopted_files import adopted_rows
from horolog.pipeline.data_files import LogPlan
from horolog.pipeline.log_table import LogRows, RowKind, settled_rows
from horolog.pipeline.log_walk import Rows, Stretch, controls_of, mapped
from horolog.protocol.rocketmq import layout


def rows_of(plan: LogPlan, stretch: Stretch) -> Iterator[LogRows]:
    """Yield the rows of a stretch: its messages, then the messages that it recalls."""
    messages = _messages(plan, stretch)
    if len(messages):
        yield from _with_promoted(stretch, messages)
    yield from _recalls(plan, stretch)


def _with_promoted(stretch: Stretch, messages: LogRows) -> Iterator[LogRows]:
    """Yield the messages, with kind PROMOTED where an ADOPT brought them back from the lake.

    The ADOPT is in the frame of the messages.  A message that was due by then is HANDED, with a
    PROMOTED row too.
    """
    frames = [
        int(stretch.frame[row])
        for row, control in controls_of(stretch, Kind.ADOPT)
        if is_promotion(control.payload)
    ]
    if not frames:
        yield messages
        return
    back = np.isin(stretch.frame[message_offsets(stretch)], frames)
    late = back & (messages.kind == RowKind.MESSAGE)
    messages.kind = messages.kind.copy()
    messages.kind[back & (messages.kind == RowKind.SCHEDULED)] = RowKind.PROMOTED
    messages.kind[late] = RowKind.HANDED
    messages.origin[late] = messages.position[late]
    yield messages
    if bool(late.any()):
        scheduled = messages.chosen(np.flatnonzero(late))
        scheduled.kind[:] = RowKind.PROMOTED
        scheduled.queue[:] = scheduled.queue_offset[:] = -1
        yield scheduled


def is_promotion(payload: bytes | str) -> bool:
    """Return whether an ADOPT record brought messages back from the lake."""
    try:
        fields = orjson.loads(payload)
        return Promotion.of(fields["app"], fields["version"]) is not None
    except (*UNREADABLE, AttributeError):
        return False  # invalid content in an intact frame is not a fault for an audit to report


def message_offsets(stretch: Stretch) -> Rows:
    """Return the indices of the records of a stretch that are messages."""
    kinds = stretch.kinds
    found: Rows = np.flatnonzero(
        (kinds == Kind.MESSAGE) | (kinds == Kind.SCHEDULED) | (kinds == Kind.HANDED)
    )
    return found


def _messages(plan: LogPlan, stretch: Stretch) -> LogRows:
    raw = stretch.raw
    rows = message_offsets(stretch)
    at = stretch.at[rows]
    heads = get(raw, at, HEAD)
    kind = heads["kind"]
    at_layout = at + HEAD_BYTES
    flags = stored(raw, at_layout, "sys_flag")
    born = np.where(flags & layout.BORN_HOST_V6, 12, 0)
    hosts = born + np.where(flags & layout.STORE_HOST_V6, 12, 0)
    position = at + stretch.base
    origin = np.where(kind == Kind.SCHEDULED, position, -1)
    origin_row = np.zeros(len(rows), np.int64)
    handed = np.flatnonzero(kind == Kind.HANDED)
    if len(handed):
        origin[handed], origin_row[handed] = (
            column[rows[handed]] for column in origins(plan, stretch)
        )
    numbered = kind != Kind.SCHEDULED
    offset = stored(raw, at_layout, "queue_offset").astype(np.int64)
    return LogRows(
        kind=kind,
        position=position,
        origin=origin,
        origin_row=origin_row,
        topic=heads["topic"].astype(np.int64),
        key=heads["key"].view(np.int64),
        due_ms=heads["due_ms"].astype(np.int64),
        append_ms=stretch.append_ms[stretch.frame[rows]],
        store_ms=stored(raw, at_layout + born, "store_ms").astype(np.int64),
        queue=stored(raw, at_layout, "queue_id").astype(np.int64),
        queue_offset=np.where(numbered, offset, -1),
        reconsume_times=stored(raw, at_layout + hosts, "reconsume_times").astype(np.int64),
        size=heads["size"].astype(np.int64),
    )


def origins(plan: LogPlan, stretch: Stretch) -> tuple[Rows, Rows]:
    """Return (origin, row) of every record of a stretch, from the HAND_OVER before it; −1: none."""
    found, found_row = np.full(len(stretch.at), -1, np.int64), np.zeros(len(stretch.at), np.int64)
    is_handed = stretch.kinds == Kind.HANDED
    # The messages of a HAND_OVER end at the next HAND_OVER, or with the frame.
    is_end = stretch.kinds == Kind.HAND_OVER
    is_end[1:] |= stretch.frame[1:] != stretch.frame[:-1]
    ends = np.append(np.flatnonzero(is_end), len(stretch.at))
    for row, control in controls_of(stretch, Kind.HAND_OVER):
        try:
            settled = control.content.origins
        except UNREADABLE:
            continue
        stop = int(ends[np.searchsorted(ends, row + 1)])
        places = np.flatnonzero(is_handed[row + 1 : stop]) + row + 1
        if len(places) != len(settled):
            settled, places = _by_key(plan, stretch, settled, places)
        found[places] = settled["position"].astype(np.int64)
        found_row[places] = settled["row"]
    return found, found_row


def _by_key(
    plan: LogPlan, stretch: Stretch, settled: npt.NDArray[Any], places: Rows
) -> tuple[npt.NDArray[Any], Rows]:
    """Match a HAND_OVER with its messages by key, where it names more or fewer than follow."""
    keys = get(stretch.raw, stretch.at[places], HEAD)["key"].view(np.int64).tolist()
    left: dict[int, list[int]] = {}
    for at, key in enumerate(
        keys_of(plan, settled["position"].astype(np.int64), settled["row"]).tolist()
    ):
        left.setdefault(key, []).append(at)
    chosen = [
        (left[key].pop(0), place)
        for key, place in zip(keys, places.tolist(), strict=True)
        if left.get(key)
    ]
    table = np.array(chosen, np.int64).reshape(-1, 2)
    return settled[table[:, 0]], table[:, 1]


def keys_of(plan: LogPlan, positions: Rows, rows: npt.NDArray[Any]) -> Rows:
    """Return the key of each origin, from its record in the log or its row in an adopted run.

    The key is 0 where neither exists.
    """
    keys = np.zeros(len(positions), np.int64)
    bases = positions - positions % plan.segment_bytes
    for base in np.unique(bases).tolist():
        raw = mapped(plan.root, base)
        if raw is None:
            continue
        mine = np.flatnonzero(bases == base)
        at = positions[mine] - base
        inside = (positions[mine] >= plan.start) & (at + HEAD_BYTES <= len(raw))
        mine, at = mine[inside], at[inside]
        heads = get(raw, at, HEAD)
        is_message = heads["kind"] == Kind.SCHEDULED
        keys[mine[is_message]] = heads["key"].view(np.int64)[is_message]
    if plan.adopted:
        entries = adopted_rows(plan, positions, rows)
        mine = np.flatnonzero(entries["size"])
        keys[mine] = entries["key"].view(np.int64)[mine]
    return keys


def _recalls(plan: LogPlan, stretch: Stretch) -> Iterator[LogRows]:
    for kind, rows_of_kind in _RECALLS.items():
        for row, control in controls_of(stretch, kind):
            try:
                settled, topic, due, key, name = rows_of_kind(plan, control)
            except UNREADABLE:
                continue
            if len(settled):
                append_ms = int(stretch.append_ms[stretch.frame[row]])
                yield settled_rows(name, control.position, settled, topic, key, due, append_ms)


_OF_OUTCOME = {
    Outcome.RECALLED: RowKind.RECALL,
    Outcome.MOVED: RowKind.MOVED,
    Outcome.EXPIRED: RowKind.EXPIRED,
}


class _Recalled(NamedTuple):
    """Messages that a control record recalls: columns of equal length, or one topic for all."""

    origins: npt.NDArray[Any]  # rows with position and row
    topic: Any
    due_ms: Rows
    key: Rows
    kind: RowKind


def _recalled_one(_: LogPlan, control: Control) -> _Recalled:
    record: RecallRecord = control.content
    ended = control.ended()
    assert ended is not None
    assert ended.due_ms is not None, "only a HAND_OVER leaves them to its messages"
    key = np.full(len(ended.origins), record.key, np.uint64).view(np.int64)
    return _Recalled(ended.origins, record.topic, ended.due_ms, key, _OF_OUTCOME[ended.outcome])


def _recalled_many(plan: LogPlan, control: Control) -> _Recalled:
    topic, settled, _ = control.content
    ended = control.ended()
    assert ended is not None
    due_ms = settled["due_ms"].astype(np.int64)
    return _Recalled(settled, topic, due_ms, _keys(plan, settled), _OF_OUTCOME[ended.outcome])


def _recalled_in_lake(plan: LogPlan, control: Control) -> _Recalled:
    """Return the recalls of messages in the lake."""
    step, table = control.content
    rows = np.frombuffer(table if step["step"] == "recalled" else b"", LAKE_ROW)
    due_ms = rows["due_ms"].astype(np.int64)
    topic = rows["topic"].astype(np.int64)
    return _Recalled(
        rows,
        topic,
        due_ms,
        _keys(plan, rows),
        RowKind.MOVED if step.get("moved") else RowKind.RECALL,
    )


def _keys(plan: LogPlan, settled: npt.NDArray[Any]) -> Rows:
    return keys_of(plan, settled["position"].astype(np.int64), settled["row"])


_RECALLS: Mapping[Kind, Callable[[LogPlan, Control], _Recalled]] = {
    Kind.RECALL: _recalled_one,
    Kind.RECALL_MANY: _recalled_many,
    Kind.OFFLOAD: _recalled_in_lake,
}
assert {*ENDING, Kind.OFFLOAD} == {Kind.HAND_OVER, *_RECALLS}
