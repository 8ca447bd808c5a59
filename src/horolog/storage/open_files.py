"""A cache of open files of bounded size: the least recently used ones are closed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from horolog.errors import ErrorCode, HorologError


class _Closes(Protocol):
    def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound=_Closes)


class OpenFiles(Generic[K, F]):
    """Open files by key, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._files: OrderedDict[K, F] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[K]:
        return iter(self._files)

    def get(self, key: K) -> F | None:
        """Return the file of a key, if it is open, and mark it as the most recently used."""
        file = self._files.get(key)
        if file is not None:
            self._files.move_to_end(key)
        return file

    def open(self, key: K, open_file: Callable[[K], F]) -> F:
        """Open the file of a key.

        TOO_MANY_FILES if there is no descriptor for it, though all others were closed.
        """
        file = self._files[key] = self._open_closing_others(key, open_file)
        if len(self._files) > self.most:
            self._close_oldest()
        return file

    def _open_closing_others(self, key: K, open_file: Callable[[K], F]) -> F:
        while True:
            try:
                return open_file(key)
            except HorologError as error:
                if error.code is not ErrorCode.TOO_MANY_FILES or not self._files:
                    raise
            self._close_oldest()

    def _close_oldest(self) -> None:
        self._files.popitem(last=False)[1].close()

    def forget(self, key: K) -> None:
        """Remove the file of a key from the cache without closing it: its users keep it."""
        self._files.pop(key, None)

    def drop(self, key: K) -> None:
        """Close the file of a key, if it is open."""
        file = self._files.pop(key, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files; the next use opens them again."""
        for file in self._files.values():
            file.close()
        self._files.clear()
