"""The steps of an offload, applied to the delay store when their record is committed.

They are applied online and in replay alike.  Which messages are frozen follows from the log alone:
all that were filed in the far store, or adopted, before the `begin` record.  So a replay that
rebuilds its runs, under other names, freezes and cuts the same messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.run import FarRun
from horolog.delay.far.store import FarStore
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.stages import TABLE, Event, Stage
from horolog.lake.core.state import Lake, Offload
from horolog.lake.core.state_file import COUNT
from horolog.limits import HOUR_MS
from horolog.state_table import allows

_NEVER_MS = 1 << 62


class LakeStep(NamedTuple):
    """A decoded OFFLOAD record: `fields` as its JSON, and the rows of its table."""

    fields: dict[str, Any]
    counts: npt.NDArray[Any]  # COUNT, of a commit
    recalled: npt.NDArray[Any]  # LAKE_ROW, of a recall


def step_of(fields: dict[str, Any], table: bytes) -> LakeStep:
    """Decode a step from the content of its record."""
    none = np.empty(0, COUNT), np.empty(0, LAKE_ROW)
    if fields["step"] == "commit":
        return LakeStep(fields, np.frombuffer(table, COUNT), none[1])
    if fields["step"] == "recalled":
        return LakeStep(fields, none[0], np.frombuffer(table, LAKE_ROW))
    return LakeStep(fields, *none)


# --- questions ------------------------------------------------------------------------------------


def frozen_runs(far: FarStore) -> list[FarRun]:
    """Return the frozen runs."""
    return [run for run in far.runs.values() if run.frozen]


def is_sealing(far: FarStore) -> bool:
    """Return whether a frozen buffer or run is still being written."""
    if any(buffer.frozen for buffer in far.buffers):
        return True
    return any(run.frozen and run.journal is not None for run in far.runs.values())


def waiting_counts(far: FarStore, offload: Offload) -> npt.NDArray[Any]:
    """Count the frozen messages that wait, by hour and topic, as COUNT rows."""
    counts: dict[tuple[int, int], int] = {}
    for run in frozen_runs(far):
        for row in run.counts.by_hour_and_topic(offload.from_ms // HOUR_MS):
            key = int(row["hour"]), int(row["topic"])
            counts[key] = counts.get(key, 0) + int(row["count"])
    rows = [(offload.offload_id, hour, topic, n) for (hour, topic), n in sorted(counts.items())]
    return np.array(rows, COUNT)


def adopted_rows(far: FarStore, offload: Offload) -> dict[str, int]:
    """Return how many rows a commit takes of each frozen adopted run, by its name."""
    found = {}
    for run in frozen_runs(far):
        if isinstance(run, AdoptedRun):
            first, stop = rows_of(run, offload.from_ms)
            if first < stop:
                found[run.info.name] = int((~run.states.gone_between(first, stop)).sum())
    return found


def rows_of(run: FarRun, from_ms: int) -> tuple[int, int]:
    """Return the rows [first, stop) of a frozen run that are due at or after `from_ms`."""
    return min(run.file.row_at(from_ms), run.states.limit), run.states.limit


def removed_mask(
    run: FarRun, first: int, stop: int, recalled: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows [first, stop) that were removed when the run was frozen.

    recalled  LAKE_ROW rows: messages recalled since then, which are not in the mask
    """
    removed = run.states.gone_between(first, stop)
    if len(recalled):
        rows = run.find(recalled["due_ms"], recalled["position"], recalled["row"])
        rows = rows[(rows >= first) & (rows < stop)]
        removed[rows - first] = False
    return removed


# --- steps ----------------------------------------------------------------------------------------


def note_recalled(lake: Lake, store: DelayStore, refs: npt.NDArray[np.int64]) -> None:
    """Remember the frozen ones of recalled, moved or expired messages: the table has them."""
    offload = lake.open
    if offload is None or offload.stage is not Stage.FROZEN:
        return
    for source, _, rows in store.by_source(refs):
        if isinstance(source, FarRun) and source.frozen:
            entries = source.entries(rows)
            entries = entries.compress(entries["due_ms"] >= offload.from_ms)
            recalled = np.empty(len(entries), LAKE_ROW)
            recalled["number"], recalled["topic"] = offload.offload_id, entries["topic"]
            recalled["position"], recalled["row"] = entries["origin"], entries["row"]
            recalled["due_ms"] = entries["due_ms"]
            lake.remember_recalled(recalled)


_EVENTS = {
    "begin": Event.BEGIN,
    "frozen": Event.FREEZE,
    "commit": Event.COMMIT,
    "abort": Event.ABORT,
}


def follows(lake: Lake, step: LakeStep) -> bool:
    """Return whether a step fits the earlier ones; false only if salvage gave some up."""
    if step.fields["step"] == "recalled":
        return bool(lake.waits(step.recalled).all())
    offload_id, event = step.fields["number"], _EVENTS[step.fields["step"]]
    if event is Event.BEGIN and (lake.open is not None or offload_id < lake.next):
        return False
    return allows(TABLE, lake.stage_of(offload_id), event)


def apply_step(lake: Lake, store: DelayStore, step: LakeStep, end: int, *, is_whole: bool) -> int:
    """Apply a step whose frame ends at `end`; return how many messages it recalled.

    is_whole  all messages before it in the log are filed (the disk has not been full)
    """
    far, fields = store.far, step.fields
    offload_id = fields.get("number", 0)
    match fields["step"]:
        case "begin":
            far.seal()
            _freeze(far, frozen=True)
            lake.begin(offload_id, fields["app"], fields["from_ms"], is_whole=is_whole)
        case "frozen":
            lake.happened(offload_id, Event.FREEZE)
        case "commit":
            _cut(store, lake.offloads[offload_id].from_ms)
            # In a replay a file may be gone: all its messages were handed over or offloaded since
            for missing in far.missing:
                missing.left -= fields.get("adopted", {}).get(missing.file.name, 0)
            _freeze(far, frozen=False)
            lake.commit(offload_id, fields, end, step.counts)
        case "abort":
            _freeze(far, frozen=False)
            lake.abort(offload_id)
        case "recalled":
            return lake.recall(step.recalled)
    return 0


def _freeze(far: FarStore, *, frozen: bool) -> None:
    for source in far.sources():
        source.frozen = frozen


def _cut(store: DelayStore, from_ms: int) -> None:
    """Remove the frozen messages due at or after `from_ms` from the far store."""
    far = store.far
    for run in frozen_runs(far):
        first, stop = rows_of(run, from_ms)
        if first >= stop:
            continue
        assert run.states.decided <= first
        if isinstance(run, AdoptedRun) and not first:
            run.cut(0, 0)  # finished; removed like other finished runs, as its file may be needed
            continue
        run.cut(first, from_ms)
        if not first:
            far.drop(run.info.name)
            store.forget_source(run.source_id)
    for buffer in far.buffers:
        if buffer.frozen:  # only in a replay on a full disk
            end_waiting(buffer, from_ms)
    far.forget_next_waiting()


def end_waiting(
    buffer: FarBuffer, from_ms: int, to_ms: int = _NEVER_MS, topic: int | None = None
) -> None:
    """End the waiting messages of a buffer due in [from_ms, to_ms): they wait elsewhere now.

    topic  its number; None: those of all topics
    """
    rows, _ = buffer.rows_between(from_ms, to_ms, 0, buffer.count)
    if topic is not None and len(rows):
        rows = rows[np.asarray(buffer.entries(rows)["topic"] == topic)]
    if len(rows):
        buffer.settle(rows, EntryState.MOVED)
