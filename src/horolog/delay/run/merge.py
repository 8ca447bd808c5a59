"""Making runs: from a full far buffer (`flush`), and from other runs (`merge`).

Both take their rows in slices of at most 65 536 and write as they go, so memory does not grow with
the runs.  Both only make new files and sync them; `delay.far` decides who uses the new files, and
when the old ones go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, is_readable
from horolog.delay.run.format import RunInfo, damaged, run_path
from horolog.delay.run.reader import Run
from horolog.delay.run.writer import RunWriter, is_sorted, sort_key
from horolog.errors import HorologError
from horolog.log.whole_rows import joined
from horolog.storage.api import Storage

SLICE_ROWS = 65_536
PIECE_ROWS = 8_192  # records held at once; each is an object of its own until it is written
_Key = tuple[int, int, int]


class Part(NamedTuple):
    """Rows [first, stop) of a run; `gone[i]`: row first + i is left out."""

    run: Run
    first: int
    stop: int
    gone: npt.NDArray[np.bool_] | None = None


def flush(
    storage: Storage,
    directory: str,
    name: str,
    *,
    log_id: int,
    entries: npt.NDArray[Any],
    read: Callable[[npt.NDArray[Any]], list[memoryview]],
) -> RunInfo:
    """Sort ENTRY rows into a new run, synced; the caller syncs the directory.

    entries  in any order; rows with a wrong sum are left out, so compare `rows`.  If no row is
             left, no file is made and `rows` is 0.
    read     returns the records of some of the entries, unverified
    """
    good = is_readable(np.ascontiguousarray(entries))
    order = _order(entries)
    order = order[good[order]]
    if not len(order):
        return RunInfo(name, 0, 0, 0, 0)
    writer = RunWriter(storage, directory, name, log_id=log_id, rows=len(order))
    try:
        for at in range(0, len(order), PIECE_ROWS):
            piece = entries.take(order[at : at + PIECE_ROWS])
            writer.add(piece, read(piece))
        return writer.finish()
    except HorologError:
        writer.abandon()
        raise


def _order(entries: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the order of ENTRY rows by (due ms, origin, row); equal rows stay as they stand."""
    order = np.argsort(entries["due_ms"], kind="stable")
    if is_sorted(entries.take(order)):  # rows as in the log, or of runs that follow each other
        return order
    return np.lexsort((entries["row"], entries["origin"], entries["due_ms"]))


def merge(
    storage: Storage,
    directory: str,
    parts: Sequence[Part],
    bounds: Sequence[int],
    names: Sequence[str],
    *,
    log_id: int,
    slice_rows: int = SLICE_ROWS,
) -> list[RunInfo]:
    """Merge parts of runs into new runs, synced; the caller syncs the directory.

    Run i, named names[i], holds what is due in [bounds[i], bounds[i + 1]), the last run all that is
    due later; an empty run is not made.  No part may begin before bounds[0].  Rows with equal (due
    ms, origin, row) keep the order of the parts.  Damaged rows are left out and reported in the
    `problems` of their run.  After a failure no new file is left.
    """
    assert len(bounds) == len(names)
    assert list(bounds) == sorted(bounds)
    parts = [part for part in parts if part.first < part.stop]
    assert all(part.first >= part.run.row_at(bounds[0]) for part in parts)
    done: list[RunInfo] = []
    try:
        for i, name in enumerate(names):
            due_stop = bounds[i + 1] if i + 1 < len(bounds) else None
            inside = [_cut(part, bounds[i], due_stop) for part in parts]
            inside = [part for part in inside if part.stop > part.first]
            found = _merge_one(storage, directory, inside, name, log_id, slice_rows)
            if found.rows:
                done.append(found)
    except HorologError:
        for info in done:
            try:
                storage.remove(run_path(directory, info.name))
            except HorologError:
                break  # a sweep of unnamed runs removes the others
        raise
    return done


def _cut(part: Part, due_first: int, due_stop: int | None) -> Part:
    """Return the rows of a part that are due in [due_first, due_stop)."""
    first = min(max(part.first, part.run.row_at(due_first)), part.stop)
    stop = part.stop if due_stop is None else min(part.stop, part.run.row_at(due_stop))
    stop = max(first, stop)
    gone = None if part.gone is None else part.gone[first - part.first : stop - part.first]
    return Part(part.run, first, stop, gone)


