"""A data directory with a little of everything, for tests of the code that reads directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

from horolog.broker.settings import ShardSettings
from horolog.delay.far.compaction import FarSettings
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    MessageType,
    Recall,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.verify.directory import Verdict, verify_directory

SEGMENT = 1 << 15
HOUR = 3_600_000
FAR = ShardSettings(max_delay_ms=400 * 24 * HOUR, far=FarSettings(6_000, 2, 2))


async def until_merged(engine: Engine) -> None:
    """Let time pass until all runs are made and merged."""
    compaction = engine.broker.shard.delay.far.compaction
    while True:
        while compaction.job is not None:
            await asyncio.sleep(0)
        await engine.advance(1_000)
        if compaction.job is None:
            return


async def story(engine: Engine) -> None:
    """Make messages near and far, normal ones with keys, recalls, deliveries, checkpoints, runs.

    There are two checkpoints, and runs of which some are merged.
    """
    await engine.submit(CreateTopic("t", TopicType.MIXED, 2))
    await engine.submit(CreateTopic("u", TopicType.MIXED, 1))
    now = engine.clock.wall_ms()

    async def send(name: str, topic: str, dues: list[int], **more: object) -> None:
        kind = MessageType.DELAY if dues[0] else MessageType.NORMAL
        await engine.submit(
            SendMessages(
                topic,
                [
                    encode(
                        topic=topic,
                        body=b"b" * 100,
                        message_id=f"{name}-{i}",
                        type=kind,
                        due_ms=due,
                        tag="a" if i % 2 else None,
                        **more,  # type: ignore[arg-type]
                    )
                    for i, due in enumerate(dues)
                ],
            )
        )

    for lap in range(4):
        await send(f"near{lap}", "t", [now + 1_000 * (i % 7) + 5_000 * lap for i in range(20)])
        await send(f"now{lap}", "u", [0] * 10, keys=["k1", f"k{lap}"])
        await send(f"far{lap}", "u", [now + (30 + 9 * i) * HOUR + lap for i in range(20)])
        await engine.advance(4_000)
    await engine.submit(Recall("t", "near3-19", now + 1_000 * (19 % 7) + 15_000))
    await engine.submit(Recall("u", "far3-2", now + (30 + 18) * HOUR + 3))
    got = await engine.submit(Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c"))
    await engine.submit(Ack("g", "t", [m.receipt_handle for m in got.messages[:5]]))
    await until_merged(engine)  # else the two checkpoints that are kept name different runs
    # A merge drops earlier recalls, and then no run would have a state file of its own.
    await engine.submit(Recall("u", "far0-3", now + (30 + 27) * HOUR))
    await engine.checkpoint()
    await send("last", "t", [now + 3 * HOUR] * 5)
    await engine.advance(5_000)


async def make(data_dir: Path) -> None:
    engine = await open_engine(
        data_dir, clock="simulated", segment_bytes=SEGMENT, settings=FAR, start_ms=1_700_000_000_000
    )
    try:
        await story(engine)
    finally:
        await engine.stop()
    newest = sorted((data_dir / "shard-00/checkpoint").iterdir())[-1].read_bytes()
    for path in (data_dir / "shard-00/runs").glob("[0-9]*"):
        if path.name.partition(".")[0].encode() not in newest:
            path.unlink()  # of a run that has just been merged; the next start would remove it


def verify(data_dir: Path, *, quick: bool = False) -> Verdict:
    return verify_directory(Disk(data_dir, read_only=True), quick=quick)


def findings_text(verdict: Verdict) -> str:
    """Return a line for each finding."""
    return "\n".join(f"{f.file} {f.position}: {f.what}" for f in verdict.findings.kept)
