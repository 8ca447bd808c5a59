"""A disk in memory with seeded faults: lost bytes, torn writes, flipped bits, I/O errors, no space.

Without faults, `FaultyDisk` keeps the contract of `storage.api`, and passes the real disk's tests.

* A file is its durable content and the list of changes since the last sync (`inode`).
* A directory is its durable names and the names that are seen now.

`crash(power_cut=True)` keeps, drops or tears each un-synced change, and keeps or undoes each
un-synced change of a name. `crash(power_cut=False)` is a `kill -9`: everything written stays. Files
opened before a crash raise. All randomness comes from the seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import Unreadable
from horolog.testing.inode import Inode

_AGES_MS = 1 << 52  # longer than any limit
_STALL_MAX_S = 120  # so that a test that forgets to end a stall still ends


class Killed(Exception):
    """Raised by an `on_effect` hook to end the process before that effect happens."""


class FaultyFile:
    """A file of a FaultyDisk (`storage.api.File`)."""

    def __init__(self, disk: FaultyDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = disk.life

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise AssertionError(f"{self._path} was opened before a crash")

    def size(self) -> int:
        """Return the current length."""
        self._check()
        return self._inode.size

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""
        self._check()
        length = max(0, min(length, self._inode.size - offset))
        for first, stop in self._disk.unreadable.get(self._path, ()):
            if offset < stop and first < offset + length:
                raise Unreadable(self._path, "Input/output error")
        found = bytes(self._inode.seen[offset : offset + length])
        return found + bytes(length - len(found))

    def view(self) -> memoryview:
        """Return a copy of the whole file as it is now."""
        return memoryview(self.read(0, self._inode.size))

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Write all of `content` at `offset`, or only a part if the disk runs full."""
        self._check()
        self._disk.effect("write", self._path)
        piece = bytes(content)
        if not piece:
            return
        room = self._disk.room_for(self._inode, offset, len(piece))
        if room:
            self._inode.put(offset, piece[:room])
        if room < len(piece):
            raise HorologError(
                ErrorCode.DISK_FULL, f"write {self._path}: no space", field=self._path
            )

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long."""
        self._check()
        self._disk.effect("allocate", self._path)
        if size > self._inode.size:
            grown = size - self._inode.size
            if self._disk.room_for(self._inode, self._inode.size, grown) < grown:
                raise HorologError(
                    ErrorCode.DISK_FULL, f"allocate {self._path}: no space", field=self._path
                )
            self._inode.resize(size)

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        self._check()
        self._disk.effect("truncate", self._path)
        self._inode.resize(size)

    def begin_write_back(self, offset: int, length: int) -> None:
        """Change nothing: un-synced bytes are in doubt in any case."""
        self._check()

    def sync(self) -> None:
        """Make content and length durable; a sync that fails leaves both in doubt."""
        self._check()
        try:
            self._disk.effect("sync", self._path)
        except HorologError:
            self._inode.doubtful = True
            raise
        self._inode.sync()

    def close(self) -> None:
        """Do nothing: un-synced bytes stay un-synced."""


class FaultyDisk:
    """A directory tree in memory (`storage.api.Storage`) with seeded faults.

    on_effect       called before each change with name and path; may raise Killed or HorologError
    capacity_bytes  writes beyond this size are cut short with DISK_FULL
    unreadable      by path: bytes [from, to) of which every read fails with an I/O error
    idle            by path: answers of `idle_ms`; this disk has no clock, and says of all others
                    that nobody has written them for ages
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.life = 0
        self.on_effect: Callable[[str], None] | None = None
        self.capacity_bytes = capacity_bytes
        self.unreadable: dict[str, list[tuple[int, int]]] = {}
        self.idle: dict[str, int] = {}
        self._random = Random(seed)
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._dirs: set[str] = {""}
        self._fail: dict[str, int] = {}
        self._stall: tuple[str, threading.Event] | None = None

    # --- faults ---------------------------------------------------------------------------------

    def effect(self, operation: str, path: str) -> None:
        """Run the hook for a change that is about to happen, then the requested fault, if any."""
        if self.on_effect is not None:
            self.on_effect(f"{operation} {path}")
        if self._stall is not None and f"{operation} {path}".startswith(self._stall[0]):
            assert self._stall[1].wait(_STALL_MAX_S), f"{operation} {path} hung for ever"
        if operation in self._fail:
            self._fail[operation] -= 1
            if self._fail[operation] < 0:
                del self._fail[operation]
                raise HorologError(
                    ErrorCode.DISK_FAILED, f"{operation} {path}: Input/output error", field=path
                )

    def fail_next(self, operation: str, after: int = 0) -> None:
        """Make the next "write" or "sync" fail with an I/O error, or the one after `after` more."""
        self._fail[operation] = after

    @contextmanager
    def stalled(self, change: str) -> Iterator[None]:
        """Make changes that begin with `change` ("sync shard-00/log") hang while the block runs."""
        assert self._stall is None, "one stall at a time"
        self._stall = (change, gate := threading.Event())
        try:
            yield
        finally:
            self._stall = None
            gate.set()

    def clear_faults(self) -> None:
        """Forget failures that have not happened yet."""
        self._fail.clear()

    def flip(self, path: str, offset: int, *bits: int) -> Callable[[], bool]:
        """Flip bits of a byte on the disk; return a function that flips them back.

        That function returns False if the file is gone or its byte has changed. Un-synced bytes lie
        in memory, and come from there at a power cut.
        """
        inode = self._names[path]
        for bit in bits:
            inode.flip(offset, bit)
        rotten = inode.seen[offset] if offset < len(inode.seen) else -1

        def heal() -> bool:
            there = offset < len(inode.seen) and inode.seen[offset] == rotten
            if there and self._names.get(path) is inode:
                self.flip(path, offset, *bits)
                return True
            return False

        return heal

    def room_for(self, inode: Inode, offset: int, length: int) -> int:
        """Return how many of `length` bytes from `offset` may be written; holes take space too."""
        if self.capacity_bytes is None:
            return length
        allowed = self.capacity_bytes - (self.used_bytes() - inode.size)
        return max(0, min(length, allowed - offset))

    def crash(self, *, power_cut: bool) -> None:
        """End the process (what was written stays), or cut the power (un-synced changes may go)."""
        self.life += 1
        self._fail.clear()
        if power_cut:
            self._lose_names()
            for inode in {id(i): i for i in self._names.values()}.values():
                inode.cut_power(self._random)
            self._durable_names = dict(self._names)
            return
        for inode in self._names.values():
            inode.doubtful = False

    def _lose_names(self) -> None:
        names: dict[str, Inode] = {}
        for path in sorted({*self._names, *self._durable_names}):  # same for every hash seed
            now, before = self._names.get(path), self._durable_names.get(path)
            chosen = now if now is before or self._random.random() < 0.5 else before
            if chosen is not None:
                names[path] = chosen
        self._whole_renames(names)
        self._names = names
        for path in names:  # a file whose removal was lost is back in its directory
            self.make_dir(path.rpartition("/")[0])

    def _whole_renames(self, names: dict[str, Inode]) -> None:
        """Make each rename one change: a durable file ends with its old name or its new one."""
        old = {id(inode): path for path, inode in sorted(self._durable_names.items())}
        moved = [
            (old[id(inode)], path, inode)
            for path, inode in sorted(self._names.items())
            if old.get(id(inode), path) != path
        ]
        for _ in moved:  # undoing one rename may bring back a file that another rename moved
            for source, target, inode in moved:
                at_source, at_target = names.get(source) is inode, names.get(target) is inode
                if at_source and at_target:
                    del names[target]
                    if target in self._durable_names:
                        names[target] = self._durable_names[target]
                elif not at_source and not at_target:
                    names[target if source in names else source] = inode

    # --- storage.api ----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """Open a file for reading and writing."""
        if path in self._dirs:
            raise HorologError(ErrorCode.DISK_FAILED, f"open {path}: Is a directory", field=path)
        inode = self._names.get(path)
        if inode is None:
            parent = path.rpartition("/")[0]
            if not create or parent not in self._dirs:
                raise FileNotFoundError(path)
            self.effect("create", path)
            inode = self._names[path] = Inode()
        return FaultyFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name exists."""
        return path in self._names or path in self._dirs

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file, or a link to one."""
        return path in self._names

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        prefix = f"{path}/" if path else ""
        found = {
            name[len(prefix) :].partition("/")[0]
            for name in (*self._names, *self._dirs)
            if name.startswith(prefix) and name != path
        }
        return sorted(found - {""})

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; directories themselves are never lost."""
        parts = path.split("/")
        for i in range(len(parts)):
            self._dirs.add("/".join(parts[: i + 1]))

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`; a power cut may undo that for some files of a directory."""
        if not self.exists(source):
            raise FileNotFoundError(source)
        self.effect("rename", source)
        inside = f"{source}/"
        for name in [name for name in self._names if name == source or name.startswith(inside)]:
            self._names[target + name.removeprefix(source)] = self._names.pop(name)
        moved = {name for name in self._dirs if name == source or name.startswith(inside)}
        self._dirs = self._dirs - moved | {target + name.removeprefix(source) for name in moved}
        self.unreadable.pop(target, None)  # the file of that name is now elsewhere on the disk

    def remove(self, path: str) -> None:
        """Remove a file, or a directory of that name."""
        if path in self._dirs:
            self.remove_dir(path)
        if path in self._names:
            self.effect("remove", path)
            del self._names[path]

    def remove_dir(self, path: str) -> None:
        """Remove a directory with everything in it, or a file of that name."""
        if path in self._names:
            self.remove(path)
        inside = [name for name in self._names if name.startswith(f"{path}/")]
        if inside or path in self._dirs:
            self.effect("remove", path)
        for name in inside:
            del self._names[name]
        self._dirs = {d for d in self._dirs if d != path and not d.startswith(f"{path}/")}

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.effect("sync", path)
        for name in {*self._names, *self._durable_names}:
            if name.rpartition("/")[0] == path:
                if name in self._names:
                    self._durable_names[name] = self._names[name]
                else:
                    self._durable_names.pop(name, None)

    def names(self) -> tuple[str, ...]:
        """Return the paths of all files, sorted."""
        return tuple(sorted(self._names))

    def used_bytes(self) -> int:
        """Return the space taken by all files."""
        return sum(inode.size for inode in self._names.values())

    def free_bytes(self) -> int:
        """Return the space left."""
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self.used_bytes())

    def idle_ms(self, path: str) -> int:
        """Return what `idle` says."""
        return self.idle.get(path, _AGES_MS)
