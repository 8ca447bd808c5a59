"""A check of the frames of a segment while its bytes are copied; it keeps only the damage it found.

A frame whose body does not match its CRC is skipped by the length in its intact header; after a
damaged header the next header is searched for by its magic, its position and its check sum.
"""

from __future__ import annotations

from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from horolog.log.frame import HEADER_BYTES, MAGIC, FrameHeader, parse


class Damage(NamedTuple):
    """Log positions [first, stop) that fail their check, and what is wrong with them."""

    first: int
    stop: int
    what: str


class FrameWatch:
    """The check of one segment: `feed` all its bytes in order, `finish`, then read `damage`."""

    def __init__(self, base: int, log_id: int) -> None:
        self.damage: list[Damage] = []
        self._log_id = log_id
        self._at = base  # log position of the first byte that has not been checked
        self._rest = b""  # bytes from there on: the beginning of a header
        self._header: FrameHeader | None = None  # header of the frame whose body is being fed
        self._left = 0  # bytes of that body that are still to come
        self._crc = 0
        self._lost = -1  # log position where an intact header was expected; −1: none is missing

    def feed(self, piece: bytes) -> None:
        """Check the next bytes of the segment."""
        buffer = self._rest + piece if self._rest else piece
        view = memoryview(buffer)
        at, size = 0, len(buffer)
        while True:
            if self._header is not None:
                taken = min(self._left, size - at)
                if not self._header.padding:
                    self._crc = crc32(view[at : at + taken], self._crc)
                at += taken
                self._left -= taken
                if self._left:
                    break
                self._end_frame(self._header)
                self._header = None
            if at + HEADER_BYTES > size:
                break
            header = parse(view, at)
            if header is not None and self._belongs(header, self._at + at):
                self._begin_frame(header)
                at += HEADER_BYTES
                continue
            if self._lost < 0:
                self._lost = self._at + at
            found = buffer.find(MAGIC, at + 1)
            at = found if found >= 0 else max(at + 1, size - len(MAGIC) + 1)
        self._at += at
        self._rest = bytes(view[at:])

    def _belongs(self, header: FrameHeader, position: int) -> bool:
        return header.base == position and header.log_id == self._log_id

    def _begin_frame(self, header: FrameHeader) -> None:
        if self._lost >= 0:
            self.damage.append(Damage(self._lost, header.base, "there is no intact frame"))
            self._lost = -1
        self._header, self._left, self._crc = header, header.length, 0

    def _end_frame(self, header: FrameHeader) -> None:
        if not header.padding and self._crc != header.body_crc:
            what = f"the frame is damaged: its {header.count} records cannot be read"
            self.damage.append(Damage(header.base, header.end, what))

    def finish(self, *, is_whole: bool) -> None:
        """End the check.  `is_whole`: the whole segment was fed; the last bytes may be zeros."""
        end = self._at + len(self._rest)
        if self._header is not None:
            what = f"the frame ends {self._left} bytes early"
            self.damage.append(Damage(self._header.base, end, what))
        elif self._lost >= 0:
            self.damage.append(Damage(self._lost, end, "there is no intact frame"))
        elif self._rest and not (is_whole and not any(self._rest)):
            self.damage.append(Damage(self._at, end, "there is no intact frame"))
