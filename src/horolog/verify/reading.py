"""Reads of a verification: in pieces, never a whole file, with a report of the progress."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from horolog.errors import ErrorCode, HorologError
from horolog.log.segment import segment_name
from horolog.storage.api import Storage
from horolog.verify.findings import Findings
from horolog.verify.holes import Holes

WINDOW_BYTES = 1 << 20
_SEGMENTS_MAX = 4
_FINDINGS = (ErrorCode.DAMAGED, ErrorCode.DISK_FAILED)
Report = Callable[[str, int, int], None]


class Reading:
    """State that all parts of one verification share.

    quick   leave out what must read the bodies: records and their sums
    report  called with what is being read, bytes done, bytes in all
    """

    def __init__(
        self, storage: Storage, findings: Findings, *, quick: bool, report: Report
    ) -> None:
        self.storage = storage
        self.findings = findings
        self.quick = quick
        self.total = 0
        self._done = 0
        self._report = report

    def size(self, path: str) -> int:
        """Return the bytes of a file; 0 if it does not exist."""
        with suppress(FileNotFoundError, HorologError):
            file = self.storage.open(path)
            try:
                return file.size()
            finally:
                file.close()
        return 0

    def tick(self, path: str, count: int) -> None:
        """Add to the bytes that are done."""
        self._done += count
        self._report(path, min(self._done, self.total), self.total)

    @contextmanager
    def source(self, path: str, *, counted: bool = True) -> Iterator[Source]:
        """Open a file to read, and close it afterwards; FileNotFoundError if it is missing."""
        file = Source(self, path, counted=counted)
        try:
            yield file
        finally:
            file.close()

    def part(self, path: str) -> Part:
        """Return a context for one file or step that turns read errors into findings.

        The verification then goes on.
        """
        return Part(self.findings, path)


class Part:
    """A context that turns a missing, damaged or unreadable file into a finding."""

    def __init__(self, findings: Findings, path: str) -> None:
        self._findings = findings
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Return True if the error has become a finding."""
        if isinstance(error, FileNotFoundError):
            self._findings.add(self._path, 0, "the file is missing")
            return True
        if isinstance(error, HorologError) and error.code in _FINDINGS:
            self._findings.add(self._path, 0, error.message)
            return True
        return False


class Source:
    """One file, read through a window."""

    def __init__(self, reading: Reading, path: str, *, counted: bool = True) -> None:
        self.path = path
        self._reading = reading
        self._file = reading.storage.open(path)
        self._counted = counted
        self._counted_to = 0
        self._at = 0
        self._window = b""
        self.size = self._file.size()

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        start = offset - self._at
        if start < 0 or start + length > len(self._window):
            self._at = offset
            self._window = self._file.read(offset, max(length, WINDOW_BYTES))
            start = 0
            end = offset + len(self._window)
            if self._counted and end > self._counted_to:
                self._reading.tick(self.path, end - max(self._counted_to, offset))
                self._counted_to = end
        if start == 0 and length == len(self._window):
            return self._window
        return self._window[start : start + length]

    def is_blank(self, start: int, stop: int) -> bool:
        """Return whether all existing bytes of [start, stop) are zero."""
        return self.first_set(start, stop) < 0

    def first_set(self, start: int, stop: int) -> int:
        """Return the offset of the first byte of [start, stop) that is not zero; −1 if none."""
        while start < stop:
            piece = self.read(start, min(WINDOW_BYTES, stop - start))
            if not piece:
                return -1
            if piece != bytes(len(piece)):
                return start + len(piece) - len(piece.lstrip(b"\0"))
            start += len(piece)
        return -1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LogBytes:
    """Records of the commit log by position.

    start  log position at which the log begins
    holes  bytes that are not what was written; may grow
    """

    def __init__(
        self, reading: Reading, place: str, segment_bytes: int, *, start: int, holes: Holes
    ) -> None:
        self.start = start
        self.holes = holes
        self._reading = reading
        self._place = place
        self._segment_bytes = segment_bytes
        self._sources: OrderedDict[int, Source] = OrderedDict()

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes at a log position; fewer if the log does not have them."""
        at = position % self._segment_bytes
        base = position - at
        source = self._sources.get(base)
        if source is None:
            path = f"{self._place}/{segment_name(base)}"
            try:
                source = Source(self._reading, path, counted=False)
            except FileNotFoundError:
                return b""
            self._sources[base] = source
            if len(self._sources) > _SEGMENTS_MAX:
                self._sources.popitem(last=False)[1].close()
        else:
            self._sources.move_to_end(base)
        return source.read(at, size)

    def close(self) -> None:
        """Close all segments."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()
