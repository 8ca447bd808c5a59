"""Run files: scheduled messages by (due ms, origin, row).  Truth: log after them may be dropped.

A run is written once, front to back, synced, and never changed.  The states of its rows are kept
elsewhere.  Little-endian, because the file is mapped and used in place.  File `<name>.run`:

==================  ================================================================================
part                content
==================  ================================================================================
header              64 bytes, below
index               rows × `entry.ENTRY`, sorted.  position: of the record in this file; local: tags
                    code as u32; previous: 0.  Each row has its own sum, and the CRC of its record
records             as in the commit log, in row order, without gaps; then zeros up to a multiple of
                    8
key groups          of 65 536 rows each: keys (u64, ascending, equal ones by row), then for each key
                    its row, counted from the first of the group (u16); after the last group zeros
                    up to a multiple of 8
fences              due ms (i64) of rows 0, 1 024, 2 048 …
key directory       one `KEY_GROUP` a group: its offset, its rows, the CRC-32 of keys and rows
directory           `TOPIC_HOUR` rows by (hour, topic): how many messages, and bytes of their
                    records
footer              128 bytes, below; a file without it was never finished
==================  ================================================================================

Header:

======  =====  ====================  ===============================================================
offset  bytes  field                 meaning
======  =====  ====================  ===============================================================
0       4      magic                 b"HLRN"
4       2      version               1
6       2      incompatible flags    unknown bit: refuse
8       2      compatible flags      may be ignored; bit 0: adopted
10      2      reserved              0
12      4      fence rows            1 024
16      8      log id                of the log that the origins lie in
24      8      rows                  at least one
32      4      group rows            65 536
36      24     reserved              0
60      4      header CRC            CRC-32 of bytes 0–59
======  =====  ====================  ===============================================================

Footer:

======  =====  ====================  ===============================================================
offset  bytes  field                 meaning
======  =====  ====================  ===============================================================
0       8      log id                as in the header
8       8      rows                  as in the header
16      8      first due ms          of row 0
24      8      last due ms           of the last row
32      8      record bytes          of all records
40      8      key groups at         offset of that part
48      8      fences at             offset
56      8      key directory at      offset
64      8      directory at          offset
72      8      directory rows
80      8      size                  of the file
88      4      fences CRC            CRC-32
92      4      key directory CRC     CRC-32
96      4      directory CRC         CRC-32
100     20     reserved              0
120     4      magic                 b"HLRE"
124     4      footer CRC            CRC-32 of bytes 0–123
======  =====  ====================  ===============================================================

An *adopted* run was written by another program for the broker to take over
(`broker.adopt.adoptions`).  Its writer does not know where in the log the record of its adoption
will stand, so every origin in the file is 0, with the rows numbered 0, 1, 2 …, and the CRCs of its
records start from that.  `delay.far.adopted` shows its rows with their real origins.

What a flipped byte does: in header, footer, fences or a directory the run is refused; a key group
is not used and its rows are scanned; an index row is left out and reported; a record does not
verify against its row.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY_BYTES
from horolog.errors import ErrorCode, HorologError

MAGIC = b"HLRN"
END_MAGIC = b"HLRE"
VERSION = 1
ADOPTED = 0x1  # compatible flag
FENCE_ROWS = 1_024
GROUP_ROWS = 65_536  # a row within its group is u16
_HEAD = struct.Struct("<4sHHHHIQQI24s")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 64
_FOOT = struct.Struct("<QQqqQQQQQQQIII20s4s")
FOOTER_BYTES = _FOOT.size + _CRC.size
assert FOOTER_BYTES == 128
KEY_GROUP = np.dtype([("offset", "<u8"), ("count", "<u4"), ("crc", "<u4")])
assert KEY_GROUP.itemsize == 16
TOPIC_HOUR = np.dtype([("hour", "<u4"), ("topic", "<u4"), ("count", "<u8"), ("bytes", "<u8")])
assert TOPIC_HOUR.itemsize == 24
KEY_ROW_BYTES = 8 + 2
FENCE_BYTES = 8


class RunInfo(NamedTuple):
    """A finished run: rows, bytes of the file, due ms of its first and last row."""

    name: str
    rows: int
    size: int
    first_ms: int
    last_ms: int


class Layout(NamedTuple):
    """Offsets of the parts of a run file; all follow from the arguments of `layout_of`."""

    records_at: int
    records_end: int
    key_groups_at: int
    fences_at: int
    key_directory_at: int
    directory_at: int
    footer_at: int
    size: int


class Footer(NamedTuple):
    """The fields of a footer beyond the layout."""

    first_ms: int
    last_ms: int
    record_bytes: int
    directory_rows: int
    fences_crc: int
    key_directory_crc: int
    directory_crc: int


def run_path(directory: str, name: str) -> str:
    """Return the path of a run's file."""
    return f"{directory}/{name}.run" if directory else f"{name}.run"


