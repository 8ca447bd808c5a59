"""A file that is only appended to, mapped for reading; what was cut off it while the broker runs reads as zeros.

A page that is mapped and no longer there would end the process, so the size is looked at before each use.  Zeros do
not verify: who reads them takes them for damage, and says so.
"""

from __future__ import annotations

from horolog.storage.api import File


class Mapped:
    """Views of one file; `drop` them before it is truncated or closed."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._view = memoryview(b"")
        self._cut_at = -1  # the size of a file that was cut: the view is a copy then

    def view(self, size: int) -> memoryview:
        """At least the first `size` bytes, which were all written."""
        there = self._file.size()
        if there >= size:
            if len(self._view) < size or self._cut_at >= 0:
                self._view, self._cut_at = self._file.view(), -1
        elif len(self._view) < size or self._cut_at != there:
            self.drop()
            self._view = memoryview(self._file.read(0, there) + bytes(size - there))
            self._cut_at = there
        return self._view

    def drop(self) -> None:
        """Give the view back."""
        self._view, self._cut_at = memoryview(b""), -1
