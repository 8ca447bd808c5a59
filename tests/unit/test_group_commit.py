"""What is committed has been synced, where the flush policy says so: the writes of an engine on a disk that loses power."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from horolog.broker.life.space import DiskPressure
from horolog.clock import SimulatedClock
from horolog.limits import FLUSH_INTERVAL_MS
from horolog.log.segment import SegmentWriter, Write, segment_name
from horolog.server.group_commit import Flush, GroupCommit
from horolog.storage.api import read_file
from horolog.testing.disk import FaultyDisk

SEGMENT_BYTES = 4_096
SEEDS = range(12)  # of power cuts: each keeps by chance what was not synced
DEADLINE_S = 120


class Log:
    """A group commit over a disk in memory; `put` returns when the end of its write was told."""

    def __init__(self, flush: Flush, seed: int = 0) -> None:
        self.disk = FaultyDisk(seed)
        self.disk.make_dir("log")
        self.disk.sync_dir("")
        self.clock = SimulatedClock(0)
        self.writer = SegmentWriter(self.disk, "log", SEGMENT_BYTES)
        self.writer.prepare(0)
        self.space = SimpleNamespace(keep_free=0, is_confined=False)
        space = cast(DiskPressure, self.space)
        self.group = GroupCommit(self.writer, space, self.clock, flush, 0)
        self.failed: list[BaseException] = []
        self._ended = asyncio.Event()
        self.group.begin(asyncio.get_running_loop(), self._ended.set, self._fail)

    def _fail(self, error: BaseException) -> None:
        self.failed.append(error)
        self._ended.set()

    async def put(self, *pieces: bytes, at: int = 0) -> None:
        """Write pieces one after the other from a log position on."""
        for piece in pieces:
            self.group.gather([Write(at, piece)], at + len(piece))
            at += len(piece)
        await self.write()

    async def write(self) -> None:
        """Write what is gathered, or sync what is due to be."""
        self._ended.clear()
        self.group.write()
        if self.group.is_busy:
            await self._ended.wait()

    async def rung(self, ring: Callable[[], None]) -> None:
        """Let a timer ring, and wait for the write that it begins."""
        self._ended.clear()
        ring()
        await self._ended.wait()

    def after_power_cut(self, base: int, length: int) -> bytes:
        """What the disk has of a segment when the power is back."""
        self.group.end_jobs()
        self.disk.crash(power_cut=True)
        return read_file(self.disk, f"log/{segment_name(base)}")[:length]


def _timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Callable[[], None]]]:
    """Timers that the loop is given from now on: seconds, and what they call."""
    timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(wait_s: float, ring: Callable[[], None]) -> SimpleNamespace:
        timers.append((wait_s, ring))
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    return timers


def run(story: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


@pytest.mark.parametrize("seed", SEEDS)
def test_p2_what_is_committed_with_flush_sync_outlives_a_power_cut(seed: int) -> None:
    async def story() -> None:
        log = Log("sync", seed)
        await log.put(b"first", b"second")
        assert (log.group.commit, log.group.durable) == (11, 11)
        await log.put(b"third", at=11)
        assert log.group.is_quiet
        assert log.after_power_cut(0, 16) == b"firstsecondthird"

    run(story)


@pytest.mark.parametrize(("keep_free", "size"), [(0, SEGMENT_BYTES), (2_000, 100)])
def test_a_segment_is_allocated_whole_where_nobody_needs_what_is_left(
    keep_free: int, size: int
) -> None:
    async def story() -> None:
        log = Log("sync")
        log.disk.capacity_bytes = 2 * SEGMENT_BYTES + 1_000
        log.space.keep_free = keep_free
        await log.put(b"a" * SEGMENT_BYTES, b"b" * 100)
        assert log.disk.open(f"log/{segment_name(SEGMENT_BYTES)}").size() == size

    run(story)


def test_a_write_under_way_has_an_age() -> None:
    """Of a disk that hangs, nothing else tells: its sync is measured when it ends."""

    async def story() -> None:
        log = Log("sync")
        assert log.group.under_way_s == 0
        log.group.gather([Write(0, b"first")], 5)
        writing = asyncio.create_task(log.write())
        await asyncio.sleep(0)
        assert log.group.is_busy
        assert 0 < log.group.under_way_s < log.group.under_way_s
        await writing
        assert log.group.under_way_s == 0

    run(story)


@pytest.mark.parametrize("seed", SEEDS)
def test_p2_a_write_over_two_segments_syncs_both(seed: int) -> None:
    async def story() -> None:
        log = Log("sync", seed)
        await log.put(b"a" * SEGMENT_BYTES, b"b" * 100)
        assert log.group.durable == SEGMENT_BYTES + 100
        assert log.after_power_cut(0, SEGMENT_BYTES) == b"a" * SEGMENT_BYTES
        assert read_file(log.disk, f"log/{segment_name(SEGMENT_BYTES)}")[:100] == b"b" * 100

    run(story)


@pytest.mark.parametrize("flush", ["interval", "os"])
def test_what_was_not_synced_is_not_called_durable(flush: Flush) -> None:
    """Frames state the durable position; a start would take a torn tail below it for damage, and refuse it."""

    async def story() -> None:
        log = Log(flush)
        log.clock.advance(FLUSH_INTERVAL_MS - 1)
        await log.put(b"first")
        assert (log.group.commit, log.group.durable) == (5, 0)
        await log.write()
        assert log.group.durable == 0
        log.clock.advance(1)
        await log.write()
        assert log.group.durable == (5 if flush == "interval" else 0)
        log.group.end_jobs()

    run(story)


def test_an_idle_log_is_not_synced_again() -> None:
    async def story() -> None:
        log = Log("interval")
        await log.put(b"first")
        log.clock.advance(FLUSH_INTERVAL_MS)
        await log.write()
        assert log.group.durable == 5
        log.clock.advance(10 * FLUSH_INTERVAL_MS)
        log.group.write()
        assert not log.group.is_busy
        log.group.end_jobs()

    run(story)


@pytest.mark.parametrize("seed", SEEDS)
def test_p2_an_interval_that_is_over_syncs_what_was_written_before(seed: int) -> None:
    async def story() -> None:
        log = Log("interval", seed)
        await log.put(b"first")
        log.clock.advance(FLUSH_INTERVAL_MS)
        await log.write()
        assert log.group.durable == 5
        assert log.after_power_cut(0, 5) == b"first"

    run(story)


def test_p2_an_idle_log_is_synced_although_its_timer_rings_early(monkeypatch) -> None:
    """By the clock the interval is not over then, and nobody may write again for hours."""

    async def story() -> None:
        rings = _timers(monkeypatch)
        log = Log("interval")
        for at in range(3):
            log.clock.advance(1)
            await log.put(b"x", at=at)
        ((wait_s, ring),) = rings  # one for all of them
        assert wait_s == FLUSH_INTERVAL_MS / 1000
        log.clock.advance(FLUSH_INTERVAL_MS - 4)
        await log.rung(ring)
        assert log.group.durable == 3
        await log.put(b"x", at=3)
        assert log.group.durable == 3
        assert rings[-1][0] == wait_s, "an interval of its own has begun"
        log.group.end_jobs()

    asyncio.run(story())


def test_p2_a_timer_that_rings_during_a_write_is_not_forgotten(monkeypatch) -> None:
    async def story() -> None:
        rings = _timers(monkeypatch)
        log = Log("interval")
        await log.put(b"x")
        log._ended.clear()
        log.group.gather([Write(1, b"y")], 2)
        log.group.write()
        rings.pop()[1]()
        await log._ended.wait()
        assert log.group.durable == 0
        wait_s, ring = rings.pop()
        assert wait_s == 0
        await log.rung(ring)
        assert log.group.durable == 2
        log.group.end_jobs()

    asyncio.run(story())


def test_no_interval_goes_on_after_the_stop(monkeypatch) -> None:
    """Its end would write with a thread that has gone."""

    async def story() -> None:
        timers: list[asyncio.TimerHandle] = []
        call_later = asyncio.get_running_loop().call_later

        def noted(wait_s: float, ring: Callable[[], None]) -> asyncio.TimerHandle:
            timers.append(call_later(wait_s, ring))
            return timers[-1]

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", noted)
        log = Log("interval")
        await log.put(b"x")
        log.group.end_jobs()
        assert [timer.cancelled() for timer in timers] == [True]

    asyncio.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_makes_durable_what_no_policy_has_synced(seed: int) -> None:
    async def story() -> None:
        log = Log("os", seed)
        await log.put(b"first")
        log.group.end_jobs()
        log.group.close(sync=True)
        assert log.after_power_cut(0, 5) == b"first"

    run(story)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_write_that_fails_commits_nothing(operation: str) -> None:
    """Nobody may be answered for it: `fail` is told, and `written` is not."""

    async def story() -> None:
        log = Log("sync")
        await log.put(b"first")
        log.group.end_jobs()
        log.group.begin(asyncio.get_running_loop(), pytest.fail, log._fail)
        log.disk.fail_next(operation)
        await log.put(b"second", at=5)
        assert len(log.failed) == 1
        assert (log.group.commit, log.group.durable) == (5, 5)
        log.group.end_jobs()

    run(story)
