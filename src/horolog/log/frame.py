"""Frames: the unit in which the commit log writes, checks and syncs records.  Truth.

A segment is a sequence of frames; a frame is a header and a body of records (`log.record`).
Little-endian, so that numpy reads the columns of a body without swapping (the layout inside a
message record stays RocketMQ's big-endian).

======  =====  ====================  ===============================================================
offset  bytes  field                 meaning
======  =====  ====================  ===============================================================
0       4      magic                 b"HLGF"
4       2      version               1
6       2      incompatible flags    a reader must refuse unknown bits; bit 0: padding
8       2      compatible flags      may be ignored; bit 0, of padding: salvaged
10      2      shard
12      4      count                 records in the body; 0 in a mark and in padding
16      8      log id                random, the same in every file of this data directory
24      8      base                  log position of this header; a frame anywhere else is invalid
32      8      durable position      below it everything was durable when this frame was written
40      8      append ms             wall clock of the step that appended it
48      4      epoch                 a frame of an older epoch than the one before it is invalid
52      4      length                bytes of the body
56      4      body CRC              CRC-32 of the body; 0 and not checked in padding
60      4      header CRC            CRC-32 of bytes 0–59 (so it covers the body CRC too)
======  =====  ====================  ===============================================================

A *mark* is a frame without records: it states the durable position when the log goes idle.
*Padding* fills a segment whose rest is too small for the next frame; a rest of less than a header
is left zero.  *Salvaged* padding replaces frames that could not be read and were given up
(`log.salvage`): it begins where a lost frame began and ends where one ended.

To change this format: new version number, a row in docs/reference/formats.md, a new golden file,
and a reader for every older version.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError

MAGIC = b"HLGF"
VERSION = 1
PADDING = 0x1
KNOWN_INCOMPATIBLE = PADDING
SALVAGED = 0x1  # of the compatible flags

_HEAD = struct.Struct("<4sHHHHIQQQqIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 64


class FrameHeader(NamedTuple):
    """The fields of a frame header; `parse` returns one only if its CRC matches."""

    version: int
    incompatible: int
    compatible: int
    shard: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    log_id: int
    base: int
    durable: int
    append_ms: int
    epoch: int
    length: int
    body_crc: int

    @property
    def end(self) -> int:
        """Log position right after the frame."""
        return self.base + HEADER_BYTES + self.length

    @property
    def padding(self) -> bool:
        """Whether this frame only fills a segment."""
        return bool(self.incompatible & PADDING)

    @property
    def salvaged(self) -> bool:
        """Whether this frame replaces frames that salvage gave up."""
        return self.padding and bool(self.compatible & SALVAGED)


def seal(
    *,
    log_id: int,
    shard: int,
    base: int,
    durable: int,
    append_ms: int,
    epoch: int,
    count: int,
    body: bytes | bytearray,
    padding: int | None = None,
    salvaged: bool = False,
) -> bytes:
    """Build the header of a frame at `base`; `padding`: length of a body that is not written."""
    is_padding = padding is not None
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        PADDING if is_padding else 0,
        SALVAGED if salvaged else 0,
        shard,
        count,
        log_id,
        base,
        durable,
        append_ms,
        epoch,
        len(body) if padding is None else padding,
        0 if is_padding else crc32(body),
    )
    return head + _CRC.pack(crc32(head))


def parse(buffer: bytes | memoryview, at: int = 0) -> FrameHeader | None:
    """Parse the frame header at `at`; None if it is not intact (cut short, no magic, wrong CRC)."""
    if at + HEADER_BYTES > len(buffer):
        return None
    head = bytes(buffer[at : at + HEADER_BYTES])
    if head[:4] != MAGIC or _CRC.unpack_from(head, _HEAD.size)[0] != crc32(head[: _HEAD.size]):
        return None
    return FrameHeader(*_HEAD.unpack_from(head)[1:])


def is_recognisable(raw: bytes, log_id: int, base: int) -> bool:
    """Return whether a damaged header is recognisably the header of this log's frame at `base`.

    Two of magic, log id and position must be right: no damage makes two of them right in zeros, in
    a body or in a frame from elsewhere.
    """
    if len(raw) < HEADER_BYTES:
        return False
    fields = FrameHeader(*_HEAD.unpack_from(raw)[1:])
    return (raw[:4] == MAGIC) + (fields.log_id == log_id) + (fields.base == base) >= 2


def check_version(header: FrameHeader) -> None:
    """Raise VERSION_UNSUPPORTED for an intact header that a newer horolog wrote."""
    if header.version > VERSION or header.incompatible & ~KNOWN_INCOMPATIBLE:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"frame at log position {header.base} has version {header.version} and incompatible "
            f"flags {header.incompatible:#x}; this horolog reads version {VERSION} and flags "
            f"{KNOWN_INCOMPATIBLE:#x}",
            field="frame",
        )


def body_intact(header: FrameHeader, body: bytes | memoryview) -> bool:
    """Return whether `body` is the whole, undamaged body of the frame; always true for padding."""
    return header.padding or (len(body) == header.length and crc32(body) == header.body_crc)
