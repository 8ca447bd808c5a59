"""A copy of all consumer progress and leases, for a checkpoint.

It is taken in the turn that decides the checkpoint, and made into columns in a thread.

There may be a million leases, and as many runs of acknowledged offsets between them.  A turn only
takes references to what holds them: parts of leases, which are copied when they change
(`Leases.frozen`), and two lists of the runs of each queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.log.checkpoint import LEASE, PROGRESS, acked_columns, held_columns
from horolog.ready.leases import Lease
from horolog.ready.ready import Ready

_Place = tuple[int, int, int]  # group, topic, queue
_TOGETHER = 1_024  # leases that become columns in one go
_FIELDS = tuple(
    (name, attrgetter(name)) for name in ("attempt", "grant", "granted_ms", "duration_ms")
)


class ConsumersCopy(NamedTuple):
    """Progress of all groups in all queues, immutable.

    The lists are flat: a tuple for each queue would wake the garbage collector, which would scan
    all of them in the same turn.
    """

    progress: list[int]  # group, topic, queue, floor, next, and so on
    acked: list[tuple[_Place, list[int], list[int]]]  # firsts and stops of runs
    leased: list[int]  # group, topic, queue, count of parts
    parts: list[Mapping[int, Lease]]

    @classmethod
    def of(cls, ready: Ready) -> ConsumersCopy:
        """Copy the present progress and leases."""
        copy = cls([], [], [], [])
        progress, acked, leased, parts = copy
        for (group, topic), queues in ready.progress.items():
            for queue, found in queues.items():
                progress += (group, topic, queue, found.floor, found.next)
                if found.acked:
                    acked.append(((group, topic, queue), *found.acked.copied()))
                if found.leases:
                    held = found.leases.frozen()
                    leased += (group, topic, queue, len(held))
                    parts += held
        return copy

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Build the columns of a checkpoint from the copy."""
        rows = np.array(self.progress, np.uint64).reshape(-1, 5)
        progress = np.empty(len(rows), PROGRESS)
        for i, name in enumerate(PROGRESS.names or ()):
            progress[name] = rows[:, i]
        return {
            "progress": progress,
            **acked_columns(self._runs()),
            "leases": self._leases(),
            **held_columns(self._held()),
        }

    def _runs(self) -> Iterator[tuple[int, ...]]:
        for place, firsts, stops in self.acked:
            for first, stop in zip(firsts, stops, strict=True):
                yield (*place, first, stop)

    def _held(self) -> Iterator[tuple[int, int, int, int, str, int]]:
        parts = iter(self.parts)
        for group, topic, queue, n in zip(*[iter(self.leased)] * 4, strict=True):
            for part in islice(parts, n):
                for offset, lease in part.items():
                    if lease.is_renewed:
                        yield group, topic, queue, offset, lease.client_id, lease.renewable_ms

    def _leases(self) -> npt.NDArray[Any]:
        """Build the lease column, about a thousand rows at a time.

        So this thread never keeps the interpreter for long.
        """
        counts = np.array(self.leased, np.uint32).reshape(-1, 4)
        places = counts[:, :3].repeat(counts[:, 3], axis=0)
        sizes = np.fromiter(map(len, self.parts), np.int64, len(self.parts))
        rows, done, part = np.empty(int(sizes.sum()), LEASE), 0, 0
        while part < len(self.parts):
            stop, size = part, 0
            while stop < len(self.parts) and size < _TOGETHER:
                size += len(self.parts[stop])
                stop += 1
            some = slice(part, stop)
            _fill(
                rows[done : done + size], self.parts[some], places[some].repeat(sizes[some], axis=0)
            )
            done, part = done + size, stop
        return rows


def _fill(
    rows: npt.NDArray[Any], parts: list[Mapping[int, Lease]], places: npt.NDArray[np.uint32]
) -> None:
    """Fill rows with the leases of these parts, column by column."""
    for i, name in enumerate(("group", "topic", "queue")):
        rows[name] = places[:, i]
    rows["offset"] = np.fromiter(chain.from_iterable(parts), np.uint64, len(rows))
    for name, field in _FIELDS:
        leases = chain.from_iterable(part.values() for part in parts)
        rows[name] = np.fromiter(map(field, leases), LEASE[name], len(rows))
