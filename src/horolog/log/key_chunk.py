"""A chunk of the log key index: one file, open for more rows or sealed.  Its format: `key_rows`.

Rows are appended without sync until a checkpoint names the row count.  A full chunk is sealed step
by step: each batch writes some of its heads, so that no call takes long; the heads stay in memory
until all of them are written.

Every row is checked when a look-up follows a chain through it, heads by blocks when they are first
used in the file.  A chunk that fails a check is searched by reading all its rows; rows with a wrong
sum are left out, and the damage is reported.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.log.key_merge import equal_ranges
from horolog.log.key_rows import (
    BLOCK,
    CRC,
    HEADER_BYTES,
    ROW_BYTES,
    ROW_STRUCT,
    ChunkHeader,
    Keys,
    Pairs,
    Positions,
    Words,
    blocks_of,
    chunk_name,
    encode_header,
    intact,
    row_sums,
    sealed_bytes,
    sum_of,
)
from horolog.storage.api import File, Storage
from horolog.storage.mapped import is_cut, whole_view
from horolog.storage.sectors import read_around

SCAN_ROWS = 65_536  # rows read at once
_SEAL_BLOCKS = 16  # blocks of heads written in one step


class Chunk:
    """One chunk: open (heads in memory, rows can be added) or sealed (everything in the file)."""

    def __init__(self, storage: Storage, directory: str, header: ChunkHeader) -> None:
        self.header = header
        self.path = f"{directory}/{chunk_name(header.first)}"
        self.count = 0  # rows in the file
        self.last = header.before  # log position of the last row
        self.damage = ""  # the damage found so far, as a sentence
        self._storage = storage
        self._shift = 64 - (header.capacity.bit_length() - 1)  # a slot is the upper bits of a key
        self._file: File | None = None
        self._heads: npt.NDArray[np.uint32] | None = None  # of an open chunk
        self._view = memoryview(b"")  # of a sealed chunk, mapped
        self._mapped_heads: memoryview | None = None
        self._block_crcs: list[int] = []  # of the blocks of heads written so far by `seal`
        self._crcs = memoryview(b"")  # of a sealed chunk: block CRCs and trailer CRC
        self._unchecked: npt.NDArray[np.bool_] | None = None  # by block of heads in the file

    # --- life -----------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the file of an empty chunk."""
        self._storage.remove(self.path)  # never cut a file that may be mapped
        file = self._storage.open(self.path, create=True)
        try:
            file.write(0, encode_header(self.header))
        except BaseException:
            file.close()
            raise
        self._file = file
        self._heads = np.zeros(self.header.capacity, np.uint32)

    def resume(self, count: int) -> bool:
        """Open the chunk at start with its first `count` rows; False if they are not intact."""
        file = self._file = self._storage.open(self.path)
        self._heads = np.zeros(self.header.capacity, np.uint32)
        while self.count < count:
            n = min(count - self.count, SCAN_ROWS)
            raw = read_around(file, HEADER_BYTES + ROW_BYTES * self.count, ROW_BYTES * n)
            if len(raw) < ROW_BYTES * n:
                return False
            words = np.frombuffer(raw, "<u8").reshape(n, 3)
            places = self._next_places(n)
            if not bool(intact(words, places)[0].all()):
                return False
            self._heads[self._slots(words[:, 0])] = places  # the last row of a slot wins
            self.count += n
            self.last = int(words[-1, 1])
        return True

    def resume_sealed(self) -> bool:
        """Open a sealed chunk at start; False if the file is too short or its last row damaged."""
        capacity = self.header.capacity
        file = self._storage.open(self.path)
        try:
            if file.size() < sealed_bytes(capacity):
                return False
            row = read_around(file, HEADER_BYTES + ROW_BYTES * (capacity - 1), ROW_BYTES)
        finally:
            file.close()
        last, rows = intact(np.frombuffer(row, "<u8").reshape(1, 3), np.array([capacity]))
        if not bool(last[0]):
            return False
        self.count = capacity
        self.last = int(rows[0, 1])
        self._unchecked = np.ones(blocks_of(capacity), np.bool_)
        return True

    @property
    def is_open(self) -> bool:
        """Whether the chunk is not sealed yet."""
        return self._file is not None

    @property
    def room(self) -> int:
        """Count of rows that can still be added."""
        return self.header.capacity - self.count

    def unmap(self) -> None:
        """Drop the mapped view of a sealed chunk; the next look-up maps the file again."""
        if self._file is None:
            self._heads = self._mapped_heads = None
            self._view = self._crcs = memoryview(b"")

    def close(self) -> None:
        """Close the file without a sync: unsynced rows stay with the operating system."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.unmap()

    # --- adding ---------------------------------------------------------------------------------

    def _slots(self, keys: Keys) -> npt.NDArray[np.int64]:
        return (keys >> np.uint64(self._shift)).astype(np.int64)

    def _next_places(self, n: int) -> npt.NDArray[np.uint32]:
        return np.arange(self.count + 1, self.count + n + 1, dtype=np.uint32)

    def add(self, keys: Keys, positions: Positions) -> None:
        """Append at most `room` rows; if the disk fails, the chunk is unchanged."""
        assert self._heads is not None
        assert self._file is not None
        slots = self._slots(keys)
        places = self._next_places(len(keys))
        former = self._heads[slots]
        self._heads[slots] = places
        previous = former
        if not bool((self._heads[slots] == places).all()):
            previous = former.copy()
            _link(previous, slots, places)
        rows = np.empty((len(keys), 3), np.uint64)
        rows[:, 0], rows[:, 1], rows[:, 2] = keys, positions, previous
        rows[:, 2] |= row_sums(rows, places) << np.uint64(32)
        try:
            self._file.write(HEADER_BYTES + ROW_BYTES * self.count, rows.tobytes())
        except BaseException:
            self._heads[slots] = former
            raise
        self.count += len(keys)
        self.last = int(positions[-1])

    def seal(self) -> bool:
        """Write the next blocks of heads after the rows; True once the chunk is sealed."""
        assert self._heads is not None
        assert self._file is not None
        capacity = self.header.capacity
        first = BLOCK * len(self._block_crcs)
        heads = self._heads[first : first + BLOCK * _SEAL_BLOCKS].astype("<u4").tobytes()
        at = HEADER_BYTES + ROW_BYTES * capacity
        self._file.write(at + 4 * first, heads)
        blocks = [heads[i : i + 4 * BLOCK] for i in range(0, len(heads), 4 * BLOCK)]
        self._block_crcs += [crc32(block) for block in blocks]
        if len(self._block_crcs) < blocks_of(capacity):
            return False
        crcs = np.array(self._block_crcs, "<u4").tobytes()
        try:
            self._file.write(at + 4 * capacity, crcs + CRC.pack(crc32(crcs)))
        except BaseException:
            del self._block_crcs[-1]
            raise
        self._unchecked = np.ones(blocks_of(capacity), np.bool_)
        self.close()
        return True

    # --- finding --------------------------------------------------------------------------------

    def find_few(self, keys: list[int]) -> list[tuple[int, int]]:
        """Find a few keys like `find_many`, in plain Python, which is faster for few."""
        heads, view = self._columns()
        shift = self._shift
        if self.damage or not self._heads_intact(heads, {(key >> shift) // BLOCK for key in keys}):
            return self._pairs(keys)
        found = []
        for i, key in enumerate(keys):
            place = heads[key >> shift]
            if place > self.count:
                return self._pairs(keys)
            while place:
                at = HEADER_BYTES + ROW_BYTES * (place - 1)
                row_key, position, previous, row_sum = ROW_STRUCT.unpack_from(view, at)
                if row_sum != sum_of(row_key, position, previous, place):
                    return self._pairs(keys)
                if row_key == key:
                    found.append((i, position))
                place = previous
        return found

    def _pairs(self, keys: list[int]) -> list[tuple[int, int]]:
        at, positions = self.find_many(np.array(keys, np.uint64))
        return list(zip(at.tolist(), positions.tolist(), strict=True))

    def find_many(self, keys: Keys) -> Pairs:
        """Return (index in `keys`, log position) of the rows with any of these keys, unordered."""
        heads, view = self._columns()
        words = self._words(view)
        slots = self._slots(keys)
        if self.damage or not self._heads_intact(heads, set((slots // BLOCK).tolist())):
            return _scan(words, keys)
        places = np.frombuffer(heads, "<u4")[slots].astype(np.int64)
        if bool((places > self.count).any()):
            self.damage = f"{self.path}: its heads are damaged"
            return _scan(words, keys)
        at = np.flatnonzero(places)
        places = places[at]
        found, positions = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        while len(at):
            good, passed = intact(words.take(places - 1, axis=0), places)
            if not bool(good.all()):
                self.damage = f"{self.path}: row {int(places[~good][0])} is damaged"
                return _scan(words, keys)
            hit = passed[:, 0] == keys[at]
            if bool(hit.any()):
                found.append(at[hit])
                positions.append(passed[hit, 1])
            places = passed[:, 2].astype(np.int64)
            on = np.flatnonzero(places)
            at, places = at[on], places[on]
        return np.concatenate(found), np.concatenate(positions)

    def read_keys(self, first: int) -> Keys:
        """Return the keys of at most 65 536 rows from place `first` (counted from 0) on."""
        keys: Keys = self._words(self._columns()[1])[first : first + SCAN_ROWS, 0]
        return keys

    def first_at(self, position: int) -> int:
        """Return the place (counted from 0) of the first row at or above a log position."""
        positions = self._words(self._columns()[1])[:, 1]
        return int(positions.searchsorted(np.uint64(position)))

    def _columns(self) -> tuple[memoryview, memoryview]:
        """Return the heads (as u32) and a view of the file; map a sealed chunk if needed."""
        if self._file is not None:
            assert self._heads is not None
            return self._heads.data, self._whole(self._file, HEADER_BYTES + ROW_BYTES * self.count)
        if self._mapped_heads is None or is_cut(self._view):
            file = self._storage.open(self.path)
            try:
                self._view = self._whole(file, sealed_bytes(self.header.capacity))
            finally:
                file.close()
            capacity = self.header.capacity
            after = HEADER_BYTES + ROW_BYTES * capacity
            self._mapped_heads = self._view[after : after + 4 * capacity].cast("I")
            self._crcs = self._view[after + 4 * capacity :]
        return self._mapped_heads, self._view

    def _whole(self, file: File, size: int) -> memoryview:
        view, cut = whole_view(file, size)
        if cut:
            self.damage = f"{self.path}: it was cut while the broker ran"
        return view

    def _words(self, view: memoryview) -> Words:
        return np.frombuffer(view, "<u8", 3 * self.count, HEADER_BYTES).reshape(-1, 3)

    def _heads_intact(self, heads: memoryview, blocks: set[int]) -> bool:
        """Check blocks of heads in the file against their CRC at first use; True if intact."""
        if self._unchecked is None:
            return True
        fresh = [block for block in blocks if self._unchecked[block]]
        if not fresh:
            return True
        table = self._crcs[: 4 * blocks_of(self.header.capacity)]
        good = self._crcs[len(table) : len(table) + 4] == CRC.pack(crc32(table))
        for block in fresh:
            part = heads[block * BLOCK : (block + 1) * BLOCK].tobytes()
            good = good and table[4 * block : 4 * block + 4] == CRC.pack(crc32(part))
            self._unchecked[block] = not good
        if not good:
            self.damage = f"{self.path}: its heads are damaged"
        return good


def _link(
    previous: npt.NDArray[np.uint32],
    slots: npt.NDArray[np.int64],
    places: npt.NDArray[np.uint32],
) -> None:
    """Chain the rows of one batch that share a slot: set `previous` of each to the place before."""
    bits = len(slots).bit_length()
    ordered = np.sort(slots << bits | np.arange(len(slots)))  # numbers sort faster than argsort
    same = np.flatnonzero(ordered[1:] >> bits == ordered[:-1] >> bits)
    row = ordered & (1 << bits) - 1
    previous[row[same + 1]] = places[row[same]]


def _scan(words: Words, keys: Keys) -> Pairs:
    """Search all rows for keys, as `find_many` returns them; trust no heads and no chains."""
    order = np.argsort(keys, kind="stable")
    wanted = keys[order]
    found, positions = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for first in range(0, len(words), SCAN_ROWS):
        part = words[first : first + SCAN_ROWS]
        row, at = equal_ranges(wanted, part[:, 0])
        good, rows = intact(part[row], row + (first + 1))
        found.append(order[at[good]])
        positions.append(rows[good, 1])
    return np.concatenate(found), np.concatenate(positions)
