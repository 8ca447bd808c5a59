"""Delay index entries: one a message, in log order.  Rebuilt (truth, once log is dropped).

An entry's place in the file is its *global index*.  The entries of one second form a chain that
starts at the newest entry.  Little-endian, fixed width:

======  =====  ================  ===================================================================
offset  bytes  field             meaning
======  =====  ================  ===================================================================
0       8      position          byte offset of the record in the delay log
8       4      size              bytes of the record
12      4      local             index within its second: 0, 1, 2 …
16      4      previous          global index of the previous entry of the same second; −1: none
20      4      row               row of the origin; 0 except for adopted runs
24      8      due ms            UTC epoch milliseconds
32      8      origin            log position of the scheduled message: its identity
40      8      key               hash of (topic, message id)
48      4      topic             id of the topic
52      4      record CRC        CRC-32 of the record, started from `origin_seed`
56      8      sum               check sum of the entry: `entry_sums`
======  =====  ================  ===================================================================

Worked example.  A (due …07.5), B (…09.0) and C (…07.1) arrive in this order: entries 0:A{local 0,
previous −1}, 1:B{local 0, previous −1}, 2:C{local 1, previous 0}; heads[7] = {newest 2, count 2},
heads[9] = {1, 1}.  To load second 7, the chain 2 → 0 is walked and sorted by (due, origin): C, A.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

ENTRY = np.dtype(
    [
        ("position", "<u8"),
        ("size", "<u4"),
        ("local", "<u4"),
        ("previous", "<i4"),
        ("row", "<u4"),
        ("due_ms", "<i8"),
        ("origin", "<u8"),
        ("key", "<u8"),
        ("topic", "<u4"),
        ("crc", "<u4"),
        ("sum", "<u8"),
    ]
)
ENTRY_BYTES = 64
assert ENTRY.itemsize == ENTRY_BYTES
LOG_NAME = "delay.log"  # file name of the records
INDEX_NAME = "delay.idx"  # file name of their entries
HANDED_BYTES = 32  # bytes of a hand-over beside the record: its origin, and a unit of a queue
ENTRY_WORDS = ENTRY_BYTES // 4
PREVIOUS_WORD = 16 // 4  # word of `previous`, counted in 4 bytes
ORIGIN_LONG = 32 // 8  # word of `origin`, counted in 8 bytes
assert ENTRY.fields is not None
assert ENTRY.fields["previous"][1] == 4 * PREVIOUS_WORD
assert ENTRY.fields["origin"][1] == 8 * ORIGIN_LONG

# Odd multipliers: a change of any one word always changes the sum (they are invertible modulo 2⁶⁴).
_MULTIPLIERS = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x27D4EB2F165667C5,
        0x85EBCA77C2B2AE63,
        0xFF51AFD7ED558CCD,
        0xC4CEB9FE1A85EC53,
    ],
    np.uint64,
)


def entry_sums(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the check sums of ENTRY rows (contiguous), over all fields but `sum`; vectorised."""
    words = entries.view(np.uint64).reshape(len(entries), 8)[:, :7]
    total = (words ^ (words >> np.uint64(29))) @ _MULTIPLIERS
    sums: npt.NDArray[np.uint64] = total ^ (total >> np.uint64(32)) ^ np.uint64(0x484F524F4C4F4721)
    return sums


def is_readable(entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which ENTRY rows (contiguous) have the right check sum."""
    good: npt.NDArray[np.bool_] = entry_sums(entries) == entries["sum"]
    return good


def tags_of(entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return the tags code of each ENTRY row of a far buffer or run, where it is in `local`."""
    return entries["local"].astype(np.uint32).view(np.int32)


def records_of(view: memoryview, entries: npt.NDArray[Any]) -> list[memoryview]:
    """Slice the records of ENTRY rows out of a view of their file; records are not verified."""
    starts = entries["position"].tolist()
    ends = (entries["position"] + entries["size"]).tolist()
    return [view[a:b] for a, b in zip(starts, ends, strict=True)]


def origin_seed(position: int, row: int = 0) -> int:
    """Return the start value of a record's CRC, so that no record verifies under another origin."""
    return (position ^ (position >> 32) ^ (row * 0x9E3779B1)) & 0xFFFFFFFF


def record_crcs(
    records: Iterable[bytes | memoryview],
    origins: npt.NDArray[Any],
    rows: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.uint32]:
    """Compute the CRC of each record, started from its origin; `rows` None: all are 0."""
    seeds = origins ^ (origins >> np.uint64(32))
    if rows is not None:
        seeds = seeds ^ (rows.astype(np.uint64) * np.uint64(0x9E3779B1))
    folded = (seeds & np.uint64(0xFFFFFFFF)).tolist()
    crcs = starmap(crc32, zip(records, folded, strict=True))
    return np.fromiter(crcs, np.uint32)
