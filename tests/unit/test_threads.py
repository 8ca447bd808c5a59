"""What runs in a thread always says how it ended (`server.threads`), and who waits for it goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from horolog.broker.adopt.staging import ShardFiles
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, HorologError, first_line
from horolog.lake.serve.late import LatePromotion
from horolog.lake.serve.reader import LakeMessages
from horolog.lake.table import reading
from horolog.limits import HOUR_MS
from horolog.protocol.commands import CreateTopic, Recall, TopicType
from horolog.protocol.tier_commands import (
    DescribeTier,
    OffloadView,
    TellTierProblem,
    TierHour,
    TierView,
)
from horolog.server.adoptions import Adoptions
from horolog.server.jobs import Jobs
from horolog.server.line_writer import LineWriter
from horolog.server.open_broker import open_engine
from horolog.server.threads import in_pool, in_thread
from horolog.testing.disk import FaultyDisk


class Panic(BaseException):
    """As a library written in Rust raises it."""


def test_a_job_in_a_thread_ends_its_future_whatever_it_raises() -> None:
    def failing(error: BaseException) -> Any:
        def job() -> None:
            raise error

        return job

    async def run() -> None:
        assert await in_thread("t", lambda: 7) == 7
        assert await in_pool(lambda: 7) == 7
        for error in (Panic("lost"), StopIteration(), SystemExit(3)):
            for started in (in_thread("t", failing(error)), in_pool(failing(error))):
                with pytest.raises(HorologError, match=type(error).__name__):
                    await started
        with pytest.raises(KeyError):
            await in_thread("t", failing(KeyError("k")))

    asyncio.run(asyncio.wait_for(run(), 20))


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Have the system refuse threads inside."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_a_thread_that_is_refused_is_a_sentence() -> None:
    """TasksMax of systemd, a limit on pids: it was a traceback, or an internal error without a word of it."""

    async def run() -> None:
        with no_more_threads():
            for started in (in_thread("t", lambda: 7), in_pool(lambda: 7)):
                with pytest.raises(HorologError, match="no more threads"):
                    await started
            with pytest.raises(HorologError, match="no more threads"):
                Jobs("t", asyncio.get_running_loop())
            with pytest.raises(HorologError, match="no more threads"):
                LineWriter(None)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_broker_that_has_started_needs_no_more_threads(tmp_path: Path) -> None:
    """Its first checkpoint did, and its stop waited for ever for the one that could not be begun."""

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", segment_bytes=1 << 16)
        with no_more_threads():
            await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
            assert await engine.checkpoint() > 0
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    ("error", "said"),
    [(ValueError(), "ValueError"), (OSError("\nx"), "OSError"), (ValueError("a\nb"), "a")],
)
def test_an_error_always_says_something(error: Exception, said: str) -> None:
    assert first_line(error) == said


class Core:
    """One hour in the lake that is late; `told` are the problems."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.whys: list[str] = []
        self.busy = False

    def submit(self, command: Any) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.busy:
            answer.set_exception(HorologError(ErrorCode.TOO_MANY_REQUESTS, "busy"))
        elif isinstance(command, TellTierProblem):
            self.whys.append(command.why)
            answer.set_result(None)
        else:
            assert isinstance(command, DescribeTier)
            view = OffloadView(1, "a", 0, "lake", "uri1")
            answer.set_result(TierView(1, [view], [TierHour(1, 5, 1, "t", 1)]))
        return answer


@pytest.mark.parametrize("error", [ValueError(), Panic("index out of bounds"), StopIteration()])
def test_a_late_promotion_that_dies_is_reported_and_tried_again(
    error: BaseException,
) -> None:
    """An error without a text, or one that is no Exception, left the lock held and health green."""
    tries = []

    def promote_due(*_: Any, **__: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise error
        return 1, 1

    async def run() -> None:
        core = Core()
        hour = core.clock.wall_ms() // HOUR_MS
        waiting = cast("Any", SimpleNamespace(next_hour=hour))
        late = LatePromotion(cast("Any", core), waiting, promote_due, "http://127.0.0.1:1")
        await late.promote_late_hours()
        await late.promote_late_hours()
        await late.stop()
        assert len(tries) >= 2
        assert core.whys[0].startswith("lake: messages that are due soon cannot be read (")
        assert core.whys[-1] == ""

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_problem_that_a_busy_broker_does_not_take_is_reported_later() -> None:
    def promote_due(*_: Any, **__: Any) -> Any:
        raise OSError("gone")

    async def run() -> None:
        core = Core()
        core.busy = True
        waiting = cast("Any", SimpleNamespace(next_hour=core.clock.wall_ms() // HOUR_MS))
        late = LatePromotion(cast("Any", core), waiting, promote_due, "http://127.0.0.1:1")
        await late.promote_late_hours()
        core.busy = False
        await late.promote_late_hours()
        await late.stop()
        assert core.whys == ["lake: messages that are due soon cannot be read (gone)"]

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("error", [ValueError(), Panic("index out of bounds")])
def test_a_table_that_makes_its_reader_panic_cannot_be_read(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_rows(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(reading, "find_rows", find_rows)

    async def run() -> None:
        messages = LakeMessages(cast("Any", Core()))
        with pytest.raises(HorologError) as refused:
            await messages.look_for(Recall("t", "m", 5 * HOUR_MS + 1))
        assert refused.value.code is ErrorCode.IN_TIER

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_transaction_has_one_holder_also_between_two_of_them(tmp_path: Path) -> None:
    """A lock that was released, but not yet taken by who waits for it, was forgotten by the next call."""

    async def run() -> None:
        place = ShardFiles(FaultyDisk(), "shard-00", 1)
        adoptions = Adoptions(cast("Any", Core()), place, tmp_path, 1 << 20)
        inside = most = 0
        first, second = asyncio.Event(), asyncio.Event()

        async def hold(until: asyncio.Event) -> None:
            nonlocal inside, most
            async with adoptions._lock("a"):
                inside += 1
                most = max(most, inside)
                await until.wait()
                inside -= 1
            adoptions._lock("b")  # of another transaction, before the next holder has begun

        tasks = [asyncio.create_task(hold(first)), asyncio.create_task(hold(second))]
        while not inside:
            await asyncio.sleep(0)
        first.set()
        await tasks[0]
        tasks.append(asyncio.create_task(hold(second)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert most == 1
        second.set()
        await asyncio.gather(*tasks)
        assert most == 1
        assert not adoptions._busy

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
