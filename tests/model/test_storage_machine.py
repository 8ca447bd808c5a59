"""Any sequence of storage operations, crashes included, against a plain dict of what must be there.

The real disk and the faulty one do the same steps.  The model keeps for every file what is seen, and the length
up to which a power cut must leave it alone; a power cut happens on the faulty disk only, so it ends the
comparison of a run with the real one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from horolog.storage.api import Storage, read_file, replace_file
from horolog.storage.disk import Disk
from horolog.testing.disk import FaultyDisk

PATHS = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d/e/b"])
SIZES = st.integers(0, 3_000)
DIRECTORIES = ("", "d", "d/e")


class StorageMachine(RuleBasedStateMachine):
    """`seen` is what both disks show; `durable` what a power cut must leave (content, named for good)."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="horolog-storage-"))
        self.faulty = FaultyDisk(7)
        self.disks: list[Storage] = [Disk(self.root), self.faulty]
        for disk in self.disks:
            disk.make_dir("d/e")
        self.seen: dict[str, bytearray] = {}
        self.synced: dict[str, bytes | None] = {}  # None: changed since, anything is allowed
        self.named: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _touched(self, path: str) -> None:
        self.synced[path] = None

    @rule(path=PATHS)
    def create(self, path: str) -> None:
        for disk in self.disks:
            disk.open(path, create=True).close()
        if path not in self.seen:
            self.seen[path] = bytearray()
            self.synced[path] = None

    @rule(path=PATHS, offset=SIZES, content=st.binary(min_size=1, max_size=1_200))
    def write(self, path: str, offset: int, content: bytes) -> None:
        self.create(path)
        for disk in self.disks:
            file = disk.open(path)
            file.write(offset, memoryview(content))
            file.close()
        model = self.seen[path]
        model.extend(bytes(max(0, offset + len(content) - len(model))))
        model[offset : offset + len(content)] = content
        self._touched(path)

    @rule(path=PATHS, size=SIZES, allocate=st.booleans())
    def resize(self, path: str, size: int, allocate: bool) -> None:
        if path not in self.seen:
            return
        for disk in self.disks:
            file = disk.open(path)
            (file.allocate if allocate else file.truncate)(size)
            file.close()
        model = self.seen[path]
        if not allocate:
            del model[size:]
        model.extend(bytes(max(0, size - len(model))))
        self._touched(path)

    @rule(path=PATHS)
    def sync(self, path: str) -> None:
        if path not in self.seen:
            return
        for disk in self.disks:
            file = disk.open(path)  # not the one that wrote: any of them syncs the file
            file.sync()
            file.close()
        self.synced[path] = bytes(self.seen[path])

    @rule(directory=st.sampled_from(DIRECTORIES))
    def sync_dir(self, directory: str) -> None:
        for disk in self.disks:
            disk.sync_dir(directory)
        inside = {
            path for path in (*self.seen, *self.named) if path.rpartition("/")[0] == directory
        }
        self.named -= inside
        self.named |= inside & self.seen.keys()

    @rule(source=PATHS, to=PATHS)
    def rename(self, source: str, to: str) -> None:
        to = source.rpartition("/")[0] + "/" + to.rpartition("/")[2]  # in the same directory
        to = to.removeprefix("/")
        if source not in self.seen:
            for disk in self.disks:
                with pytest.raises(FileNotFoundError):
                    disk.rename(source, to)
            return
        for disk in self.disks:
            disk.rename(source, to)
        if source != to:
            self.seen[to] = self.seen.pop(source)
            self.synced[to] = self.synced.pop(source)
            self.named -= {source, to}

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        for disk in self.disks:
            disk.remove(path)
        self.seen.pop(path, None)
        self.synced.pop(path, None)
        self.named.discard(path)

    @rule(path=PATHS, content=st.binary(max_size=700))
    def replace(self, path: str, content: bytes) -> None:
        directory, _, name = path.rpartition("/")
        for disk in self.disks:
            replace_file(disk, directory, name, content)
        self.seen[path], self.synced[path] = bytearray(content), content
        self.sync_dir(directory)

    @rule()
    def kill(self) -> None:
        self.faulty.crash(power_cut=False)

    @precondition(lambda self: len(self.disks) == 2)
    @rule()
    def power_cut(self) -> None:
        self.faulty.crash(power_cut=True)
        for path in self.named:
            kept = self.synced[path]
            assert self.faulty.exists(path), f"{path} was durable"
            if kept is not None:
                assert read_file(self.faulty, path) == kept, f"{path} was synced"
        # What is left is what the faulty disk shows from here on; all of it is durable.
        self.disks = [self.faulty]
        self.seen = {path: bytearray(read_file(self.faulty, path)) for path in self.faulty.names()}
        self.synced = {path: bytes(content) for path, content in self.seen.items()}
        self.named = set(self.seen)

    @invariant()
    def all_show_the_same(self) -> None:
        for disk in self.disks:
            for directory in DIRECTORIES:
                prefix = f"{directory}/" if directory else ""
                expected = {
                    path.removeprefix(prefix).partition("/")[0]
                    for path in (*self.seen, "d/e/.")
                    if path.startswith(prefix)
                }
                assert disk.list(directory) == sorted(expected - {"."})
            for path, content in self.seen.items():
                file = disk.open(path)
                assert file.size() == len(content)
                assert file.read(1, 600) == content[1:601]
                view = file.view()
                assert view.readonly
                assert view == content
                del view
                file.close()


StorageMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStorageMachine = StorageMachine.TestCase