class _Source:
    """A part during a merge: some of its rows are read, the rest will be."""

    def __init__(self, part: Part, step: int) -> None:
        self.part = part
        self.step = step
        self.at = part.first  # next row to read
        self.entries = np.empty(0, ENTRY)

    def fill(self) -> bool:
        """Read on unless half a step of rows is left; return False when the part is done.

        A nearly used-up source would make the next slice short, since a slice ends where the first
        source ends.
        """
        while len(self.entries) < max(1, self.step // 2) and self.at < self.part.stop:
            stop = min(self.part.stop, self.at + self.step)
            self.entries = joined([self.entries, _kept(self.part, self.at, stop)])
            self.at = stop
        return len(self.entries) > 0

    def take(self, bound: _Key | None) -> npt.NDArray[Any]:
        """Take the rows that were read and are not above `bound`."""
        count = len(self.entries) if bound is None else _count_to(self.entries, bound)
        taken, self.entries = self.entries[:count], self.entries[count:]
        return taken


def _kept(part: Part, first: int, stop: int) -> npt.NDArray[Any]:
    """Return the readable rows of [first, stop) that are not gone."""
    entries, rows, _ = part.run.readable(first, stop)
    if part.gone is None:
        return entries
    kept: npt.NDArray[Any] = entries.compress(~part.gone[rows - part.first])
    return kept


def _count_to(entries: npt.NDArray[Any], bound: _Key) -> int:
    """Return how many of these sorted rows are not above `bound`."""
    first, stop = 0, len(entries)
    for column, value in zip(("due_ms", "origin", "row"), bound, strict=True):
        inside = entries[column][first:stop]
        dtype = inside.dtype.type
        low = int(inside.searchsorted(dtype(value)))
        stop = first + int(inside.searchsorted(dtype(value), side="right"))
        first += low
    return stop


def _merge_one(
    storage: Storage, directory: str, parts: list[Part], name: str, log_id: int, slice_rows: int
) -> RunInfo:
    rows = sum(
        len(_kept(part, at, min(part.stop, at + slice_rows)))
        for part in parts
        for at in range(part.first, part.stop, slice_rows)
    )
    if not rows:
        return RunInfo(name, 0, 0, 0, 0)
    writer = RunWriter(storage, directory, name, log_id=log_id, rows=rows)
    try:
        added = 0
        for entries, of_part in _slices(parts, slice_rows):
            added += len(entries)
            if added > rows:
                break
            for at in range(0, len(entries), PIECE_ROWS):
                piece = entries[at : at + PIECE_ROWS]
                writer.add(piece, _records(parts, piece, of_part[at : at + PIECE_ROWS]))
        if added != rows:
            raise damaged(name, "an index has changed while it was merged")
        return writer.finish()
    except HorologError:
        writer.abandon()
        raise


def _slices(
    parts: list[Part], slice_rows: int
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.intp]]]:
    """Yield all rows of the parts in order, in slices: ENTRY rows, and the part of each.

    Some rows of every part are read; up to the lowest of their last rows, no other row can come in
    between any more.
    """
    step = max(1, slice_rows * 2 // 3 // max(1, len(parts)))  # up to half of a step is left over
    sources = [_Source(part, step) for part in parts]
    left = [i for i, source in enumerate(sources) if source.fill()]
    while left:
        ends = [
            sort_key(sources[i].entries[-1]) for i in left if sources[i].at < sources[i].part.stop
        ]
        bound = min(ends) if ends else None
        taken = [sources[i].take(bound) for i in left]
        entries = joined(taken)
        of_part = np.repeat(left, [len(each) for each in taken])
        order = _order(entries)
        yield entries.take(order), of_part[order]
        left = [i for i in left if sources[i].fill()]


def _records(
    parts: list[Part], entries: npt.NDArray[Any], of_part: npt.NDArray[np.intp]
) -> list[memoryview]:
    views = [part.run.view for part in parts]
    starts = entries["position"].tolist()
    ends = (entries["position"] + entries["size"]).tolist()
    return [views[i][a:b] for i, a, b in zip(of_part.tolist(), starts, ends, strict=True)]
