"""Check of the commit log frame by frame, from its first segment to its end.

After a bad frame the next intact header is sought, so one flipped byte hides one frame: a *hole*,
of which the positions are known, but not the content.  Only the end of the log decides whether a
bad frame is damage: it is if a checkpoint or any intact frame states that the frame was durable.
Otherwise it is a torn tail, which any crash may leave and a start cuts off.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from horolog.log.file_names import number_of
from horolog.log.flipped_frame import flipped_frame
from horolog.log.frame import HEADER_BYTES, FrameHeader, body_intact, check_version, parse
from horolog.log.resync import headers_in
from horolog.log.segment import segment_name
from horolog.verify.holes import Holes
from horolog.verify.reading import Reading, Source


class Bad(NamedTuple):
    """A fault in log positions [first, stop).

    records  records that were there; −1: not known
    """

    first: int
    stop: int
    what: str
    records: int = -1

    @property
    def sentence(self) -> str:
        """The fault as text for a finding."""
        if self.stop <= self.first:
            return self.what
        held = "" if self.records < 0 else f" with {self.records} records"
        return f"{self.stop - self.first} bytes{held} cannot be read: {self.what}"


class LogWalk:
    """One pass over the log; iterate `frames` to its end, then call `report_bad_frames`.

    replayed_from  log position from which a start replays frames, and so reads their bodies
    """

    def __init__(
        self,
        reading: Reading,
        place: str,
        segment_bytes: int,
        *,
        log_id: int,
        shard: int,
        replayed_from: int,
    ) -> None:
        self._reading = reading
        self._place = place
        self._size = segment_bytes
        self._log_id = log_id
        self._shard = shard
        self._replayed_from = replayed_from
        self._epoch = 0
        self._stated = 0
        self._bad: list[Bad] = []
        self.holes = Holes()  # of the log as far as it has been read
        self._is_gapless = True  # every segment exists and could be read
        self._blank: list[int] = []  # log positions from which the rest of a segment is zero
        self.bases = self._segment_bases()
        self.start = self.bases[0] if self.bases else 0
        self.end = self.start  # after the last intact frame
        self.promised = 0  # intact frames state that the log was durable up to here

    def _segment_bases(self) -> list[int]:
        bases = []
        for name in self._reading.storage.list(self._place):
            base = number_of(name, "log")
            if not name.endswith(".log"):
                self._reading.findings.note(f"{self._place}/{name} is not a file of the broker")
                continue
            if base is None or base % self._size:
                self._reading.findings.add(
                    f"{self._place}/{name}", 0, "is not the name of a segment"
                )
                continue
            bases.append(base)
        bases.sort()
        for before, base in pairwise(bases):
            if base != before + self._size:
                self._reading.findings.add(
                    self._path(before + self._size), before + self._size, "the segment is missing"
                )
        return bases

    def _path(self, position: int) -> str:
        return f"{self._place}/{segment_name(position - position % self._size)}"

    def frames(self) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield intact frames in order.

        A quick verification reads, and checks, only bodies that a start reads; others are empty.
        """
        following = self.start
        for base in self.bases:
            if following < base:  # reported as missing; no further findings for what points there
                self._is_gapless = False
                self.holes.add(following, base)
            following = base + self._size
            is_read = False
            with (
                self._reading.part(self._path(base)),
                self._reading.source(self._path(base)) as source,
            ):
                yield from self._segment(source, base)
                is_read = True
            if not is_read:
                self._is_gapless = False
                first = max(base, self.end, self.holes.stop)
                if first < following:
                    self.holes.add(first, following)

    def _segment(self, source: Source, base: int) -> Iterator[tuple[FrameHeader, bytes]]:
        at = 0
        while at + HEADER_BYTES <= self._size:
            header = parse(source.read(at, HEADER_BYTES))
            why = self._wrong(header, base + at, base)
            if header is None or why:
                if header is None and source.is_blank(at, self._size):
                    self._blank.append(base + at)
                    self.holes.add(base + at, base + self._size)
                    return
                why += self._flipped(source, at, base)
                after = self._next_header(source, at + 1, base)
                self._pass_over(Bad(base + at, base + after, why))
                at = after
                continue
            body = b""
            if header.salvaged:
                self.holes.add(header.base, header.end)
                self._reading.findings.note(
                    f"{self._path(header.base)}: log positions {header.base} to {header.end} were "
                    "given up by a salvage"
                )
            elif header.padding:
                self._check_padding(source, at + HEADER_BYTES, base)
            elif not self._reading.quick or header.base >= self._replayed_from:
                body = source.read(at + HEADER_BYTES, header.length)
                if not body_intact(header, body):
                    what = "the body does not match its CRC" + self._flipped(source, at, base)
                    self._pass_over(Bad(header.base, header.end, what, header.count))
                    at += HEADER_BYTES + header.length
                    continue
            self._epoch, self._stated = header.epoch, header.durable
            self.promised = max(self.promised, header.durable)
            at += HEADER_BYTES + header.length
            self.end = base + at
            yield header, body
        self._check_padding(source, at, base)

    def _pass_over(self, bad: Bad) -> None:
        self._bad.append(bad)
        self.holes.add(bad.first, bad.stop)

    def _flipped(self, source: Source, at: int, base: int) -> str:
        """Return a remark on a frame that one flipped bit has damaged; else ""."""

        def read(position: int, length: int) -> bytes:
            return source.read(position - base, length)

        found = flipped_frame(read, self._log_id, base + at, base + self._size)
        if found is None:
            return ""
        return " (one flipped bit, which the broker puts right when it reads it)"

    def _wrong(self, header: FrameHeader | None, position: int, base: int) -> str:
        """Return what is wrong with a header; "" if it continues the log."""
        if header is None:
            return "there is no intact frame"
        if header.base != position:
            return f"the frame belongs at log position {header.base}"
        if (header.log_id, header.shard) != (self._log_id, self._shard):
            return f"the frame belongs to log {header.log_id:016x}, shard {header.shard}"
        check_version(header)
        if header.end > base + self._size:
            return "the frame is longer than its segment"
        if header.epoch < self._epoch:
            return f"the frame is of epoch {header.epoch}, the one before it of {self._epoch}"
        if header.epoch == self._epoch and header.durable < self._stated:
            return f"states durable up to {header.durable}, the frame before it {self._stated}"
        if header.durable > position:
            return f"states durable up to {header.durable}, after itself"
        return ""

    def _check_padding(self, source: Source, at: int, base: int) -> None:
        found = source.first_set(at, self._size)
        if found >= 0:
            self._bad.append(Bad(base + found, base + found, "the rest of the segment is not zero"))

    def _next_header(self, source: Source, at: int, base: int) -> int:
        """Return the offset of the next intact header in its place, or the segment's end."""

        def read(position: int, length: int) -> bytes:
            return source.read(position - base, length)

        for header in headers_in(read, base + at, base + min(source.size, self._size)):
            if not self._wrong(header, header.base, base):
                return header.base - base
        return self._size

    def report_bad_frames(self, promised: int) -> bool:
        """Turn bad frames into findings, or into notes where nothing was promised.

        Returns whether the log is whole.

        promised  log position up to which the checkpoints state that the log was durable
        """
        promised = max(promised, self.promised)
        findings = self._reading.findings
        blank = [
            Bad(first, first - first % self._size + self._size, "there is no frame")
            for first in self._blank
            if first < self.end
        ]
        bad = sorted([*self._bad, *blank])
        damage = [
            each._replace(stop=min(each.stop, promised)) for each in bad if each.first < promised
        ]
        for each in damage:
            what = f"{each.sentence}; it was durable, as is stated later"
            findings.add(self._path(each.first), each.first, what)
        self.holes.cut(promised)
        if len(damage) < len(bad):
            first = min(each.first for each in bad if each.first >= promised)
            findings.note(
                f"the log is torn at log position {first}: nothing after it was promised, a start "
                "cuts it off"
            )
        if self.end < promised and not damage:
            findings.add(
                self._path(self.end), self.end, f"the log ends here; {promised} had been durable"
            )
            return False
        return self._is_gapless and not damage
