"""What consumers have taken, as it was when a checkpoint was decided: copied in that turn, made columns of in a thread.

There may be a million leases, and as many runs of what was acknowledged between them.  A turn only takes hold of what they
stand in: parts of leases that are copied when they change (`Leases.frozen`), and two lists of the runs of each queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.log.checkpoint import LEASE, PROGRESS, acked_columns
from horolog.ready.leases import Lease
from horolog.ready.ready import Ready

_Place = tuple[int, int, int]  # group, topic, queue
_TOGETHER = 1_024  # leases of which columns are made in one go
_FIELDS = tuple(
    (name, attrgetter(name)) for name in ("attempt", "grant", "granted_ms", "duration_ms")
)


class ConsumersCopy(NamedTuple):
    """Progress of all groups in all queues; nothing of it changes any more."""

    progress: list[tuple[int, int, int, int, int]]  # a place, its floor and its next
    acked: list[tuple[_Place, list[int], list[int]]]  # firsts and stops of runs
    leased: list[tuple[_Place, list[Mapping[int, Lease]]]]

    @classmethod
    def of(cls, ready: Ready) -> ConsumersCopy:
        """Take hold of it as it is now."""
        copy = cls([], [], [])
        progress, acked, leased = copy
        for (group, topic), queues in ready.progress.items():
            for queue, found in queues.items():
                progress.append((group, topic, queue, found.floor, found.next))
                if found.acked:
                    acked.append(((group, topic, queue), *found.acked.copied()))
                if found.leases:
                    leased.append(((group, topic, queue), found.leases.frozen()))
        return copy

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of a checkpoint that say it."""
        return {
            "progress": np.array(self.progress, PROGRESS),
            **acked_columns(self._runs()),
            "leases": self._leases(),
        }

    def _runs(self) -> Iterator[tuple[int, ...]]:
        for place, firsts, stops in self.acked:
            for first, stop in zip(firsts, stops, strict=True):
                yield (*place, first, stop)

    def _leases(self) -> npt.NDArray[Any]:
        """A thousand or so at a time, so that this thread never keeps the interpreter for long."""
        parts = [(place, part) for place, held in self.leased for part in held]
        rows, at = np.empty(sum(len(part) for _, part in parts), LEASE), 0
        some: list[tuple[_Place, Mapping[int, Lease]]] = []
        size = 0
        for each in parts:
            some.append(each)
            size += len(each[1])
            if size >= _TOGETHER:
                _fill(rows[at : at + size], some)
                at, size, some = at + size, 0, []
        _fill(rows[at:], some)
        return rows


def _fill(rows: npt.NDArray[Any], parts: list[tuple[_Place, Mapping[int, Lease]]]) -> None:
    """Column by column."""
    counts = np.fromiter((len(part) for _, part in parts), np.int64, len(parts))
    for i, name in enumerate(("group", "topic", "queue")):
        of_parts = np.fromiter((place[i] for place, _ in parts), np.uint32, len(parts))
        rows[name] = of_parts.repeat(counts)
    offsets = chain.from_iterable(part for _, part in parts)
    rows["offset"] = np.fromiter(offsets, np.uint64, len(rows))
    for name, field in _FIELDS:
        leases = chain.from_iterable(part.values() for _, part in parts)
        rows[name] = np.fromiter(map(field, leases), LEASE[name], len(rows))
