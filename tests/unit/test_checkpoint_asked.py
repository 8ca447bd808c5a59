"""A checkpoint that somebody waits for: the core has the turns it needs, and nobody looks whether it is there yet."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.jobs import Jobs
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

DEADLINE_S = 20


def with_engine(tmp_path: Path, story: Callable[[Engine], Awaitable[None]]) -> None:
    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 22)
        try:
            await engine.submit(CreateTopic("t", TopicType.NORMAL, 1))
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


async def send(engine: Engine, name: str) -> None:
    await engine.submit(SendMessages("t", [encode(topic="t", body=b"x", message_id=f"m{name}")]))


def test_the_core_asks_for_the_turn_in_which_it_can_capture(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await send(engine, "1")
        await engine.until_quiet()
        engine.broker.checkpoints.request()
        log = engine.broker.shard.log
        effects = engine.broker.step(
            [], wall_ms=engine.clock.wall_ms(), mono_ms=0, commit=log.end, durable=log.end
        )
        assert engine.broker.checkpoints.is_decided
        assert effects.wake_in_ms == 0
        assert await engine.checkpoint() >= log.end

    with_engine(tmp_path, story)


def test_many_who_ask_at_once_get_what_covers_their_messages(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        asked = []
        for number in range(20):
            await send(engine, str(number))
            asked.append((engine.broker.shard.log.end, asyncio.ensure_future(engine.checkpoint())))
        for end, checkpoint in asked:
            assert await checkpoint >= end
        assert await engine.checkpoint() == engine.broker.shard.checkpoint_position

    with_engine(tmp_path, story)


def test_waiting_callers_are_answered_when_the_engine_ends(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await send(engine, "1")
        waits = asyncio.ensure_future(engine.checkpoint())
        await asyncio.sleep(0)
        engine.checkpointing.refuse()
        with pytest.raises(HorologError) as refusal:
            await waits
        assert refusal.value.code is ErrorCode.INTERNAL

    with_engine(tmp_path, story)


def test_who_asks_a_broker_that_has_failed_hears_why(tmp_path: Path, monkeypatch) -> None:
    """It was told that the broker is stopping, which did not say that the disk needs somebody."""
    real = os.pwrite
    is_broken = False

    def broken(fd: int, *args: object) -> int:
        if is_broken and "/log/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "pwrite", broken)

    async def story(engine: Engine) -> None:
        nonlocal is_broken
        is_broken = True
        for call in (send(engine, "1"), send(engine, "2"), engine.checkpoint(), engine.advance(1)):
            with pytest.raises(HorologError) as refusal:
                await call
            assert refusal.value.code is ErrorCode.DISK_FAILED
            said = refusal.value.message
            assert said.startswith("the broker has failed: write "), said
            assert said.endswith("/log/00000000000000000000.log: Input/output error")

    with_engine(tmp_path, story)


@pytest.mark.parametrize(
    ("call", "part"), [("pwrite", "/queues/"), ("ftruncate", ".ckpt.tmp")], ids=["capture", "job"]
)
def test_who_waits_for_one_without_space_learns_which_file_has_none(
    tmp_path: Path, monkeypatch, caplog, call: str, part: str
) -> None:
    """Also for what is written before the job: callers waited a minute, and heard of no reason."""
    real = getattr(os, call)
    is_full = False

    def full(fd: int, *args: object) -> object:
        if is_full and part in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, *args)

    monkeypatch.setattr(os, call, full)

    async def story(engine: Engine) -> None:
        nonlocal is_full
        is_full = True
        await send(engine, "1")
        for failed in (1, 2):
            with pytest.raises(HorologError) as refusal:
                await engine.checkpoint()
            assert refusal.value.code is ErrorCode.DISK_FULL
            assert part in refusal.value.message
            assert engine.checkpointing.failed == failed
        assert f"checkpoint not made, tried again later: {refusal.value.message}" in caplog.messages
        is_full = False
        assert await engine.checkpoint() == engine.broker.shard.log.end

    with_engine(tmp_path, story)


def test_a_stop_ends_with_a_checkpoint_of_all_while_messages_are_due(tmp_path: Path) -> None:
    """What is due is handed over after the next start, which finds no tail."""
    count = 400

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", segment_bytes=1 << 22)
        await engine.submit(CreateTopic("t", TopicType.DELAY, 1))
        begin = engine.clock.wall_ms() + 50
        messages = [
            encode(
                topic="t",
                body=b"x",
                message_id=f"m{number}",
                type=MessageType.DELAY,
                due_ms=begin + number,
            )
            for number in range(count)
        ]
        await engine.submit(SendMessages("t", messages))
        while not engine.broker.shard.handed_over:
            await asyncio.sleep(0)
        await engine.stop()
        shard = engine.broker.shard
        assert 0 < shard.handed_over < count
        assert shard.checkpoint_position == shard.log.end
        engine = await open_engine(tmp_path / "data")
        assert "recovery row 1: as left" in " ".join(engine.report)
        while engine.broker.shard.handed_over < count:
            await asyncio.sleep(0)
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_commands_that_come_during_the_stop_are_answered_too(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    """A peer that goes at that moment has its leases released, for example."""

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 22)
        await engine.submit(CreateTopic("t", TopicType.NORMAL, 1))
        asked = []
        until_quiet = engine.until_quiet

        async def until_quiet_and_send() -> None:
            await until_quiet()
            asked.append(asyncio.ensure_future(send(engine, str(len(asked)))))
            await asyncio.sleep(0)

        monkeypatch.setattr(engine, "until_quiet", until_quiet_and_send)
        await engine.stop()
        assert len(asked) == 2
        await asked[0]
        with pytest.raises(HorologError, match="the broker is stopping"):
            await asked[1]

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert not caplog.records


def test_jobs_run_in_order_and_tell_how_they_ended() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        jobs, done, failed = Jobs("t", loop), [], loop.create_future()
        failure = BaseException("a panic")

        def fail() -> None:
            done.append("second")
            raise failure

        jobs.submit(lambda: done.append("first"), done.append)
        jobs.submit(fail, failed.set_result)
        assert await failed is failure
        assert done in (["first", "second", None], ["first", None, "second"])
        jobs.stop()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
