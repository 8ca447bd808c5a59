"""Adopted runs: files written by another program that an ADOPT record makes part of the shard.

Truth: no other file, and not the log, has their messages.  So a rebuild keeps these runs, merges
leave them alone, and they go only when all is handed over and no kept checkpoint lies before their
adoption.

Row r of the file with `first_row` f has the origin (position of the ADOPT record, f + r).  In the
file its origin is (0, r), so an entry is checked as it stands in the file and shown with its real
origin; only the CRC of a record is still started from the origin in the file (`crc_origins`).
Nothing was decided about these messages when they were written, so each row is compared with its
record once more before it is handed over (`agree`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.entry import entry_sums, is_readable
from horolog.delay.far.run import FarRun
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.source import Rows
from horolog.delay.tier import Promotion
from horolog.limits import HOUR_MS
from horolog.log.record import Kind
from horolog.log.stored import MESSAGE, MESSAGE_BYTES

LEVEL = -1
_PREFIX = "adopted."


def adopted_name(stamp: str, place: int) -> str:
    """Return the name of the run that a staged file becomes, without `.run`."""
    return f"{_PREFIX}{stamp}.{place:06d}"


def is_adopted_name(name: str) -> bool:
    """Return whether a name under `runs` is that of an adopted run's file."""
    return name.startswith(_PREFIX) and name.endswith(".run")


def stamp_of(name: str) -> str:
    """Return the transaction of an adopted file from its name (`broker.adopt.staging.Begun`)."""
    return name.split(".")[1]


def rows_within(origin_rows: npt.NDArray[Any], first_row: int, count: int) -> Rows:
    """Return the row within a file of each row of its adoption, −1 for rows of other files."""
    rows = origin_rows.astype(np.int64) - first_row
    return np.where((rows >= 0) & (rows < count), rows, -1)


class AdoptedFile(NamedTuple):
    """One file of an ADOPT record.

    name   as in `runs`, without `.run`
    crc32  of the file's footer
    """

    name: str
    rows: int
    bytes: int
    first_ms: int
    last_ms: int
    crc32: int
    first_row: int

    @property
    def as_run(self) -> RunInfo:
        """The file as a run."""
        return RunInfo(self.name, self.rows, self.bytes, self.first_ms, self.last_ms)


class Adoption(NamedTuple):
    """The content of an ADOPT record, and its log position."""

    position: int
    app: str
    version: int
    topic: int
    queues: int  # queues of the topic, at that time
    rows: int
    files: list[AdoptedFile]
    fingerprint: str = ""  # "": the writer had none

    @property
    def promotion(self) -> Promotion | None:
        """The hour that comes back from a tier, if the adoption is a promotion."""
        return Promotion.of(self.app, self.version)

    def fields(self) -> dict[str, Any]:
        """Return the record's JSON."""
        fields = self._asdict()
        del fields["position"]
        if not self.fingerprint:
            del fields["fingerprint"]
        return {**fields, "files": [file._asdict() for file in self.files]}

    def runs(self, without: Collection[str]) -> Iterator[tuple[RunInfo, Provenance]]:
        """Yield the files as runs, without those of these names.

        The files are not opened: the commit of the adoption has checked them.
        """
        for file in self.files:
            if file.name not in without:
                yield (
                    file.as_run,
                    Provenance(self.position, file.first_row, self.queues, self.topic),
                )

    @staticmethod
    def of(position: int, fields: dict[str, Any]) -> Adoption:
        """Build an adoption from its position and the record's JSON."""
        files = [AdoptedFile(**file) for file in fields["files"]]
        return Adoption(position, **{**fields, "files": files})


class Provenance(NamedTuple):
    """What an ADOPT record states of all rows of a run; each row's origin follows from it.

    position   log position of the record
    first_row  the row in the adoption of the run's first row
    queues     how many the topic had
    topic      id of the topic
    """

    position: int
    first_row: int
    queues: int
    topic: int

    @staticmethod
    def of(row: dict[str, Any]) -> Provenance | None:
        """Parse the provenance from a run's row in a checkpoint's registry; None: not adopted."""
        if "position" not in row:
            return None
        return Provenance(*(row[name] for name in Provenance._fields))


