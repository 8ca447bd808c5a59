"""Loading seconds from all sources, as many at once as one turn can handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from horolog.delay.near.chain import ChainLoad
from horolog.delay.near.hour import Hour
from horolog.delay.source import NOTHING, FarSource, Loaded, PartLoad, Rows, Wanted, merged
from horolog.delay.state import SECONDS
from horolog.errors import Problem

_PART_STEPS = 32  # what a part costs besides its rows, in steps: 10 µs and more


class SpanLoad:
    """A load of the seconds from `second` to before `stop`, from all sources with rows in them."""

    def __init__(self, second: int, stop: int, parts: Sequence[PartLoad]) -> None:
        self.second = second
        self.stop = stop
        self._parts = parts
        self._at = 0

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps; return (steps taken, whether the load is done)."""
        steps = 0
        while self._at < len(self._parts) and steps < limit:
            took, done = self._parts[self._at].walk(limit - steps)
            steps += took + _PART_STEPS
            self._at += done
        return steps, self._at == len(self._parts)

    def loaded(self) -> Loaded:
        """Return the waiting rows of all sources, sorted."""
        pieces = [piece for part in self._parts for piece in part.pieces() if len(piece.order)]
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return NOTHING
        return merged(pieces)

    def problems(self) -> list[Problem]:
        """Return the problems of damaged parts, once loaded."""
        return [part.problem for part in self._parts if part.problem is not None]


def open_span(
    hours: Mapping[int, Hour],
    far: Sequence[FarSource],
    second: int,
    stop: int,
    rows: int,
    wanted: Wanted | None = None,
) -> SpanLoad:
    """Begin to load `second`, and later ones before `stop` until about `rows` rows wait in all.

    far     the far sources that have rows in these seconds
    wanted  what to keep; None: all that waits
    """
    seconds, counts = _waiting(hours, second, stop)
    if stop > second + 1:
        for source in far:
            share = source.span_stop_ms(second * 1000, stop * 1000, rows // len(far))
            stop = min(stop, share // 1000)
        crowded = int(counts.cumsum().searchsorted(rows, side="right"))
        if crowded < len(seconds):
            stop = min(stop, int(seconds[crowded]))
        stop = max(stop, second + 1)
    near = seconds[: seconds.searchsorted(stop)].tolist()
    parts: list[PartLoad] = [ChainLoad(hours[each // SECONDS], each, wanted) for each in near]
    parts += [source.open_span(second, stop, wanted) for source in far]
    return SpanLoad(second, stop, parts)


def _waiting(hours: Mapping[int, Hour], second: int, stop: int) -> tuple[Rows, Rows]:
    """Return (seconds of the hours with waiting messages, how many wait in each)."""
    seconds, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for hour_id in sorted(hours):
        first = hour_id * SECONDS
        if first < stop and second < first + SECONDS:
            waiting = hours[hour_id].heads["waiting"][max(0, second - first) : stop - first]
            there = np.flatnonzero(waiting)
            seconds.append(there + max(first, second))
            counts.append(waiting[there].astype(np.int64))
    return np.concatenate(seconds), np.concatenate(counts)
