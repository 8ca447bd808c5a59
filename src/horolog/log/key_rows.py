"""The format of the log key index: hash tables of (key, log position) rows, in chunks.  Rebuilt.

File `<first row>.keys`, little-endian, because the mapped file is used as it is.  Rows are appended
without sync until a checkpoint names the row count; when the chunk is full its heads are written
after the rows, once:

======  =====  =============  ====================================================================
offset  bytes  field          meaning
======  =====  =============  ====================================================================
0       4      magic          b"HLKI"
4       2      version        1
6       2      flags          unknown bit: the file is not used
8       8      log id         of `meta`
16      8      first          index of the chunk's first row, counted over all chunks
24      8      before         log position of the row before that one; 2⁶⁴−1: there was none
32      4      capacity       rows, and heads: a power of two
36      4      header CRC     CRC-32 of bytes 0–35
40      24 c   rows           `ROW`, in log order
…       4 c    heads          u32: place of the newest row of each slot, counted from 1; 0: none
…       4 b    block CRCs     CRC-32 of each block of 1 024 heads
…       4      trailer CRC    CRC-32 of the block CRCs
======  =====  =============  ====================================================================

A row, 24 bytes:

======  =====  ============  =====================================================================
offset  bytes  field         meaning
======  =====  ============  =====================================================================
0       8      key           hash of (topic, message id) or of (topic, user key)
8       8      position      log position of the message's record
16      4      previous      place of the preceding row of the same slot, counted from 1; 0: none
20      4      sum           check sum of the row and its place: `row_sums`
======  =====  ============  =====================================================================

The slot of a key is its upper bits.  Worked example with four slots: keys 0x40…, 0xC0…, 0x41… are
filed as rows 1:{previous 0}, 2:{previous 0}, 3:{previous 1}; heads are [0, 3, 0, 2].  Key 0x40… is
looked up in slot 1: row 3 has another key, its previous is row 1.

Every row is checked when a look-up follows a chain through it, heads by blocks when they are first
used.  A chunk that fails a check is searched by reading all its rows; rows with a wrong sum are
left out, and the damage is reported.

To change this format: raise the version, keep no reader of the old one (the index is rebuilt from
the log), adapt `cli.inspection.shard_files`, docs/reference/formats.md and the tests.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.log.file_names import name_of

MAGIC = b"HLKI"
VERSION = 1
_HEAD = struct.Struct("<4sHHQQQI")
CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + CRC.size
assert HEADER_BYTES == 40
ROW = np.dtype([("key", "<u8"), ("position", "<u8"), ("previous", "<u4"), ("sum", "<u4")])
ROW_BYTES = 24
assert ROW.itemsize == ROW_BYTES
NOTHING_BEFORE = (1 << 64) - 1
ROW_STRUCT = struct.Struct("<QQII")
assert ROW_STRUCT.size == ROW_BYTES
BLOCK = 1_024  # heads that share one CRC: a page of memory

# Odd factors, as in `delay.entry`: a change of one bit changes the sum.
_POSITION_FACTOR, _PLACE_FACTOR = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_LAST_FACTOR = 0xFF51AFD7ED558CCD
_POSITION_MIX, _PLACE_MIX = np.uint64(_POSITION_FACTOR), np.uint64(_PLACE_FACTOR)
_LAST_MIX, _32 = np.uint64(_LAST_FACTOR), np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_64_BITS = (1 << 64) - 1

Keys: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.uint64]
# Rows as three words: key, position, previous | sum << 32
Words: TypeAlias = npt.NDArray[np.uint64]
Pairs: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]


class ChunkHeader(NamedTuple):
    """The variable fields of a chunk's header."""

    log_id: int
    first: int
    before: int
    capacity: int


def chunk_name(first: int) -> str:
    """Return the file name of the chunk that begins with row `first`."""
    return name_of(first, "keys")


def encode_header(header: ChunkHeader) -> bytes:
    """Encode the header: the first 40 bytes of a chunk."""
    head = _HEAD.pack(MAGIC, VERSION, 0, *header)
    return head + CRC.pack(crc32(head))


def decode_header(content: bytes) -> ChunkHeader | None:
    """Decode the header of a chunk; None if it is damaged or of another version."""
    if len(content) < HEADER_BYTES:
        return None
    magic, version, flags, *fields = _HEAD.unpack_from(content)
    header = ChunkHeader(*fields)
    known = magic == MAGIC and version == VERSION and not flags and header.capacity.bit_count() == 1
    return header if known and content[:HEADER_BYTES] == encode_header(header) else None


def blocks_of(capacity: int) -> int:
    """Return the count of blocks of heads in a chunk."""
    return -(-capacity // BLOCK)


def sealed_bytes(capacity: int) -> int:
    """Return the bytes of a sealed chunk's file."""
    return HEADER_BYTES + (ROW_BYTES + 4) * capacity + 4 * blocks_of(capacity) + 4


def row_sums(words: Words, places: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the check sums (u32) of rows at these places (counted from 1).

    The third word of each row is `previous` alone.
    """
    mixed = words[:, 2] << _32 | places.astype(np.uint64)
    mixed *= _PLACE_MIX
    mixed ^= words[:, 1] * _POSITION_MIX
    mixed ^= words[:, 0]
    mixed ^= mixed >> _32
    mixed *= _LAST_MIX
    return mixed >> _32


def sum_of(key: int, position: int, previous: int, place: int) -> int:
    """Return the check sum of one row at a place (counted from 1), as `row_sums`."""
    mixed = (previous << 32 | place) * _PLACE_FACTOR ^ position * _POSITION_FACTOR ^ key
    mixed &= _64_BITS
    return ((mixed ^ mixed >> 32) * _LAST_FACTOR & _64_BITS) >> 32


def intact(words: Words, places: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], Words]:
    """Return a mask of the rows with the right sum, and all rows with the sum cleared."""
    sums = words[:, 2] >> _32
    plain = words.copy()
    plain[:, 2] &= _LOW
    return sums == row_sums(plain, places), plain
