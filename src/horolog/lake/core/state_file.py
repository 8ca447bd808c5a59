"""The state file of the lake, `runs/lake.state.<version>`, written at a checkpoint after a change.

======  ======  ==================  ================================================================
offset  bytes   field               meaning
======  ======  ==================  ================================================================
0       4       magic               b"HLLK"
4       2       version             1
6       2       incompatible flags  unknown bit: refuse
8       8       counts              count of rows of the first table
16      8       gone                count of rows of the second table
24      4       body CRC            CRC-32 of all bytes after the header
28      4       header CRC          CRC-32 of bytes 0–27
32      24 n    counts              {number u64, hour u32, topic u32, count u64}: waiting messages
…       32 n    gone                {number u64, position u64, row u32, topic u32, due ms i64}:
                                    recalled messages
======  ======  ==================  ================================================================
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.recalled_set import LAKE_ROW

NAME = "lake"  # name of the state files, and of the lake's part of a checkpoint
MAGIC = b"HLLK"
VERSION = 1
_HEAD = struct.Struct("<4sHHQQI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 32
COUNT = np.dtype([("number", "<u8"), ("hour", "<u4"), ("topic", "<u4"), ("count", "<u8")])
assert COUNT.itemsize == 24


def encode_lake(counts: npt.NDArray[Any], recalled: npt.NDArray[Any]) -> bytes:
    """Encode a state file with COUNT and LAKE_ROW rows."""
    body = counts.tobytes() + recalled.tobytes()
    head = _HEAD.pack(MAGIC, VERSION, 0, len(counts), len(recalled), crc32(body))
    return head + _CRC.pack(crc32(head)) + body


def decode_lake(content: bytes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Decode a state file into COUNT and LAKE_ROW rows; None if it is damaged.

    VERSION_UNSUPPORTED if a newer horolog wrote it.
    """
    if len(content) < HEADER_BYTES or content[:4] != MAGIC:
        return None
    if crc32(content[: _HEAD.size]) != _CRC.unpack_from(content, _HEAD.size)[0]:
        return None
    _, version, flags, counts, recalled, crc = _HEAD.unpack_from(content)
    if version > VERSION or flags:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"state of the lake has version {version}; this horolog reads version {VERSION}",
            field="state",
        )
    body = memoryview(content)[HEADER_BYTES:]
    cut = counts * COUNT.itemsize
    if len(body) != cut + recalled * LAKE_ROW.itemsize or crc32(body) != crc:
        return None
    return np.frombuffer(body, COUNT, counts), np.frombuffer(body, LAKE_ROW, recalled, cut)
