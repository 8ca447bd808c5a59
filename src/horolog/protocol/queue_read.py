"""The binary answer of a bulk read (GET /v1/topics/{name}/queues/{queue}/messages).

The answer has many records and is cheap to parse.

Little-endian, but for the stored layouts within the records.

======  =====  ==============  =====================================================================
offset  bytes  field           meaning
======  =====  ==============  =====================================================================
0       4      magic           b"HLQR"
4       2      version         1
6       2      reserved        0
8       4      count           records
12      4      CRC             CRC-32 of everything after this header
16      8      next offset     queue offset at which to read on
24      8      min offset      lowest queue offset that is kept
32      8      max offset      one above the newest message
40      4 × n  sizes           bytes of each record
…              records         as in the log: 32 bytes of head, then the stored layout
======  =====  ==============  =====================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError

MAGIC = b"HLQR"
VERSION = 1
_HEAD = struct.Struct("<4sHHIIQQQ")
HEADER_BYTES = 40
assert _HEAD.size == HEADER_BYTES


class ReadAnswer(NamedTuple):
    """A decoded answer of a bulk read."""

    next_offset: int
    min_offset: int
    max_offset: int
    sizes: npt.NDArray[Any]  # u32, bytes of each record
    records: memoryview  # all records, back to back


def encode_read(
    records: Sequence[bytes], *, next_offset: int, min_offset: int, max_offset: int
) -> bytes:
    """Return the answer of a bulk read as bytes."""
    sizes = np.array([len(record) for record in records], "<u4").tobytes()
    content = b"".join([sizes, *records])
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        0,
        len(records),
        crc32(content),
        next_offset,
        min_offset,
        max_offset,
    )
    return head + content


def decode_read(answer: bytes) -> ReadAnswer:
    """Decode the answer of a bulk read.

    DAMAGED if the bytes are cut short or changed; VERSION_UNSUPPORTED if a newer broker wrote them.
    """
    if len(answer) < HEADER_BYTES or answer[:4] != MAGIC:
        raise _damaged("it has no header")
    _, version, _, count, crc, next_offset, min_offset, max_offset = _HEAD.unpack_from(answer)
    if version != VERSION:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"answer of a bulk read has version {version}; this horolog reads version {VERSION}",
        )
    content = memoryview(answer)[HEADER_BYTES:]
    if len(content) < 4 * count or crc32(content) != crc:
        raise _damaged("it was cut short or changed on the way")
    sizes = np.frombuffer(content, "<u4", count)
    records = content[4 * count :]
    if int(sizes.sum(dtype=np.int64)) != len(records):
        raise _damaged("its sizes do not add up")
    return ReadAnswer(next_offset, min_offset, max_offset, sizes, records)


def _damaged(what: str) -> HorologError:
    return HorologError(ErrorCode.DAMAGED, f"answer of a bulk read: {what}")
