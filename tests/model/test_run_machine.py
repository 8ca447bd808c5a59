"""Runs against a dict: flushed, merged, recalled, handed over, searched; over failures, kills and power cuts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.run.merge import Part, flush, merge
from horolog.delay.run.reader import Run
from horolog.errors import ErrorCode, HorologError
from horolog.testing.disk import FaultyDisk, Killed

DIR = "runs"
LOG_ID = 9
DUE = st.integers(0, 40)  # × 250 ms: seconds are shared, and so are milliseconds
KEYS = 12


class Row(NamedTuple):
    """A message as the model knows it."""

    due_ms: int
    origin: int
    row: int
    key: int
    topic: int
    tags_code: int
    record: bytes


@dataclass
class Open:
    """A run, which of its rows are still its own, and which of them are gone."""

    run: Run
    first: int
    stop: int
    gone: set[int] = field(default_factory=set)

    def part(self, first: int) -> Part:
        gone = np.array([row in self.gone for row in range(first, self.stop)], bool)
        return Part(self.run, first, self.stop, gone if self.gone else None)


def rows_of(run: Run, first: int, stop: int) -> list[Row]:
    entries, rows, damaged = run.readable(first, stop)
    records = run.records(entries)
    assert damaged == 0
    assert rows.tolist() == list(range(first, stop))
    assert record_crcs(records, entries["origin"]).tolist() == entries["crc"].tolist()
    names = ("due_ms", "origin", "row", "key", "topic", "local")
    columns = [entries[name].tolist() for name in names]
    return list(map(Row._make, zip(*columns, map(bytes, records), strict=True)))


class RunMachine(RuleBasedStateMachine):
    """`waiting` is what must be in the runs; it is moved by the same words as in the broker."""

    @initialize(seed=st.integers(0, 1_000))
    def start(self, seed: int) -> None:
        self.disk = FaultyDisk(seed)
        self.disk.make_dir(DIR)
        self.waiting: dict[int, Row] = {}  # by origin
        self.open: dict[str, Open] = {}
        self.names = 0
        self.origin = 0
        self.now_ms = 0

    def name(self) -> str:
        self.names += 1
        return f"{self.names:04d}"

    def add(self, name: str) -> None:
        run = Run.open(self.disk, DIR, name, LOG_ID)
        self.open[name] = Open(run, 0, run.rows)

    def new_rows(self, due: list[int], seed: int) -> list[Row]:
        chance = np.random.default_rng(seed)
        numbers = chance.integers(0, [KEYS, 3, 1 << 32, 30], (len(due), 4)).tolist()
        content = chance.bytes(30 + len(due))
        found = []
        for i, (each, (key, topic, tags_code, size)) in enumerate(zip(due, numbers, strict=True)):
            at = self.now_ms + 250 * each
            record = content[i : i + size + 1]
            found.append(Row(at, self.origin, 0, key, topic, tags_code, record))
            self.origin += 50
        return found

    def flush(self, rows: list[Row]) -> str:
        entries = np.zeros(len(rows), ENTRY)
        for name, column in zip(
            ("due_ms", "origin", "row", "key", "topic", "local"),
            zip(*rows, strict=True),
            strict=False,
        ):
            entries[name] = column
        records = [row.record for row in rows]
        entries["size"] = [len(record) for record in records]
        entries["position"] = np.cumsum(entries["size"]) - entries["size"]
        entries["crc"] = record_crcs(records, entries["origin"])
        entries["sum"] = entry_sums(entries)
        content = memoryview(b"".join(records))
        name = self.name()
        flush(
            self.disk,
            DIR,
            name,
            log_id=LOG_ID,
            entries=entries,
            read=lambda some: [
                content[at : at + size]
                for at, size in zip(some["position"].tolist(), some["size"].tolist(), strict=True)
            ],
        )
        self.disk.sync_dir(DIR)
        return name

    @rule(due=st.lists(DUE, min_size=1, max_size=12), seed=st.integers(0, 99))
    def flush_some(self, due: list[int], seed: int) -> None:
        rows = self.new_rows(due, seed)
        self.add(self.flush(rows))
        self.waiting |= {row.origin: row for row in rows}

    @rule(
        count=st.sampled_from([1_024, 1_025, 2_500]),
        spread=st.integers(1, 3_000),
        seed=st.integers(0, 99),
    )
    def flush_many(self, count: int, spread: int, seed: int) -> None:
        due = np.random.default_rng(seed).integers(0, spread, count).tolist()
        rows = self.new_rows(due, seed)
        self.add(self.flush(rows))
        self.waiting |= {row.origin: row for row in rows}

    @precondition(lambda self: self.open)
    @rule(
        chosen=st.integers(0, (1 << 16) - 1),
        cuts=st.lists(DUE, min_size=1, max_size=4),
        slice_rows=st.sampled_from([1, 7, 300, 65_536]),
    )
    def merge(self, chosen: int, cuts: list[int], slice_rows: int) -> None:
        """What is due from a boundary on moves into new runs; the inputs keep what is due before it."""
        bounds = sorted(self.now_ms + 250 * cut for cut in cuts)
        inputs = [each for i, each in enumerate(self.open.values()) if chosen >> i & 1]
        firsts = [min(each.stop, max(each.first, each.run.row_at(bounds[0]))) for each in inputs]
        parts = [each.part(first) for each, first in zip(inputs, firsts, strict=True)]
        names = [self.name() for _ in bounds]
        found = merge(self.disk, DIR, parts, bounds, names, log_id=LOG_ID, slice_rows=slice_rows)
        self.disk.sync_dir(DIR)
        for each, first in zip(inputs, firsts, strict=True):
            each.stop = first
            each.gone = {row for row in each.gone if row < first}
        for info in found:
            i = names.index(info.name)
            assert bounds[i] <= info.first_ms <= info.last_ms
            assert i + 1 == len(bounds) or info.last_ms < bounds[i + 1]
            self.add(info.name)
        for name, each in list(self.open.items()):
            if each.first == each.stop:
                each.run.close()
                del self.open[name]
                self.disk.remove(f"{DIR}/{name}.run")

    @precondition(lambda self: self.waiting)
    @rule(place=st.integers(0, 1 << 30))
    def recall(self, place: int) -> None:
        row = list(self.waiting.values())[place % len(self.waiting)]
        due, origin = np.array([row.due_ms]), np.array([row.origin], np.uint64)
        holders = 0
        for each in self.open.values():
            at = int(each.run.find(due, origin)[0])
            if each.first <= at < each.stop and at not in each.gone:
                assert at in each.run.rows_of_key(row.key)
                each.gone.add(at)
                holders += 1
        assert holders == 1
        del self.waiting[row.origin]

    @rule(quarters=st.integers(1, 12))
    def hand_over(self, quarters: int) -> None:
        """Time goes on; what is due leaves by its run's cursor."""
        self.now_ms += 250 * quarters
        found = []
        for each in self.open.values():
            stop = min(each.stop, max(each.first, each.run.row_at(self.now_ms)))
            rows = rows_of(each.run, each.first, stop)
            found += [row for i, row in enumerate(rows, each.first) if i not in each.gone]
            each.first = stop
        expected = [row for row in self.waiting.values() if row.due_ms < self.now_ms]
        assert sorted(found) == sorted(expected)
        for row in expected:
            del self.waiting[row.origin]

    @rule(key=st.integers(0, KEYS), second=st.integers(0, 12))
    def search(self, key: int, second: int) -> None:
        by_key, by_second = [], []
        second += self.now_ms // 1000
        for each in self.open.values():
            found = each.run.rows_of_key(key)
            live = [i for i in found if each.first <= i < each.stop and i not in each.gone]
            by_key += [int(origin) for origin in each.run.entries(np.array(live, int))["origin"]]
            first = max(each.first, each.run.row_at(second * 1000))
            stop = min(each.stop, each.run.row_at(second * 1000 + 1000))
            rows = rows_of(each.run, first, max(first, stop))
            by_second += [row.origin for i, row in enumerate(rows, first) if i not in each.gone]
            counts = each.run.second_counts(second // 3_600, each.first, each.stop)
            assert counts[second % 3_600] == len(rows)
        waiting = self.waiting.values()
        assert sorted(by_key) == [row.origin for row in waiting if row.key == key]
        assert sorted(by_second) == [row.origin for row in waiting if row.due_ms // 1000 == second]

    @rule(
        due=st.lists(DUE, min_size=1, max_size=12),
        stop_at=st.integers(0, 12),
        how=st.sampled_from(["fail", "kill", "power cut"]),
    )
    def flush_is_cut_off(self, due: list[int], stop_at: int, how: str) -> None:
        """A file that was not finished is not there, or refused; the broker has its rows elsewhere."""
        self.cut_off(stop_at, how, lambda: self.flush(self.new_rows(due, stop_at)))

    @rule(stop_at=st.integers(0, 40), how=st.sampled_from(["fail", "kill", "power cut"]))
    def merge_is_cut_off(self, stop_at: int, how: str) -> None:
        parts = [each.part(each.first) for each in self.open.values()]
        if parts:
            names = [self.name(), self.name()]
            bounds = [0, self.now_ms + 2_500]
            self.cut_off(
                stop_at, how, lambda: merge(self.disk, DIR, parts, bounds, names, log_id=LOG_ID)
            )

    def cut_off(self, stop_at: int, how: str, call: object) -> None:
        left = stop_at

        def effect(_: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise HorologError(ErrorCode.DISK_FAILED, "cut off") if how == "fail" else Killed

        assert callable(call)
        self.disk.on_effect = effect
        try:
            call()
        except (HorologError, Killed):
            pass
        finally:
            self.disk.on_effect = None
        if how != "fail":
            self.disk.crash(power_cut=how == "power cut")
        self.reopen()

    def reopen(self) -> None:
        """A start: the named runs are whole, the others are swept, whole or refused."""
        for file in self.disk.list(DIR):
            name = file.removesuffix(".run")
            if name in self.open:
                each = self.open[name]
                each.run = Run.open(self.disk, DIR, name, LOG_ID)
                continue
            try:
                run = Run.open(self.disk, DIR, name, LOG_ID)
            except HorologError as error:
                assert error.code is ErrorCode.DAMAGED
            else:
                rows_of(run, 0, run.rows)
            self.disk.remove(f"{DIR}/{file}")
        self.disk.sync_dir(DIR)

    @precondition(lambda self: hasattr(self, "open"))
    @invariant()
    def nothing_is_lost_or_twice(self) -> None:
        found = []
        for each in self.open.values():
            rows = rows_of(each.run, each.first, each.stop)
            assert rows == sorted(rows)
            found += [row for i, row in enumerate(rows, each.first) if i not in each.gone]
        assert sorted(found) == sorted(self.waiting.values())


RunMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestRuns = RunMachine.TestCase
