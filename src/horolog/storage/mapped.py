"""Views of mapped files that may be cut while the broker runs, or that cannot be mapped.

Reading a mapped page that is gone would end the process, so the size is checked before each use.
Bytes that were cut off read as zeros.  Zeros do not verify, so the reader treats and reports them
as damage.

Mapping a file takes a descriptor (TOO_MANY_FILES); where there is none, not even in the reserve,
the file is read.
"""

from __future__ import annotations

import mmap

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File


def is_cut(view: memoryview) -> bool:
    """Return whether the file of a view is shorter now; then the view must not be read any more.

    True as well if the length cannot be read: the caller opens the file again, and an error of that
    names the file.
    """
    file = view.obj
    if not isinstance(file, mmap.mmap):
        return False
    try:
        return file.size() < len(file)
    except OSError:
        return True


def whole_view(file: File, size: int) -> tuple[memoryview, bool]:
    """Return at least `size` bytes of a file, zeros for cut-off bytes, and whether any were."""
    view = file.view()
    if len(view) >= size:
        return view, False
    return memoryview(file.read(0, size).ljust(size, b"\0")), True


class Mapped:
    """Views of a file that is only appended to; `drop` them before it is truncated or closed."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._view = memoryview(b"")
        self._cut_at = -1  # size of a file that was cut, the view being a copy; −1: not cut

    def view(self, size: int) -> memoryview:
        """Return a view of at least the first `size` bytes, all of which were written.

        The view is a copy if the file cannot be mapped.
        """
        try:
            return self.mapped(size)
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
        # No more than asked for: later bytes may still change, and the copy would not show that.
        self._view, self._cut_at = memoryview(self._file.read(0, size).ljust(size, b"\0")), -1
        return self._view

    def mapped(self, size: int) -> memoryview:
        """Return a view of at least the first `size` bytes of a file that is too long to be copied.

        TOO_MANY_FILES if the file cannot be mapped: read a part of it.
        """
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
        """Release the view."""
        self._view, self._cut_at = memoryview(b""), -1