class AdoptedRun(FarRun):
    """A run in use whose rows are shown with the origins that its adoption gave them."""

    def __init__(
        self, info: RunInfo, source_id: int, open_run: Callable[[str], Run], provenance: Provenance
    ) -> None:
        super().__init__(info, source_id, LEVEL, open_run)
        self.provenance = provenance

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """Return ENTRY rows with their real origins; a damaged row keeps a wrong sum."""
        entries = self.file.entries(rows)
        good = is_readable(entries)
        entries["origin"] = self.provenance.position
        entries["row"] += np.uint32(self.provenance.first_row)
        sums = entry_sums(entries)
        entries["sum"] = np.where(good, sums, ~sums)
        return entries

    def crc_origins(self, entries: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the start values of the CRCs of these entries' records: origins in the file."""
        rows = entries["row"] - np.uint32(self.provenance.first_row)
        return np.zeros(len(entries), np.uint64), rows

    def agree(
        self, entries: npt.NDArray[Any], records: Sequence[memoryview]
    ) -> npt.NDArray[np.bool_]:
        """Return which records are scheduled messages as their entries state, of valid queues."""
        good = np.array(
            [
                len(record) == size
                for record, size in zip(records, entries["size"].tolist(), strict=True)
            ],
            bool,
        )
        good &= entries["size"] >= MESSAGE_BYTES
        rows = np.flatnonzero(good)
        if not len(rows):
            return good
        fronts = b"".join(records[row][:MESSAGE_BYTES] for row in rows.tolist())
        found = np.frombuffer(fronts, MESSAGE)
        heads, queues = found["head"], found["stored"]["queue_id"]
        same = heads["kind"] == Kind.SCHEDULED
        for name in ("size", "due_ms", "topic", "key"):
            same &= heads[name] == entries[name][rows]
        same &= (queues >= 0) & (queues < self.provenance.queues)
        good[rows] = same
        return good

    def waiting_by_topic(self) -> dict[int, int]:
        """Count the waiting messages by topic id; with one topic, the file need not be opened."""
        return {self.provenance.topic: self.waiting} if self.waiting > 0 else {}

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """Return (hours, counts) of waiting messages, ascending.

        A run of a single hour is counted without opening its file.
        """
        if topic not in (None, self.provenance.topic) or self.waiting <= 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first, last = self.info.first_ms // HOUR_MS, self.info.last_ms // HOUR_MS
        if first < last:
            return super().waiting_by_hour(topic)
        return np.array([first]), np.array([self.waiting])

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Return the row of each origin, −1 where it is not of this run.

        The row follows from the row of the origin, so no entry is read.
        """
        del due_ms  # not needed, so a damaged row is found too
        found = np.full(len(origin), -1, np.int64)
        mine = np.flatnonzero(origin == np.uint64(self.provenance.position))
        if len(mine) and origin_rows is not None:
            first_row = self.provenance.first_row
            found[mine] = rows_within(origin_rows[mine], first_row, self.info.rows)
        return found


class Missing:
    """A file of an adoption that a replay does not find, or cannot open.

    In a log that begins at 0 this is correct if all its rows were handed over before the file was
    removed; `left` counts the rows that the log does not settle.
    """

    def __init__(self, adoption: Adoption, file: AdoptedFile, why: str) -> None:
        self.file = file
        self.position = adoption.position
        self.left = file.rows
        self.why = why

    def damaged(self) -> Damaged:
        """Describe what is set aside when some of the file's rows wait."""
        file = self.file
        hours = file.first_ms // HOUR_MS, file.last_ms // HOUR_MS
        names = (f"{file.name}.run",)
        return Damaged("runs", file.name, names, self.why, self.left, *hours, are_files=True)

    def settle(
        self, origin: npt.NDArray[np.uint64], origin_rows: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """Return which origins are rows of the file; these rows are settled and not missed."""
        rows = rows_within(origin_rows, self.file.first_row, self.file.rows)
        mine: npt.NDArray[np.bool_] = (origin == np.uint64(self.position)) & (rows >= 0)
        self.left -= int(mine.sum())
        return mine
