"""Check of consume queues: every unit points to the message with its topic, queue and offset.

The log gives the order: its messages come in the order of their queue offsets, so each queue's
files are read once, front to back.  Units without a message in the log are found at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import queue_ids, queue_offsets
from horolog.limits import QUEUE_FILE_UNITS
from horolog.log.queue_names import queue_dir_name, queue_file_name
from horolog.log.queue_unit import ROTTEN_CODE, UNIT, UNIT_BYTES, UnitsPlace, units_of, unseal
from horolog.log.record import Kind
from horolog.verify.holes import Holes
from horolog.verify.reading import Reading
from horolog.verify.records import Records

_WINDOW_UNITS = 2_048
_WINDOWS_MAX = 1_024  # 40 MiB


class _Window(NamedTuple):
    first: int
    units: npt.NDArray[Any]


class QueueCheck:
    """Comparison of queues with the log, frame by frame.

    lengths  (topic, queue) → units that the newest checkpoint names; later units are not checked
    firsts   (topic, queue) → first offset whose message the log still has; earlier units are not
             checked
    dropped  topics that were deleted: their messages are in no queue
    holes    of the log, as far as it has been read: units may point into a hole
    """

    def __init__(
        self,
        reading: Reading,
        place: str,
        lengths: dict[tuple[int, int], int],
        firsts: dict[tuple[int, int], int],
        holes: Holes,
        dropped: frozenset[int],
    ) -> None:
        self._reading = reading
        self._place = place
        self._lengths = lengths
        self._firsts = firsts
        self._holes = holes
        self._dropped = np.array(sorted(dropped), np.uint32)
        self.lost = 0  # units whose messages lie in holes of the log
        self._next: dict[tuple[int, int], int] = {}  # offset that the log's next message must have
        self._windows: OrderedDict[tuple[int, int], _Window] = OrderedDict()

    def take(self, records: Records) -> None:
        """Compare the messages of one frame."""
        in_queue = records.heads["kind"] != Kind.SCHEDULED
        if len(self._dropped):
            in_queue &= ~np.isin(records.heads["topic"], self._dropped)
        rows = np.flatnonzero(in_queue)
        if not len(rows):
            return
        at, heads = records.at[rows], records.heads[rows]
        queues = queue_ids(records.raw, at)
        offsets = queue_offsets(records.raw, at)
        units = units_of(heads, at + records.base)
        both = (heads["topic"].astype(np.int64) << 32) | queues
        for key in np.unique(both).tolist():
            mine = np.flatnonzero(both == key)
            self._compare((key >> 32, key & 0xFFFFFFFF), offsets[mine], units[mine])

    def _path(self, queue: tuple[int, int], offset: int) -> str:
        first = offset - offset % QUEUE_FILE_UNITS
        return f"{self._place}/{queue_dir_name(*queue)}/{queue_file_name(first)}"

    def _compare(
        self, queue: tuple[int, int], offsets: npt.NDArray[np.int64], units: npt.NDArray[Any]
    ) -> None:
        first = int(offsets[0])
        expected = self._next.get(queue, self._firsts.get(queue, 0))
        if first > expected:
            self._check_gap(queue, expected, first)
        elif first < expected:
            self._add_finding(queue, first, f"the log has it after offset {expected}")
        if not bool((np.diff(offsets) == 1).all()):
            self._add_finding(
                queue, first, "the log has queue offsets that do not follow each other"
            )
        self._next[queue] = int(offsets[-1]) + 1
        at = 0
        while at < len(offsets):
            found = self._units(queue, int(offsets[at]), len(offsets) - at)
            if not len(found):
                return
            same = found == units[at : at + len(found)]
            for row in np.flatnonzero(~same).tolist():
                unit, wanted = found[row].tolist(), units[at + row].tolist()
                rotten = unit[2] == ROTTEN_CODE
                says = "does not pass its check" if rotten else f"says {unit}"
                self._add_finding(queue, int(offsets[at + row]), f"{says}, the log says {wanted}")
            at += len(found)

    def _add_finding(self, queue: tuple[int, int], offset: int, what: str) -> None:
        self._reading.findings.add(
            self._path(queue, offset), offset, f"unit of queue offset {offset}: {what}"
        )

    def _units(self, queue: tuple[int, int], offset: int, count: int) -> npt.NDArray[Any]:
        """Return units from `offset` on, at least one; none after the named length."""
        window = self._windows.get(queue)
        if window is None or not window.first <= offset < window.first + len(window.units):
            window = _Window(offset, self._load(queue, offset))
            self._windows[queue] = window
            if len(self._windows) > _WINDOWS_MAX:
                self._windows.popitem(last=False)
        self._windows.move_to_end(queue)
        start = offset - window.first
        return window.units[start : start + count]

    def _load(self, queue: tuple[int, int], offset: int) -> npt.NDArray[Any]:
        first = offset - offset % QUEUE_FILE_UNITS
        stop = min(self._lengths.get(queue, 0), first + QUEUE_FILE_UNITS, offset + _WINDOW_UNITS)
        if stop <= offset:
            return np.empty(0, UNIT)
        path = self._path(queue, offset)
        with self._reading.part(path):
            file = self._reading.storage.open(path)
            try:
                raw = file.read((offset - first) * UNIT_BYTES, (stop - offset) * UNIT_BYTES)
            finally:
                file.close()
            self._reading.tick(path, len(raw))
            units = unseal(raw, UnitsPlace(*queue, offset)).units
            if len(units) < stop - offset:
                self._add_finding(
                    queue,
                    offset + len(units),
                    "is missing: the file is shorter than its checkpoint says",
                )
            return units
        return np.empty(0, UNIT)

    def _check_gap(self, queue: tuple[int, int], at: int, stop: int) -> None:
        """Check units without a message in the log: they are holes or point into holes."""
        first, lost = at, self.lost
        while at < stop:
            units = self._units(queue, at, stop - at)
            if not len(units):
                break
            hidden = (units["size"] != 0) & self._holes.contains(units["position"])
            self.lost += int(hidden.sum())
            for row in np.flatnonzero((units["size"] != 0) & ~hidden).tolist():
                self._add_finding(
                    queue, at + row, f"the log has no message for {units[row].tolist()}"
                )
            at += len(units)
        if self.lost > lost:
            self._reading.findings.note(
                f"{self._place}/{queue_dir_name(*queue)}: {self.lost - lost} of the queue offsets"
                f" {first} to {at - 1} cannot be read: their messages lie in holes of the log"
            )

    def finish(self) -> None:
        """Check, once the log has been read, that queues end where the log does.

        Every unit up to that end must have a message.
        """
        for queue, length in sorted(self._lengths.items()):
            offset = self._next.get(queue, self._firsts.get(queue, 0))
            if offset < length:
                self._check_gap(queue, offset, length)
            elif offset > length:
                self._add_finding(
                    queue, length, f"the checkpoint names {length} units, the log has {offset}"
                )
        for queue in sorted(self._next.keys() - self._lengths.keys()):
            self._add_finding(
                queue, 0, "the log has messages for a queue that the checkpoint does not name"
            )
