"""The worked example of `horolog.wheel.wheel`, step by step."""

from __future__ import annotations

import numpy as np

from horolog.delay.filing import Unfiled
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.lake.core.tier import LakeTier
from horolog.limits import HOUR_MS
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.testing.disk import FaultyDisk
from horolog.wheel.wheel import Wheel

TEN = 472_222 * HOUR_MS  # 10:00:00
A, B, C, D = TEN + 7_500, TEN + 9_000, TEN + 7_100, TEN + HOUR_MS * 7 // 2
E = TEN + 8_000


class Day:
    """A store, a wheel over it, and what was taken."""

    def __init__(self) -> None:
        self.store = DelayStore(FaultyDisk(), "hours", tier=LakeTier())
        self.wheel = Wheel(self.store)
        self.origin = 0

    def file(self, *due_ms: int) -> None:
        heads = np.zeros(len(due_ms), HEAD)
        heads["size"], heads["kind"], heads["due_ms"] = HEAD_BYTES, Kind.SCHEDULED, due_ms
        origins = np.arange(self.origin, self.origin + len(due_ms), dtype=np.uint64)
        self.origin += len(due_ms)
        records = memoryview(heads.tobytes())
        self.wheel.insert(*self.store.file(Unfiled(heads, origins, records, TEN))[0])

    def hand_over(self, at_ms: int) -> list[int]:
        refs = self.wheel.take(at_ms, 10).ref
        due_ms: list[int] = self.store.entries(refs)["due_ms"].tolist() if len(refs) else []
        self.store.settle(refs, EntryState.HANDED_OVER)
        return due_ms


def test_the_worked_example() -> None:
    day = Day()
    day.file(A, B, C, D)
    assert day.wheel.load(TEN, 1_000)
    assert (day.wheel.loaded, day.wheel.loaded_until) == (3, TEN // 1000 + 11)
    assert day.wheel.next_due_in(TEN) == 7_100
    day.file(E)
    assert day.wheel.loaded == 4
    assert day.hand_over(C) == [C]
    assert day.wheel.next_due_in(C) == 400
    assert day.hand_over(A) == [A]
    assert day.hand_over(TEN + 9_000) == [E, B]
    assert day.wheel.next_due_in(B) == D - 10_000 - B
    assert day.wheel.load(D - 10_001, 1_000)
    assert day.wheel.loaded == 0
    assert day.wheel.load(D - 10_000, 1_000)
    assert (day.wheel.loaded, day.hand_over(D)) == (1, [D])


class Rotten(DelayStore):
    """Something waits, says a damaged due time, before the second that is asked for."""

    def next_waiting(self, second: int) -> int | None:
        return super().next_waiting(min(second, A // 1000))


def test_no_second_is_loaded_twice_whatever_a_damaged_source_says() -> None:
    day = Day()
    day.store = Rotten(FaultyDisk(), "hours", tier=LakeTier())
    day.wheel = Wheel(day.store)
    day.file(A, B, C)
    for at_ms in (TEN, TEN + 1_000, TEN + 2_000):
        assert day.wheel.load(at_ms, 1_000)
        assert day.wheel.loaded == 3
    assert day.hand_over(TEN + 9_000) == [C, A, B]


def test_when_the_clock_steps_back_the_window_is_forgotten_and_loaded_again_once() -> None:
    day = Day()
    day.file(A, B, C, D)
    back = TEN - HOUR_MS
    assert day.wheel.load(TEN, 1_000)
    assert day.wheel.load(back, 1_000)
    assert (day.wheel.loaded, day.wheel.loaded_until) == (0, back // 1000 + 11)
    day.wheel.check_invariants()
    assert day.wheel.next_due_in(back) == C // 1000 * 1000 - 10_000 - back
    for at_ms in (TEN, TEN + 1_000, TEN - 1_000):
        assert day.wheel.load(at_ms, 1_000)
        assert day.wheel.loaded == 3, "a step back of a second forgets nothing"
    day.wheel.check_invariants()
    assert day.hand_over(TEN + 9_000) == [C, A, B]
