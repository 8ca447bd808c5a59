"""Mapped files that are cut while the broker runs, or that cannot be mapped.

A page that is mapped and no longer there would end the process, so the size is looked at before each use.  What was
cut off reads as zeros.  They do not verify: who reads them takes them for damage, and says so.

To map a file takes a descriptor (TOO_MANY_FILES); where there is none, not even of the reserve, it is read.
"""

from __future__ import annotations

import mmap

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File


def is_cut(view: memoryview) -> bool:
    """Whether the file that a view shows has become shorter; then the view must not be read any more."""
    file = view.obj
    return isinstance(file, mmap.mmap) and file.size() < len(file)


def whole_view(file: File, size: int) -> tuple[memoryview, bool]:
    """The file, at least `size` bytes of it with zeros for what was cut off, and whether it was."""
    view = file.view()
    if len(view) >= size:
        return view, False
    return memoryview(file.read(0, size).ljust(size, b"\0")), True


class Mapped:
    """Views of a file that is only appended to; `drop` them before it is truncated or closed."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._view = memoryview(b"")
        self._cut_at = -1  # the size of a file that was cut: the view is a copy then

    def view(self, size: int) -> memoryview:
        """At least the first `size` bytes, which were all written; a copy of them if the file cannot be mapped."""
        try:
            return self.mapped(size)
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
        # No more than asked for: what lies after it may still be written again, and the copy would not show it.
        self._view, self._cut_at = memoryview(self._file.read(0, size).ljust(size, b"\0")), -1
        return self._view

    def mapped(self, size: int) -> memoryview:
        """The same for a file that is too long to be copied.  TOO_MANY_FILES if it cannot be mapped: read a part of it."""
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
