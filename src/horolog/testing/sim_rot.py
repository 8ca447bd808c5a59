"""Bit rot in a simulation: bits of files flip while the broker runs; the checker knows the cost.

A flip is drawn from the files on the disk: segments of the log, near hours, runs, far buffers,
consume queues, the key index and checkpoints. `Rot` reads the bytes before they rot and notes whose
they were (`History.excused`):

file            messages that may be missing
==============  ================================================================================
log segment     those of the frame with the bit, its header included; none after the frame
delay.log, idx  the message of the record or entry
state.          none while the broker runs; at a start without the log, those of that hour
run             that of the row or record; those of the whole run for header, footer, directories
queue           the message of the unit
keys            none, but messages may be called NOT_FOUND from here on
checkpoint      none: the older checkpoint, or the log, has everything
==============  ================================================================================

All other messages must come as if nothing had happened; no message comes garbled, early or twice;
and if one is missing, the broker has reported a problem. A start may refuse (DAMAGED, recovery rows
4 and 10) as long as a file is rotten: then the bytes are restored, as from a backup, and the next
start must succeed. Before that, a copy of the disk is salvaged: a broker must start with it twice,
run to the end of time, and keep its invariants.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import numpy as np

from horolog.broker import relations
from horolog.broker.life.salvage import salvage, survey
from horolog.delay.entry import ENTRY, ENTRY_BYTES
from horolog.delay.run.format import HEADER_BYTES as RUN_HEADER
from horolog.errors import ErrorCode, HorologError
from horolog.log.queue_unit import UNIT, UNIT_BYTES
from horolog.protocol.rocketmq.message import key_hash
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import DIRECTORY, SimBroker
from horolog.testing.sim_checks import History

_KINDS = {
    "/log/": 6,
    "delay.log": 4,
    "delay.idx": 4,
    ".run": 4,
    ".cq": 3,
    "state.": 1,
    "/keys/": 1,
    ".ckpt": 1,
}
_SALVAGED_ROWS = (4, 5, 6)
_LIVES_ON_MS = 10 * 60_000


class Rot(Actor):
    """The rot of one simulation.  `flips` describes every flip, oldest first."""

    def __init__(self, seed: int, broker: SimBroker, history: History, disk: FaultyDisk) -> None:
        super().__init__(seed, [0.02, 0.05, 0.15])
        self._broker = broker
        self._history = history
        self._disk = disk
        self._heal: list[Callable[[], bool]] = []
        self._runs: dict[str, bytes] = {}  # contents before the first flip
        self.flips: list[str] = []
        self.salvages = 0  # after which a copy of the broker continued to run
        self.keys: set[int] = set()  # key hashes of all messages whose bytes have flipped

    def turn(self) -> str:
        """Flip a bit or two of a byte somewhere; return a description."""
        kind = self._random.choices(list(_KINDS), list(_KINDS.values()))[0]
        paths = [
            path
            for path in self._disk.names()
            if kind in path and path.startswith(f"{DIRECTORY}/") and "/staging/" not in path
        ]
        if not paths:
            return f"no {kind} to rot"
        path = self._random.choice(paths)
        content = self._content(path)
        low, high = self._written(path, content)
        if low >= high:
            return f"nothing of {path} to rot"
        offset = self._random.randrange(low, high)
        ids = self._ids_at(path, kind, content, offset)
        self._history.excused |= ids
        # A single flipped bit is repaired
        bits = self._random.sample(range(8), self._random.choice([1, 2]))
        self._heal.append(self._disk.flip(path, offset, *bits))
        self.flips.append(f"{path} byte {offset}: {len(ids)} messages")
        return f"rot: {self.flips[-1]} {sorted(ids)[:5]}"

    def _content(self, path: str) -> bytes:
        file = self._disk.open(path)
        return file.read(0, file.size())

    def _written(self, path: str, content: bytes) -> tuple[int, int]:
        """Return the range of bytes that may rot.

        In the log that is the part that a frame on the disk calls durable: the rest may pass for a
        torn tail.
        """
        if "/log/" not in path:
            return 0, len(content)
        base = int(path.rpartition("/")[2].removesuffix(".log"))
        synced = self._broker.durable
        stated = [f.durable for f in self._broker.watch.frames if f.end <= synced]
        stop = max([self._broker.shard.last_checkpoint.position, *stated])
        start = self._broker.watch.frames[0].base if self._broker.watch.frames else 0
        return max(0, start - base), min(len(content), stop - base)

    def _ids_at(self, path: str, kind: str, content: bytes, offset: int) -> set[str]:
        """Return the ids of the messages whose bytes these are; add their key hashes to `keys`."""
        if kind == "/log/":
            at = int(path.rpartition("/")[2].removesuffix(".log")) + offset
            return self._ids(
                key for f in self._broker.watch.frames if f.base <= at < f.end for key in f.keys
            )
        if kind == ".run":
            return self._ids_in_run(self._runs.setdefault(path, content), offset)
        if kind == ".cq":
            units = np.frombuffer(content, UNIT, len(content) // UNIT_BYTES)
            hit = units["position"][offset // UNIT_BYTES : offset // UNIT_BYTES + 1].tolist()
            return self._ids(key for key, at in self._broker.watch.positions.items() if at in hit)
        names = self._disk.names()
        if kind == "/keys/":
            self._history.lost_keys = True
        if kind in (".ckpt", "/keys/"):
            return set()
        if "/runs/" in path and kind == "state.":  # state of a run: `<name>.state.<version>`
            run = f"{path.partition('.state.')[0]}.run"
            whole = self._runs.setdefault(run, self._content(run)) if run in names else b""
            return self._ids_in_run(whole, 0) if whole else set()
        beside = f"{path.rpartition('/')[0]}/delay.idx"
        index = self._content(beside) if beside in names else b""  # a sweep was interrupted
        entries = np.frombuffer(index, ENTRY, len(index) // ENTRY_BYTES)
        if kind == "delay.idx":
            entries = entries[offset // ENTRY_BYTES : offset // ENTRY_BYTES + 1]
        elif kind == "delay.log":
            starts = entries["position"].astype(np.int64)
            entries = entries[(starts <= offset) & (offset < starts + entries["size"])]
        return self._ids(entries["key"].tolist())

    def _ids_in_run(self, content: bytes, offset: int) -> set[str]:
        rows = int.from_bytes(content[24:32], "little")
        entries = np.frombuffer(content, ENTRY, rows, RUN_HEADER)
        starts = entries["position"].astype(np.int64)
        ends = starts + entries["size"]
        row = (offset - RUN_HEADER) // ENTRY_BYTES
        if 0 <= row < rows:
            entries = entries[row : row + 1]
        elif starts[0] <= offset < ends[-1]:
            entries = entries[(starts <= offset) & (offset < ends)]
        return self._ids(entries["key"].tolist())

    def _ids(self, keys: Iterable[int]) -> set[str]:
        wanted = set(keys)
        self.keys |= wanted
        sends = self._history.messages
        return {name for name, row in sends.items() if key_hash(row["topic"], name) in wanted}

    def restored(self, error: HorologError) -> bool:
        """Return whether this error may refuse a start; if so, restore all rotten bytes."""
        if error.code is not ErrorCode.DAMAGED or not self._heal:
            return False
        if any(f"(recovery row {row}:" in error.message for row in _SALVAGED_ROWS):
            self._salvage()
        heal, self._heal = self._heal, []
        for each in reversed(heal):
            each()
        return True

    def _salvage(self) -> None:
        """Salvage a copy of the disk, and run a broker on it."""
        disk = copy.copy(self._disk)
        disk.on_effect = None
        disk = copy.deepcopy(disk)
        disk.capacity_bytes = None
        disk.crash(power_cut=False)
        broker = self._broker.twin(disk)
        found = survey(disk, DIRECTORY, broker.meta)
        salvage(disk, DIRECTORY, broker.meta, found)
        try:
            broker.open()
        except HorologError as refusal:
            if "does not follow from what is left of the log" in refusal.message:
                return  # refused for a step of the lake, as the guide says
            raise
        self.salvages += 1
        for _ in range(2):
            relations.check_shard(broker.shard)
            broker.clock.advance(_LIVES_ON_MS)
            broker.settle(10_000)
            relations.check_shard(broker.shard)
            disk.crash(power_cut=True)
            broker.open()
