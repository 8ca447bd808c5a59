"""The log key index: maps message ids and user keys to log positions.  Rebuilt from the commit log.

Every record that holds a message has rows {key, log position}: one under the hash of (topic,
message id), and one for each word of its KEYS property under the hash of (topic, user key), which
has another seed.  Rows are in log order, in files of a million rows (`key_chunk`), each a hash
table: a look-up costs about two reads a file, and adding rows needs no sorting and no merging
(docs/decisions/0010-key-index.md).

Rows are added when their frame is committed, wait in memory until there are 4 096, and are written
without sync.  A checkpoint names the row count; a start cuts the index to that count and replay
adds the rest.  If files are missing or damaged the index is rebuilt from the commit log.  While the
disk is full the part in memory grows; the log itself cannot grow much meanwhile.

Memory: 4 MiB for the heads of the newest chunk, 64 KiB of rows, and some 64 mapped files, whose
pages belong to the kernel.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from horolog.errors import NO_ROOM, ErrorCode, HorologError, Problem, done_if_room
from horolog.log.key_chunk import SCAN_ROWS, Chunk
from horolog.log.key_merge import equal_ranges
from horolog.log.key_rows import (
    HEADER_BYTES,
    NOTHING_BEFORE,
    ChunkHeader,
    Keys,
    Pairs,
    Positions,
    chunk_name,
    decode_header,
)
from horolog.log.key_tail import TAIL_ROWS, KeyTail
from horolog.storage.api import Storage
from horolog.storage.sectors import read_around

CHUNK_ROWS = 1 << 20
_MAPPED_MAX = 64  # sealed chunks that stay mapped
_FEW = 128  # up to so many keys are looked up in plain Python


def chunk_rows_for(segment_bytes: int) -> int:
    """Return the rows per chunk for a segment size: about as many as a segment has messages."""
    return max(64, min(CHUNK_ROWS, 1 << (max(1, segment_bytes // 256).bit_length() - 1)))


def _columns(pairs: list[tuple[int, int]]) -> Pairs:
    return (
        np.array([index for index, _ in pairs], np.int64),
        np.array([position for _, position in pairs], np.uint64),
    )


class KeyIndex:
    """The key index of a shard: rows {key u64, log position u64} in log order.

    directory   made if it is missing
    log_id      files of another log are not used
    chunk_rows  a power of two
    """

    def __init__(
        self, storage: Storage, directory: str, *, log_id: int, chunk_rows: int = CHUNK_ROWS
    ) -> None:
        self.count = 0  # rows, including those in memory
        self.problems: list[Problem] = []
        self._storage = storage
        self._directory = directory
        self._log_id = log_id
        self._chunk_rows = chunk_rows
        # In order, without gaps; the last chunk is open, the others are sealed or being sealed
        self._chunks: list[Chunk] = []
        self._tail = KeyTail()  # rows that are not written yet
        self._sealing: Chunk | None = None  # a full chunk whose heads are not all written yet
        self._start = 0  # look-ups return no log position below this one
        self._dirty: set[str] = set()
        self._syncing: set[str] = set()
        self._gone: list[str] = []  # files that a sync under way may still open
        self._reported: set[str] = set()
        self._mapped: OrderedDict[str, Chunk] = OrderedDict()

    # --- adding ---------------------------------------------------------------------------------

    def add(self, keys: Keys, positions: Positions) -> None:
        """Add (and copy) rows of committed messages, in log order."""
        if not self._tail.has_room(len(keys)):
            self.flush()
        self._tail.add(keys, positions)
        self.count += len(keys)

    def flush(self) -> bool:
        """Write the rows in memory; False if the disk is full: the rest stays in memory."""
        return done_if_room(self._write)

    def _write(self) -> None:
        done = 0
        try:
            while done < len(self._tail):
                chunk = self._chunk_with_room()
                stop = min(len(self._tail), done + chunk.room, done + TAIL_ROWS)
                chunk.add(self._tail.keys[done:stop], self._tail.positions[done:stop])
                done = stop
            self._seal_some()
        finally:
            self._tail.forget(done)

    def _seal_some(self, *, all_of_it: bool = False) -> None:
        """Write some heads of a full chunk: a few blocks each flush, so that none takes long."""
        while self._sealing is not None:
            self._dirty.add(self._sealing.path)
            try:
                if self._sealing.seal():
                    self._sealing = None
            except HorologError as error:
                if all_of_it or error.code not in NO_ROOM:
                    raise
            if not all_of_it:
                break

    def _chunk_with_room(self) -> Chunk:
        last = self._chunks[-1] if self._chunks else None
        if last is None or not last.room:
            self._seal_some(all_of_it=True)
            self._sealing = last if last is not None and last.is_open else None
            first = last.header.first + last.count if last is not None else 0
            before = last.last if last is not None else NOTHING_BEFORE
            header = ChunkHeader(self._log_id, first, before, self._chunk_rows)
            self._storage.make_dir(self._directory)
            chunk = Chunk(self._storage, self._directory, header)
            chunk.create()
            self._chunks.append(chunk)
        self._dirty.add(self._chunks[-1].path)
        return self._chunks[-1]

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are files."""
        self._tail.check_invariants()
        written = self.count - len(self._tail)
        last = self._chunks[-1] if self._chunks else None
        assert written == (last.header.first + last.count if last is not None else 0)
        for before, after in pairwise(self._chunks):
            assert after.header.first == before.header.first + before.count
        assert len(self._mapped) <= _MAPPED_MAX
        assert self._reported <= {chunk.path for chunk in self._chunks}

    @property
    def files(self) -> int:
        """Count of chunk files, all of which a look-up may read."""
        return len(self._chunks)

    # --- finding --------------------------------------------------------------------------------

    def find(self, key: int) -> list[int]:
        """Return the log positions of all rows with a key, ascending."""
        found = self._tail.positions[self._tail.keys == np.uint64(key)].tolist()
        for chunk in self._chunks:
            if chunk.last >= self._start and chunk.count:
                self._keep_mapped(chunk)
                found += [position for _, position in chunk.find_few([key])]
                if chunk.damage:
                    self._report_damage(chunk)
        return sorted(position for position in found if position >= self._start)

    def find_many(self, keys: Keys, from_position: int = 0) -> Pairs:
        """Return (index in `keys`, log position) of all rows with these keys from a position on.

        Ordered by index, then log position.  A key that is in `keys` twice is found twice.
        """
        least = max(from_position, self._start)
        pairs = [self._find_waiting(keys)]
        few = keys.tolist() if len(keys) <= _FEW else None
        for chunk in self._chunks:
            if chunk.last >= least and chunk.count:
                self._keep_mapped(chunk)
                pairs.append(
                    chunk.find_many(keys) if few is None else _columns(chunk.find_few(few))
                )
                if chunk.damage:
                    self._report_damage(chunk)
        index = np.concatenate([found for found, _ in pairs])
        positions = np.concatenate([at for _, at in pairs])
        kept = np.flatnonzero(positions >= np.uint64(least))
        index, positions = index[kept], positions[kept]
        ordered = np.lexsort((positions, index))
        return index[ordered], positions[ordered]

    def _find_waiting(self, keys: Keys) -> Pairs:
        order = np.argsort(keys, kind="stable")
        row, at = equal_ranges(keys[order], self._tail.keys)
        return order[at], self._tail.positions[row]

    def _keep_mapped(self, chunk: Chunk) -> None:
        if chunk.is_open:
            return
        self._mapped[chunk.path] = chunk
        self._mapped.move_to_end(chunk.path)
        if len(self._mapped) > _MAPPED_MAX:
            self._mapped.popitem(last=False)[1].unmap()

    def _report_damage(self, chunk: Chunk) -> None:
        if chunk.path not in self._reported:
            self._reported.add(chunk.path)
            text = f"key index: {chunk.damage}; look-ups read all of its rows"
            self.problems.append(Problem(text, chunk.path))

    def keys_from(self, position: int) -> Iterator[Keys]:
        """Yield the keys of all rows at or above a log position, in log order, in pieces."""
        for chunk in self._chunks:
            if chunk.last < position or not chunk.count:
                continue
            self._keep_mapped(chunk)
            at = chunk.first_at(position)
            while at < chunk.count:
                yield chunk.read_keys(at)
                at += SCAN_ROWS
        yield self._tail.keys[self._tail.positions >= np.uint64(position)]

    # --- retention and checkpoints --------------------------------------------------------------

    def begin_at(self, position: int) -> None:
        """Return no rows below `position` from now on: the log below is not read any more."""
        self._start = max(self._start, position)

    def drop_below(self, position: int) -> None:
        """Remove the files with rows only below `position`: no start needs that log any more."""
        self.begin_at(position)
        while len(self._chunks) > 1 and self._chunks[0].last < position:
            chunk = self._chunks.pop(0)
            chunk.close()
            self._mapped.pop(chunk.path, None)
            self._dirty.discard(chunk.path)
            self._reported.discard(chunk.path)
            self._gone.append(chunk.path)
        self._sweep()

    def _sweep(self) -> None:
        for path in [path for path in self._gone if path not in self._syncing]:
            self._storage.remove(path)
            self._gone.remove(path)

    def sync_paths(self) -> list[str]:
        """Write the rows in memory, and return the files written since the last `synced`.

        DISK_FULL if there is no space to write.
        """
        self._write()
        self._syncing |= self._dirty
        self._dirty = set()
        return sorted(self._syncing)

    def synced(self) -> None:
        """Note that the files of `sync_paths` are durable and not opened by the sync any more."""
        self._syncing = set()
        self._sweep()

    def captured(self) -> dict[str, int]:
        """Return the index's entry in a checkpoint; call right after `sync_paths`."""
        sealed = [c.header.first + c.count for c in self._chunks if not c.is_open]
        return {"rows": self.count, "sealed": max(sealed, default=0)}

    def restore(self, captured: dict[str, int], log_start: int) -> str:
        """Open the index at start with the rows a checkpoint names; return why it cannot, or "".

        log_start  log position at which the log begins: rows below may be missing
        """
        self._start = log_start
        self.count = rows = captured["rows"]
        found = self._find_chunks(rows)
        after = rows  # the chunks from this row on have been opened
        for chunk in reversed(found):
            first, capacity = chunk.header.first, chunk.header.capacity
            if first + capacity <= captured["sealed"]:
                good = first + capacity == after and chunk.resume_sealed()
            else:
                whole = first + capacity == after or after == rows
                good = whole and after - first <= capacity and chunk.resume(after - first)
            if not good:
                chunk.close()
                break
            self._chunks.insert(0, chunk)
            after = first
        for chunk in found[: len(found) - len(self._chunks)]:
            self._storage.remove(chunk.path)
        self._sealing = next((c for c in self._chunks if c.is_open and not c.room), None)
        if rows and not self._chunks:
            return f"the key index does not have the {rows} rows that its checkpoint says"
        before = self._chunks[0].header.before if rows else NOTHING_BEFORE
        if before != NOTHING_BEFORE and before >= log_start:
            return f"the key index lacks files up to log position {before}"
        return ""

    def _find_chunks(self, rows: int) -> list[Chunk]:
        """Return the chunks of this log that begin below row `rows`, in order; remove others."""
        found = []
        for name in self._storage.list(self._directory):
            path = f"{self._directory}/{name}"
            header = self._header_of(path)
            if (
                header is None
                or header.log_id != self._log_id
                or chunk_name(header.first) != name
                or header.first >= rows
            ):
                self._storage.remove(path)
            else:
                found.append(Chunk(self._storage, self._directory, header))
        return found

    def _header_of(self, path: str) -> ChunkHeader | None:
        """Read a chunk's header; None if it is damaged or no file (a directory is in its place)."""
        try:
            file = self._storage.open(path)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FAILED:
                raise
            return None
        header = decode_header(read_around(file, 0, HEADER_BYTES))
        file.close()
        return header

    def clear(self) -> None:
        """Remove all files and rows, before the index is rebuilt."""
        self.close()
        for name in self._storage.list(self._directory):
            self._storage.remove(f"{self._directory}/{name}")
        self.count = 0
        self._tail = KeyTail()
        self._chunks, self._sealing = [], None
        self._dirty, self._syncing, self._gone = set(), set(), []
        self._reported = set()
        self._start = 0

    def close(self) -> None:
        """Close all files; rows only in memory are lost, and replay adds them again."""
        self._mapped.clear()
        for chunk in self._chunks:
            chunk.close()
