"""The protocols of a disk; the only door between the core and files.

Paths are relative to the root of the storage, with "/" between parts.  Contract, kept by the real
disk (`storage.disk`) and by the fault-injecting one (`horolog.testing.disk`), and tested on both:

* `write` puts all bytes in place or raises; they are durable only after `sync` of the same file.
* a created, renamed or removed name is durable only after `sync_dir` of its directory.
* bytes between the old end and a write past it read as zeros.
* a directory in the place of a file cannot be opened (DISK_FAILED); `remove` and `remove_dir`
  remove either of them.
* any failure of the disk is a `HorologError` with code DISK_FAILED, or DISK_FULL when there is no
  space, or TOO_MANY_FILES when there is no descriptor for a file: it was not opened or mapped, and
  nothing is changed.
* a read that fails because the medium does not return the bytes is `Unreadable`; a read that fails
  for any other reason (no memory, a file server that is away) is not, and may succeed when it is
  repeated.
* a sync that fails is DISK_FAILED whatever the reason, and must not be repeated: the kernel may
  have dropped what it could not write, and a second sync would report success.
"""

from __future__ import annotations

from typing import Protocol

from horolog.errors import ErrorCode, HorologError


class Unreadable(HorologError):
    """DISK_FAILED of a read: the medium does not return these bytes, though perhaps others.

    why  in the system's words
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(ErrorCode.DISK_FAILED, f"read {path}: {why}", field=path)
        self.why = why


class File(Protocol):
    """One open file.  Offsets and lengths are bytes."""

    def size(self) -> int:
        """Return the current length."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def view(self) -> memoryview:
        """Return a read-only view of the file as it is now; take a new one after it has grown.

        The bytes may be mapped: drop the view before `truncate` or `close`.  TOO_MANY_FILES if the
        file cannot be mapped; `read` still works.
        """
        ...

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Write all of `content` at `offset`, extending the file if needed.

        The bytes are not durable before `sync`.
        """
        ...

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long, zero-filled, with its space reserved."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) to `size` bytes.  Not durable before `sync`."""
        ...

    def begin_write_back(self, offset: int, length: int) -> None:
        """Have the system begin to write these bytes to the disk, so that a later `sync` is short.

        Promises nothing: does nothing where the system has no such call.
        """
        ...

    def sync(self) -> None:
        """Return when content and length are durable."""
        ...

    def close(self) -> None:
        """Close; unsynced bytes stay with the operating system.  Closing twice is allowed."""
        ...


class Storage(Protocol):
    """A directory tree that one broker owns."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; create it if asked to.  Missing: FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name exists."""
        ...

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file, or a link to one."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it is missing or a file."""
        ...

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; existing ones are fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` atomically.

        A file replaces `target`; a directory is renamed with its content, to a name that is free.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory in its place with all its content; missing is fine."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove a directory with all its content, or a file in its place; missing is fine."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in that directory are durable."""
        ...

    def free_bytes(self) -> int:
        """Return the space left for this storage, in bytes."""
        ...

    def idle_ms(self, path: str) -> int:
        """Return how long ago a file or the names in a directory were changed.

        By the system's clock, whatever the broker's clock says.  Missing: 0, for somebody has just
        removed it.
        """
        ...


def replace_file(storage: Storage, directory: str, name: str, content: bytes) -> None:
    """Write a complete file atomically: temporary name, sync, rename, sync of the directory."""
    temporary = f"{directory}/{name}.tmp" if directory else f"{name}.tmp"
    target = f"{directory}/{name}" if directory else name
    write_file(storage, temporary, content)
    _make_way(storage, target)
    storage.rename(temporary, target)
    storage.sync_dir(directory)


def write_file(storage: Storage, path: str, content: bytes) -> None:
    """Write a file with just this content, and sync it.

    The name is durable after a sync of its directory.
    """
    _make_way(storage, path)
    file = storage.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, content)
        file.sync()
    finally:
        file.close()


def _make_way(storage: Storage, path: str) -> None:
    """Remove what is no file, such as a directory, and would make every write of the file fail."""
    if not storage.is_file(path):
        storage.remove(path)


def size_of(storage: Storage, path: str) -> int:
    """Return the bytes of a file; 0 if it is missing."""
    try:
        file = storage.open(path)
    except FileNotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()


def read_file(storage: Storage, path: str) -> bytes:
    """Read the whole content of a file; missing: FileNotFoundError."""
    file = storage.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()
