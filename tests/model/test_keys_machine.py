"""Key runs against a dict of lists, over restarts at any length, torn files, damage and full disks."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from horolog.delay.entry_keys import KeyRuns
from horolog.errors import ErrorCode, HorologError
from horolog.testing.disk import FaultyDisk

DIR = "hour"
ROWS = 4  # of the buffer: runs have 4, 32 and 256 rows
FEW = st.integers(0, 6)
PARTS = st.one_of(st.just(1.0), st.floats(0, 1))
KEYS = st.one_of(FEW, FEW, st.integers(0, (1 << 64) - 1))


class KeysMachine(RuleBasedStateMachine):
    """The delay index, from which keys are read again, is the list of all keys."""

    @initialize(seed=st.integers(0, 1_000))
    def start(self, seed: int) -> None:
        self.disk = FaultyDisk(seed)
        self.disk.make_dir(DIR)
        self.full = False
        self.disk.on_effect = self.before
        self.checkpointed = 0
        self.keys: list[int] = []
        self.where: dict[int, list[int]] = {}
        self.runs = KeyRuns(self.disk, DIR, buffer_rows=ROWS)

    def before(self, effect: str) -> None:
        if self.full and effect.split(maxsplit=1)[0] in {"write", "create"}:
            raise HorologError(ErrorCode.DISK_FULL, effect)

    def read_keys(self, first: int, stop: int) -> np.ndarray:
        assert 0 <= first < stop <= len(self.keys)
        return np.array(self.keys[first:stop], np.uint64)

    def open(self, cut: float, tail: float) -> None:
        """Open at a part of the checkpointed length, then file the rest of the log, of whose end a part is lost."""
        count = round(self.checkpointed * cut)
        kept = self.checkpointed + round((len(self.keys) - self.checkpointed) * tail)
        replayed = self.keys[count:kept]
        del self.keys[count:]
        self.where = {}
        for i, key in enumerate(self.keys):
            self.where.setdefault(key, []).append(i)
        self.runs = KeyRuns(self.disk, DIR, buffer_rows=ROWS)
        self.runs.open(count, self.read_keys)
        self.append(replayed)

    def append(self, keys: list[int]) -> None:
        for key in keys:
            self.where.setdefault(key, []).append(len(self.keys))
            self.keys.append(key)
        self.runs.add(np.array(keys, np.uint64))

    @rule(keys=st.lists(KEYS, max_size=12))
    def add(self, keys: list[int]) -> None:
        self.append(keys)

    @rule(first=st.integers(0, 1 << 60), count=st.integers(1, 300), batch=st.integers(1, 40))
    def add_many(self, first: int, count: int, batch: int) -> None:
        keys = [(first + i * 0x9E3779B97F4A7C15) % (1 << 64) for i in range(count)]
        for at in range(0, count, batch):
            self.append(keys[at : at + batch])

    @rule(key=KEYS)
    def find(self, key: int) -> None:
        assert self.runs.find(key) == self.where.get(key, [])

    @rule()
    def checkpoint(self) -> None:
        """A checkpoint syncs the directory before it names a length."""
        self.disk.sync_dir(DIR)
        self.checkpointed = len(self.keys)

    @rule(cut=PARTS)
    def reopen(self, cut: float) -> None:
        self.runs.close()
        self.open(cut, 1.0)

    @rule(cut=PARTS)
    def kill(self, cut: float) -> None:
        self.disk.crash(power_cut=False)
        self.open(cut, 1.0)

    @rule(cut=PARTS, tail=PARTS)
    def power_cut(self, cut: float, tail: float) -> None:
        self.disk.crash(power_cut=True)
        self.open(cut, tail)

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        """Bits flip while the broker is down."""
        self.runs.close()
        for name in self.disk.list(DIR):
            size = self.disk.open(f"{DIR}/{name}").size()
            if size and data.draw(st.booleans()):
                at = data.draw(st.integers(0, size - 1))
                self.disk.flip(f"{DIR}/{name}", at, data.draw(st.integers(0, 7)))
        self.open(1.0, 1.0)

    @rule(
        first=st.integers(0, 400),
        count=st.integers(0, 400),
        content=st.binary(max_size=80),
        tail=st.sampled_from(["", ".tmp"]),
    )
    def plant(self, first: int, count: int, content: bytes, tail: str) -> None:
        """A foreign file is there at a start."""
        path = f"{DIR}/keys.{first:010d}.{count:010d}{tail}"
        if not self.full and not self.disk.exists(path):
            self.runs.close()
            self.disk.open(path, create=True).write(0, content)
            self.open(1.0, 1.0)

    @rule()
    def fill_or_empty_the_disk(self) -> None:
        self.full = not self.full

    @precondition(lambda self: hasattr(self, "runs"))
    @invariant()
    def counts(self) -> None:
        assert self.runs.count == len(self.keys)


KeysMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestKeys = KeysMachine.TestCase
