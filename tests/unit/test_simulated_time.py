"""A simulated clock that is moved far: messages come when they are due, and the disk does not work for the years.

After a start, too: leases go on where the clock does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from horolog.limits import DAY_MS, FINISHED_HOURS_MAX, HOUR_MS
from horolog.protocol.commands import (
    CreateTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.layout import decode
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.schedules import Content, CreateSchedule, Rule
from horolog.server.checkpointing import Checkpointing
from horolog.server.open_broker import open_engine
from horolog.server.simulated_time import CLOCK_NAME

DAYS = 60
DEADLINE_S = 60


def test_months_at_once_take_one_checkpoint_and_no_message_is_early_or_late(
    tmp_path: Path, monkeypatch
) -> None:
    checkpoints = []
    make = Checkpointing.carry_out

    def counted(checkpointing: Checkpointing, job) -> None:
        checkpoints.append(job)
        make(checkpointing, job)

    monkeypatch.setattr(Checkpointing, "carry_out", counted)

    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 24)
        try:
            await engine.submit(CreateTopic("t", TopicType.DELAY, 1))
            begin = engine.clock.wall_ms()
            dues = [begin + day * DAY_MS for day in range(1, DAYS + 1)]
            messages = [
                encode(
                    topic="t",
                    body=b"x",
                    message_id=f"m{due}",
                    type=MessageType.DELAY,
                    due_ms=due,
                )
                for due in dues
            ]
            await engine.submit(SendMessages("t", messages))
            await engine.advance(20_000)
            assert len(checkpoints) == 1
            await engine.advance((DAYS + 1) * DAY_MS)
            assert len(checkpoints) == 2  # the last moment is one like any other
            got = []
            for _ in range(2):
                answer = await engine.submit(Receive("g", "t", -1, "*", 32, 30_000, False, 0, "c"))
                got += [decode(message.layout) for message in answer.messages]
            assert [message.store_ms for message in got] == dues
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_hours_that_are_over_do_not_stay_open_while_days_fly(tmp_path: Path) -> None:
    """A message in every hour: were they closed only by the checkpoint at the end, a year would take 17 000 files."""
    days = 9

    async def story() -> None:
        engine = await open_engine(tmp_path, clock="simulated", segment_bytes=1 << 24)
        try:
            await engine.submit(CreateTopic("t", TopicType.DELAY, 1))
            rule, content = Rule(every_ms=HOUR_MS), Content("t", b"tick")
            await engine.submit(CreateSchedule("hourly", rule, content))
            await engine.advance(days * DAY_MS)
            shard = engine.broker.shard
            assert shard.handed_over == days * 24
            pieces = days * 24 // FINISHED_HOURS_MAX
            assert pieces <= engine.checkpointing.made <= 2 * pieces + 1
            assert len(shard.delay.near.hours) < FINISHED_HOURS_MAX
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_a_lease_ends_after_a_start_when_it_would_have_ended_without(tmp_path: Path) -> None:
    """The clock stands an hour ahead of the system's, and moves on by twenty minutes while the broker is down."""
    take = Receive("g", "t", -1, "*", 1, 30 * 60_000, False, 0, "c")

    async def story() -> None:
        engine = await open_engine(tmp_path, clock="simulated", segment_bytes=1 << 24)
        try:
            await engine.submit(CreateTopic("t", TopicType.NORMAL, 1))
            await engine.advance(3_600_000)
            message = encode(topic="t", body=b"x", message_id="m", type=MessageType.NORMAL)
            await engine.submit(SendMessages("t", [message]))
            assert (await engine.submit(take)).messages
        finally:
            await engine.stop()
        clock = tmp_path / CLOCK_NAME
        clock.write_text(f"{int(clock.read_text()) + 20 * 60_000}\n")
        engine = await open_engine(tmp_path, clock="simulated")
        try:
            await engine.advance(10 * 60_000 - 1)
            assert not (await engine.submit(take)).messages
            await engine.advance(1)
            assert [each.attempt for each in (await engine.submit(take)).messages] == [2]
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


@pytest.mark.parametrize("content", [b"", b"yesterday", b"-1", b"%d" % 2**63, b"9" * 5_000])
def test_a_clock_file_that_is_no_time_is_passed_over_and_reported(
    tmp_path: Path, content: bytes
) -> None:
    """As if it were missing: the log's newest time counts."""

    async def story() -> None:
        engine = await open_engine(tmp_path, clock="simulated", segment_bytes=1 << 24)
        await engine.submit(CreateTopic("t", TopicType.NORMAL, 1))
        await engine.advance(DAY_MS)
        message = encode(topic="t", body=b"x", message_id="m", type=MessageType.NORMAL)
        await engine.submit(SendMessages("t", [message]))
        was_ms = engine.clock.wall_ms()
        await engine.stop()
        (tmp_path / CLOCK_NAME).write_bytes(content)
        engine = await open_engine(tmp_path, clock="simulated")
        try:
            assert engine.clock.wall_ms() >= was_ms
            assert engine.clock.wall_ms() < was_ms + DAY_MS
            assert any(line.startswith("clock is no time") for line in engine.report)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
