"""Detect at a start that the commit log ends before messages that were filed from it.

Hours, far buffers and the key index are written only after their messages are committed, so a
message found in them at or above the end of the log was committed and is lost.  The end of the log
itself does not show that: where the last frames were damaged, or an older copy of the last segment
was put in place, it looks like a torn tail that no client had an answer for.  A power cut while
`--flush` is `interval` or `os` leaves the same traces.

Call `early_end` before the files are cut to a checkpoint: cutting removes what it looks for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from horolog.delay.entry import ENTRY, ENTRY_BYTES, INDEX_NAME, is_readable
from horolog.delay.far.buffer import is_buffer
from horolog.errors import Problem
from horolog.log.file_names import numbers_of
from horolog.log.key_rows import HEADER_BYTES, ROW_BYTES, chunk_name, decode_header, intact
from horolog.storage.api import File, Storage
from horolog.storage.sectors import read_around
from horolog.units import parse_unsigned

_LAST_ROWS = 512  # of each file: a damaged page does not hide the others


def early_end(
    storage: Storage, directory: str, log_id: int, end: int, now_ms: int
) -> list[Problem]:
    """Return the problem of a log that ends below committed messages; an empty list if it does not.

    directory  of the shard
    end        log position at which the log ends
    now_ms     wall clock; the problem is listed for a day
    """
    filed = filed_to(storage, directory, log_id)
    if filed <= end:
        return []
    lost = Problem(
        f"the commit log in {directory}/log ends at log position {end}, but what was committed "
        f"reached {filed}: the messages between are lost (damaged last frames, an older copy of a "
        "segment put in place, or a power cut under --flush interval or os)",
        key=f"early end {end}",
        until_ms=now_ms,
    )
    return [lost]


def filed_to(storage: Storage, directory: str, log_id: int) -> int:
    """Return the log position up to which derived files show committed messages; 0 if none."""
    ends = [_indexed_to(storage, path) for path in _index_paths(storage, directory)]
    return max([_keyed_to(storage, f"{directory}/keys", log_id), *ends])


def _index_paths(storage: Storage, directory: str) -> Iterator[str]:
    for name in storage.list(f"{directory}/hours"):
        if parse_unsigned(name) is not None:
            yield f"{directory}/hours/{name}/{INDEX_NAME}"
    for name in storage.list(f"{directory}/runs"):
        if is_buffer(name):
            yield f"{directory}/runs/{name}/{INDEX_NAME}"


def _indexed_to(storage: Storage, path: str) -> int:
    """Return the highest end of a message that the last entries of a delay index name."""
    if not storage.is_file(path):
        return 0
    file = storage.open(path)
    try:
        _, raw = _last(file, 0, file.size() // ENTRY_BYTES, ENTRY_BYTES)
    finally:
        file.close()
    entries = np.frombuffer(raw, ENTRY)
    entries = entries[is_readable(entries)]
    return int((entries["origin"] + entries["size"]).max(initial=0))


def _keyed_to(storage: Storage, place: str, log_id: int) -> int:
    """Return the highest log position that the last rows of the key index name, and one more."""
    firsts = numbers_of(storage.list(place), "keys")
    path = f"{place}/{chunk_name(max(firsts, default=0))}"
    if not storage.is_file(path):
        return 0
    file = storage.open(path)
    try:
        header = decode_header(read_around(file, 0, HEADER_BYTES))
        if header is None or header.log_id != log_id:
            return 0
        rows = min(header.capacity, (file.size() - HEADER_BYTES) // ROW_BYTES)
        first, raw = _last(file, HEADER_BYTES, rows, ROW_BYTES)
    finally:
        file.close()
    words = np.frombuffer(raw, "<u8").reshape(-1, ROW_BYTES // 8)
    good, _ = intact(words, np.arange(first, first + len(words)) + 1)
    return int((words[good, 1] + np.uint64(1)).max(initial=0))


def _last(file: File, start: int, rows: int, row_bytes: int) -> tuple[int, bytes]:
    """Read the last `_LAST_ROWS` of `rows` rows; return the first one's index and their bytes."""
    first = max(0, rows - _LAST_ROWS)
    raw = read_around(file, start + first * row_bytes, (rows - first) * row_bytes)
    return first, raw[: len(raw) // row_bytes * row_bytes]
