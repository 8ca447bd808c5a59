"""Repair of a frame of which one bit has flipped, by its own check sums (`storage.flipped_bit`).

Header and body have a CRC-32 each, so one flipped bit in either, or one in each, can be found.  In
a long frame other damage looks like a flipped bit once in a thousand times.  So a repaired frame is
accepted only if its records add up to its length, are of known kinds, and each message body matches
the CRC in its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from horolog.errors import HorologError, Repair
from horolog.log.frame import HEADER_BYTES, KNOWN_INCOMPATIBLE, VERSION, FrameHeader, parse
from horolog.log.record import HEAD_BYTES, MESSAGE_KINDS, Kind, kinds_of, offsets_of
from horolog.protocol.rocketmq import layout
from horolog.storage.flipped_bit import changed_bytes, flipped_back, put_right

_KINDS = frozenset(Kind)


class FlippedFrame(NamedTuple):
    """A frame as it was written.

    pieces  (log position, bytes) to write again; empty if the frame now reads well from the disk
    """

    header: FrameHeader
    body: bytes
    pieces: list[tuple[int, bytes]]

    @property
    def repair(self) -> Repair:
        """The report for the operator."""
        where = f"commit log: a flipped bit of the frame at log position {self.header.base}"
        return Repair(f"{where} was put right by its check sum", 1)


def flipped_frame(
    read: Callable[[int, int], bytes], log_id: int, at: int, stop: int
) -> FlippedFrame | None:
    """Repair the frame at `at`, which fails its check and ends at or before `stop`.

    None if the damage is no flipped bit.
    """
    raw = read(at, HEADER_BYTES)
    head = put_right(raw[:-4], raw[-4:]) if len(raw) == HEADER_BYTES else None
    header = None if head is None else parse(head)
    if header is None or not _is_known(header, log_id, at) or header.end > stop:
        return None
    found = raw if header.padding else raw + read(at + HEADER_BYTES, header.length)
    whole = head if header.padding else flipped_back(found, HEADER_BYTES)
    if whole is None or len(whole) != len(found):
        return None
    body = whole[HEADER_BYTES:]
    if not (header.padding or _is_sound(body, header.count)):
        return None
    pieces = [(at + offset, byte) for offset, byte in changed_bytes(found, whole)]
    return FlippedFrame(header, body, pieces)


def _is_known(header: FrameHeader, log_id: int, at: int) -> bool:
    is_new = header.version > VERSION or header.incompatible & ~KNOWN_INCOMPATIBLE
    return header.base == at and header.log_id == log_id and not is_new


def _is_sound(body: bytes, count: int) -> bool:
    """Return whether a body holds `count` records of known kinds, with intact messages."""
    if not count:
        return not body
    try:
        offsets = offsets_of(body, count)
        kinds = kinds_of(body, offsets).tolist()
        ends = [*offsets[1:].tolist(), len(body)]
        return all(
            kind in _KINDS and (kind not in MESSAGE_KINDS or holds_its_body(body[first:end]))
            for kind, first, end in zip(kinds, offsets.tolist(), ends, strict=True)
        )
    except HorologError:
        return False


def holds_its_body(record: bytes) -> bool:
    """Return whether a message's body has the CRC in its layout; MESSAGE_CORRUPTED if no layout."""
    stored = layout.decode(record[HEAD_BYTES:])
    return bool(crc32(stored.body) & 0x7FFFFFFF == stored.body_crc)
