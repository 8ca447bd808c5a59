"""Check of the log key index: rows, chains, heads, and the keys of exactly all messages.

Rows are in the order of the log, as in the consume queues, so the index is read once, front to
back, beside the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.log.file_names import number_of
from horolog.log.key_rows import (
    BLOCK,
    HEADER_BYTES,
    NOTHING_BEFORE,
    ROW_BYTES,
    ChunkHeader,
    blocks_of,
    chunk_name,
    decode_header,
    intact,
    sealed_bytes,
)
from horolog.verify.holes import Holes
from horolog.verify.reading import Reading, Source

_BATCH_ROWS = 16_384


class _Rows(NamedTuple):
    """Rows of the index in order; `good` where the sum is right."""

    path: str
    first: int
    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.uint64]
    good: npt.NDArray[np.bool_]


class KeyIndexCheck:
    """Comparison of the index with the log, frame by frame.

    captured  the index as the newest checkpoint describes it
    start     where the log begins: rows of earlier messages cannot be compared
    holes     of the log, as far as it has been read: rows that point into a hole cannot be compared
              either
    """

    def __init__(
        self,
        reading: Reading,
        place: str,
        captured: dict[str, int],
        *,
        log_id: int,
        start: int,
        holes: Holes,
    ) -> None:
        self._reading = reading
        self._place = place
        self._rows = captured.get("rows", 0)
        self._sealed = captured.get("sealed", 0)
        self._log_id = log_id
        self._start = start
        self._holes = holes
        self._complete = True
        self._stream = self._batches()
        first = next(self._stream, None)  # read now, since the index may turn out to begin later
        self._left: list[_Rows] = [] if first is None else [first]

    def take(
        self, end: int, keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]
    ) -> None:
        """Compare the index with the keys of a frame that ends at log position `end`."""
        at = int(np.searchsorted(positions, np.uint64(self._start)))
        for rows in self._below(end):
            mine = self._comparable(rows)
            n = int(mine.sum())
            same = np.zeros(n, bool)
            there = max(0, min(n, len(keys) - at))
            same[:there] = (rows.keys[mine][:there] == keys[at : at + there]) & (
                rows.positions[mine][:there] == positions[at : at + there]
            )
            wrong = np.flatnonzero(~same & rows.good[mine])
            if len(wrong):
                number = rows.first + int(np.flatnonzero(mine)[wrong[0]])
                self._add_finding(rows.path, number, "is not what the log says")
            at += n
        if at < len(keys) and self._complete:
            self._add_finding(
                self._place, 0, f"a key of the message at {int(positions[at])} is missing"
            )

    def finish(self) -> None:
        """Report rows that are left when the whole log has been read."""
        for rows in self._below(NOTHING_BEFORE):
            later = np.flatnonzero(rows.good & self._comparable(rows))
            if len(later) and not self._reading.quick:
                number = rows.first + int(later[0])
                self._add_finding(rows.path, number, "the log has no message for it")

    def _comparable(self, rows: _Rows) -> npt.NDArray[np.bool_]:
        """Return which rows are of messages that the log has."""
        return (rows.positions >= np.uint64(self._start)) & ~self._holes.contains(rows.positions)

    def _add_finding(self, path: str, row: int, what: str) -> None:
        self._reading.findings.add(path, row, f"row {row}: {what}")

    def _below(self, end: int) -> Iterator[_Rows]:
        """Take the rows that point below a log position."""
        while True:
            if not self._left:
                rows = next(self._stream, None)
                if rows is None:
                    return
                self._left.append(rows)
            rows = self._left.pop()
            cut = int(np.searchsorted(rows.positions, np.uint64(end)))
            if cut:
                yield _part(rows, 0, cut)
            if cut < len(rows.keys):
                self._left.append(_part(rows, cut, len(rows.keys)))
                return

    # --- reading ----------------------------------------------------------------------------------

    def _batches(self) -> Iterator[_Rows]:
        after: int | None = None
        for name in self._reading.storage.list(self._place):
            path = f"{self._place}/{name}"
            number = number_of(name, "keys")
            if number is not None and number >= self._rows:
                self._reading.findings.note(
                    f"{path}: no checkpoint names its rows; a start removes it"
                )
                continue
            with self._reading.part(path), self._reading.source(path) as file:
                header = decode_header(file.read(0, HEADER_BYTES))
                if header is None or (header.log_id, chunk_name(header.first)) != (
                    self._log_id,
                    name,
                ):
                    self._reading.findings.add(path, 0, "is not an intact chunk of this key index")
                    continue
                if after is None and header.before != NOTHING_BEFORE:
                    self._begin_after(path, header.before)
                if after is not None and header.first != after:
                    self._add_finding(
                        path, after, f"is missing: the chunk begins with {header.first}"
                    )
                after = header.first + header.capacity
                yield from self._chunk(file, header)
        if self._rows and (after is None or after < self._rows):
            self._end_early(self._place, after or 0)

    def _end_early(self, path: str, row: int) -> None:
        """Note an index with fewer rows than the checkpoint names; a start rebuilds it.

        A process leaves such an index when it ends while it rebuilds the index.
        """
        self._complete = False
        self._reading.findings.note(
            f"{path}: the index ends at row {row}, its checkpoint names {self._rows}; a start "
            "rebuilds it"
        )

    def _begin_after(self, path: str, before: int) -> None:
        """Note an index that begins later than the log; a start rebuilds it.

        Chunks are dropped before the checkpoint that says so is durable.
        """
        if before >= self._start:
            self._start = before + 1
            self._reading.findings.note(
                f"{path}: the index begins after log position {before}; a start rebuilds it"
            )

    def _chunk(self, file: Source, header: ChunkHeader) -> Iterator[_Rows]:
        count = min(header.capacity, self._rows - header.first)
        sealed = header.first + header.capacity <= self._sealed
        heads = np.zeros(header.capacity, np.uint32)
        shift = np.uint64(64 - (header.capacity.bit_length() - 1))
        before, whole = header.before, True
        for first in range(0, count, _BATCH_ROWS):
            n = min(_BATCH_ROWS, count - first)
            raw = file.read(HEADER_BYTES + ROW_BYTES * first, ROW_BYTES * n)
            if len(raw) < ROW_BYTES * n:
                self._end_early(file.path, header.first + first)
                return
            words = np.frombuffer(raw, "<u8").reshape(n, 3)
            places = np.arange(first + 1, first + n + 1, dtype=np.uint32)
            good, rows = intact(words, places)
            for row in np.flatnonzero(~good).tolist():
                self._add_finding(file.path, header.first + first + row, "its sum is wrong")
            whole = whole and bool(good.all())
            if whole:
                self._follow_chains(file.path, header.first + first, rows, places, heads, shift)
            positions = rows[:, 1]
            if not whole:  # keep positions ascending in spite of a damaged one
                positions = np.maximum.accumulate(np.where(good, positions, 0))
            elif n and before != NOTHING_BEFORE and int(positions[0]) < before:
                self._add_finding(
                    file.path, header.first + first, "points before the row before it"
                )
            before = int(positions[-1])
            yield _Rows(file.path, header.first + first, rows[:, 0], positions, good)
        if sealed:
            self._check_heads(file, header, heads if whole else None)

    def _follow_chains(
        self,
        path: str,
        first: int,
        rows: npt.NDArray[np.uint64],
        places: npt.NDArray[np.uint32],
        heads: npt.NDArray[np.uint32],
        shift: np.uint64,
    ) -> None:
        """Check that each row names the row before it in its slot; update `heads`."""
        slots = (
            (rows[:, 0] >> shift).astype(np.int64)
            if len(heads) > 1
            else np.zeros(len(rows), np.int64)
        )
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        previous = np.append(np.uint32(0), places[order][:-1])
        begins = np.append(True, ordered[1:] != ordered[:-1])
        previous[begins] = heads[ordered[begins]]
        wrong = order[rows[:, 2][order] != previous]
        for row in np.sort(wrong).tolist():
            self._add_finding(path, first + row, "does not name the row before it in its slot")
        heads[slots] = places  # the last row of a slot stays

    def _check_heads(
        self, file: Source, header: ChunkHeader, heads: npt.NDArray[np.uint32] | None
    ) -> None:
        capacity = header.capacity
        at = HEADER_BYTES + ROW_BYTES * capacity
        if file.size < sealed_bytes(capacity):
            self._end_early(file.path, header.first + capacity)
            return
        blocks = blocks_of(capacity)
        crcs = file.read(at + 4 * capacity, 4 * blocks + 4)
        if crc32(crcs[:-4]) != int.from_bytes(crcs[-4:], "little"):
            self._reading.findings.add(file.path, at + 4 * capacity, "its block CRCs are damaged")
            return
        for block in range(blocks):
            size = 4 * min(BLOCK, capacity - block * BLOCK)
            content = file.read(at + 4 * BLOCK * block, size)
            stored: Any = np.frombuffer(content, "<u4")
            crc = int.from_bytes(crcs[4 * block : 4 * block + 4], "little")
            mine = None if heads is None else heads[block * BLOCK : block * BLOCK + len(stored)]
            if crc32(content) != crc or (mine is not None and not bool((stored == mine).all())):
                self._reading.findings.add(
                    file.path, at + 4 * BLOCK * block, f"block {block} of its heads is damaged"
                )


def _part(rows: _Rows, start: int, stop: int) -> _Rows:
    return _Rows(
        rows.path,
        rows.first + start,
        rows.keys[start:stop],
        rows.positions[start:stop],
        rows.good[start:stop],
    )