def padded(offset: int) -> int:
    """Round an offset up to a multiple of 8."""
    return -(-offset // 8) * 8


def layout_of(rows: int, record_bytes: int, directory_rows: int) -> Layout:
    """Return the offsets of all parts."""
    records_at = HEADER_BYTES + ENTRY_BYTES * rows
    records_end = records_at + record_bytes
    key_groups_at = padded(records_end)
    fences_at = padded(key_groups_at + KEY_ROW_BYTES * rows)
    key_directory_at = fences_at + FENCE_BYTES * -(-rows // FENCE_ROWS)
    directory_at = key_directory_at + KEY_GROUP.itemsize * -(-rows // GROUP_ROWS)
    footer_at = directory_at + TOPIC_HOUR.itemsize * directory_rows
    return Layout(
        records_at,
        records_end,
        key_groups_at,
        fences_at,
        key_directory_at,
        directory_at,
        footer_at,
        footer_at + FOOTER_BYTES,
    )


def encode_header(log_id: int, rows: int, *, adopted: bool = False) -> bytes:
    """Encode the first 64 bytes of a run."""
    flags = ADOPTED if adopted else 0
    head = _HEAD.pack(MAGIC, VERSION, 0, flags, 0, FENCE_ROWS, log_id, rows, GROUP_ROWS, bytes(24))
    return head + _CRC.pack(crc32(head))


def encode_footer(log_id: int, rows: int, footer: Footer) -> bytes:
    """Encode the last 128 bytes of a run."""
    at = layout_of(rows, footer.record_bytes, footer.directory_rows)
    foot = _FOOT.pack(
        log_id,
        rows,
        footer.first_ms,
        footer.last_ms,
        footer.record_bytes,
        at.key_groups_at,
        at.fences_at,
        at.key_directory_at,
        at.directory_at,
        footer.directory_rows,
        at.size,
        footer.fences_crc,
        footer.key_directory_crc,
        footer.directory_crc,
        bytes(20),
        END_MAGIC,
    )
    return foot + _CRC.pack(crc32(foot))


def damaged(name: str, what: str) -> HorologError:
    """Build the error of a run that cannot be used."""
    return HorologError(ErrorCode.DAMAGED, f"run {name}: {what}", field=name)


def decode_header(name: str, head: bytes, log_id: int | None) -> tuple[int, int]:
    """Decode a header; return (log id, rows).

    Refuses with DAMAGED, VERSION_UNSUPPORTED or DIRECTORY_FOREIGN (a run of another log).
    """
    if len(head) < HEADER_BYTES or head[:4] != MAGIC:
        raise damaged(name, "the file is not a run")
    if crc32(head[: _HEAD.size]) != _CRC.unpack_from(head, _HEAD.size)[0]:
        raise damaged(name, "the header is damaged")
    _, version, flags, _, _, fence_rows, of_log, rows, group_rows, _ = _HEAD.unpack_from(head)
    if version != VERSION or flags or (fence_rows, group_rows) != (FENCE_ROWS, GROUP_ROWS):
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"run {name} has version {version} and incompatible flags {flags:#x}; "
            f"this horolog reads version {VERSION} without flags",
            field=name,
        )
    if log_id is not None and of_log != log_id:
        raise HorologError(
            ErrorCode.DIRECTORY_FOREIGN,
            f"run {name} belongs to log {of_log:016x}, not to {log_id:016x}",
            field=name,
        )
    return of_log, rows


def is_adopted(head: bytes) -> bool:
    """Return whether an intact header is that of a run made for adoption."""
    return bool(_HEAD.unpack_from(head)[3] & ADOPTED)


def decode_footer(name: str, foot: bytes, log_id: int, rows: int) -> tuple[Footer, Layout]:
    """Decode a footer and check it against the header and itself; DAMAGED if it does not agree."""
    if len(foot) < FOOTER_BYTES or foot[120:124] != END_MAGIC:
        raise damaged(name, "the file is cut short or was not finished")
    if crc32(foot[: _FOOT.size]) != _CRC.unpack_from(foot, _FOOT.size)[0]:
        raise damaged(name, "the footer is damaged")
    found = _FOOT.unpack_from(foot)
    first_ms, last_ms, record_bytes, directory_rows = *found[2:5], found[9]
    footer = Footer(first_ms, last_ms, record_bytes, directory_rows, *found[11:14])
    if rows < 1 or foot != encode_footer(log_id, rows, footer):
        raise damaged(name, "header and footer do not agree")
    return footer, layout_of(rows, record_bytes, directory_rows)
