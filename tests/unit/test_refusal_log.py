"""What the log says of a full disk: once when messages begin to be refused, once when they are taken again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest
from worlds import made, over_quota

from horolog.broker.life.opening import ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.server.loop import Engine
from horolog.server.refusal_log import QUIET_MS, RefusalLog
from horolog.testing.disk import FaultyDisk

FULL = HorologError(ErrorCode.DISK_FULL, "disk: 1 byte is free")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [line for line in caplog.messages if line.startswith("messages are")]
    caplog.clear()
    return lines


def test_a_disk_at_the_edge_is_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = RefusalLog()
    for at in range(0, 3 * QUIET_MS, 1_000):
        lines.log_change(FULL if at % 2_000 else None, at)
    assert (
        said(caplog)
        == ["messages are refused disk: 1 byte is free", "messages are taken again"] * 3
    )
    lines.log_change(FULL, 4 * QUIET_MS)
    lines.log_change(FULL, 9 * QUIET_MS)
    assert len(said(caplog)) == 1


def test_the_log_reports_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    """Health and metrics told; whoever reads only the log saw nothing while every send was refused."""
    caplog.set_level(logging.INFO)

    async def run() -> None:
        disk, clock = FaultyDisk(), SimulatedClock(1_000)
        meta = ShardMeta(1, 0, 65_536)
        opened = open_shard(disk, "shard-00", meta, ShardSettings(), wall_ms=1_000, mono_ms=0)
        engine = Engine(opened, disk, clock)
        await engine.start()
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        disk.capacity_bytes = disk.used_bytes() + 10_000
        for _ in range(3):
            clock.advance(1_000)
            with pytest.raises(HorologError, match="are free"):
                await engine.submit(SendMessages("t", [made("m0")]))
        (line,) = said(caplog)
        assert line.startswith("messages are refused disk: 10000 bytes are free")
        disk.capacity_bytes = None
        clock.advance(1_000)
        await engine.submit(SendMessages("t", [made("m0")]))
        assert said(caplog) == ["messages are taken again"]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_p9_a_quota_that_nobody_can_see_keeps_the_last_segment_for_acks() -> None:
    """Sends went on until the log could not be written: the broker ended, and did not start again."""

    async def run() -> None:
        disk, clock = FaultyDisk(), SimulatedClock(1_000)
        settings = ShardSettings(reserve_bytes=16_384)
        meta = ShardMeta(1, 0, 65_536)
        opened = open_shard(disk, "shard-00", meta, settings, wall_ms=1_000, mono_ms=0)
        engine = Engine(opened, disk, clock)
        await engine.start()
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        names = iter(range(1_000_000))

        async def send() -> None:
            clock.advance(1_000)
            await engine.submit(SendMessages("t", [made(f"m{next(names)}", body=bytes(1_000))]))

        while engine.broker.shard.log.end < 4 * 65_536:
            await send()
        disk.on_effect = over_quota
        end = engine.broker.shard.log.end
        while engine.broker.shard.disk_refusal is None:
            with suppress(HorologError):
                await send()
        taken = engine.broker.shard.log.end - end
        assert 10_000 < taken < 2 * 65_536 - 16_384, "what was allocated, but for the reserve"
        with pytest.raises(HorologError, match="no further segment"):
            await send()
        take = Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c")
        handles = [each.receipt_handle for each in (await engine.submit(take)).messages]
        assert (await engine.submit(Ack("g", "t", handles))).refused == [None] * len(handles)
        disk.on_effect = None
        deadline = asyncio.get_running_loop().time() + 30
        while engine.broker.shard.disk_refusal is not None:
            assert asyncio.get_running_loop().time() < deadline
            with suppress(HorologError):
                await send()
        await send()
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))
