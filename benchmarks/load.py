"""What the benchmarks share: an engine on a directory of its own, and a stream of scheduled messages."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    MessageType,
    NewMessage,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

BATCH = 32
BODY = b"a" * 200
TOPIC = "bench"
WORK = Path(__file__).resolve().parents[1] / "build" / "bench"
QUEUES = 4


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Engine]:
    """A fresh engine with one DELAY topic, flush sync; the directory is removed at the end."""
    shutil.rmtree(directory, ignore_errors=True)
    engine = await open_engine(directory)
    await engine.submit(CreateTopic(TOPIC, TopicType.DELAY, QUEUES))
    try:
        yield engine
    finally:
        await engine.stop()
        shutil.rmtree(directory, ignore_errors=True)


def message(number: int, due_ms: int, tag: str | None = None) -> NewMessage:
    """One scheduled message with an id as official clients make them."""
    return encode(
        topic=TOPIC,
        body=BODY,
        message_id=f"01AABBCCDDEEFF{number:020X}",
        type=MessageType.DELAY,
        due_ms=due_ms,
        tag=tag,
        born_ms=due_ms,
    )


async def send_all(engine: Engine, n: int, due_ms: Callable[[int], int], senders: int = 32) -> None:
    """Send n messages in batches of 32 from `senders` callers that wait for each answer."""
    numbers = iter(range(0, n, BATCH))

    async def sender() -> None:
        for first in numbers:
            stop = min(first + BATCH, n)
            batch = [message(i, due_ms(i)) for i in range(first, stop)]
            await engine.submit(SendMessages(TOPIC, batch))

    await asyncio.gather(*[sender() for _ in range(senders)])


async def until_handed_over(engine: Engine, n: int) -> int:
    """Return when n messages are visible; gives how many of them were sent too late to have waited."""
    looks = 0
    while (handed_over := engine.broker.shard.handed_over) < n:
        if engine.failed.done():
            engine.failed.result()
        await asyncio.sleep(0.001)
        looks = looks + 1 if engine.broker.shard.handed_over == handed_over else 0
        if looks == 500:
            looks = 0
            if not (await engine.submit(DescribeBroker())).pending:
                break
    return n - engine.broker.shard.handed_over


async def schedule(n: int) -> dict[str, Any]:
    """Throughput of scheduling, due over the next 20 hours."""
    async with running(WORK / "schedule") as engine:
        start = engine.clock.wall_ms() + 3_600_000
        began, cpu = time.perf_counter(), time.process_time()
        await send_all(engine, n, lambda i: start + i * 7_919 % 72_000_000)
        took = time.perf_counter() - began
        spread = n / took
        cores = (time.process_time() - cpu) / took
    async with running(WORK / "schedule") as engine:
        due = engine.clock.wall_ms() + 3_600_000
        began = time.perf_counter()
        await send_all(engine, n, lambda i: due)
        same = n / (time.perf_counter() - began)
    return {
        "messages": n,
        "per_second_over_20_hours": round(spread),
        "per_second_one_millisecond": round(same),
        "cores": round(cores, 2),
    }


class Lateness:
    """Collects store time − due of every hand-over, where the core counts it."""

    def __init__(self, engine: Engine) -> None:
        self.columns: list[Any] = []
        self._shard = engine.broker.shard
        self._count = self._shard.counters.note_hand_over

    def __enter__(self) -> Lateness:
        def count(end: int, topics: Any, due_ms: Any) -> None:
            self._count(end, topics, due_ms)
            self.columns.append(self._shard.store_ms - due_ms)

        vars(self._shard.counters)["note_hand_over"] = count  # hides the method for this engine
        return self

    def __exit__(self, *error: object) -> None:
        del vars(self._shard.counters)["note_hand_over"]
