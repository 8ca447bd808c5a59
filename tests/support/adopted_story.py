"""Data directories with adopted runs and offloads, made by the broker's own engine without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from audited import START_MS, TOPICS, message, message_id, open_directory, send

from horolog.broker.adopt.staging import Begun, ShardFiles
from horolog.delay.far.adopted import is_adopted_name
from horolog.delay.run.reader import Run
from horolog.delay.tier import Promotion
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.record import HEAD_BYTES
from horolog.protocol.adoption_commands import Adopted, BeginAdoption
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    Recall,
    RecallMany,
    Receive,
    Reschedule,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeOffload,
    Elsewhere,
    FreezeOffload,
    OffloadView,
    TierRow,
)
from horolog.server.loop import Engine
from horolog.storage.disk import Disk
from horolog.testing.sim_adoptions import Transaction

TOPIC = TOPICS[0]
MINUTE_MS = 60_000
Dues = dict[int, int]  # number of a message → due ms


class Row(NamedTuple):
    """A message that an offload takes."""

    due_ms: int
    origin: int
    row: int
    key: int
    record: bytes


def spread(first: int, count: int, from_ms: int, step_ms: int) -> Dues:
    """Return due times of `count` messages with numbers from `first` on, `step_ms` apart."""
    return {first + i: from_ms + i * step_ms for i in range(count)}


async def adopt(
    engine: Engine,
    path: Path,
    app: str,
    version: int,
    parts: Sequence[Dues],
    *,
    inline: bool = False,
) -> Adopted:
    """Adopt messages in one transaction with a file for each part."""
    answer = await engine.submit(BeginAdoption(app, version, TOPIC))
    now = engine.clock.wall_ms()
    transaction = Transaction(
        ShardFiles(Disk(path), "shard-00", engine.broker.shard.log.log_id),
        Begun(f"{version:016x}", app, version, TOPIC, now),
        answer.topic_id,
        answer.queues,
    )
    transaction.begin()
    transaction.stage([[message(TOPIC, n, due) for n, due in part.items()] for part in parts])
    done: Adopted = await engine.submit(transaction.prepare(now, inline=inline))
    transaction.end()
    return done


async def recall(engine: Engine, dues: Dues, numbers: Sequence[int]) -> None:
    for n in numbers:
        await engine.submit(Recall(TOPIC, message_id(n), dues[n]))


async def consume(engine: Engine) -> None:
    """Receive some messages as a group, and acknowledge a part of them."""
    got = await engine.submit(Receive("gates", TOPIC, -1, "*", 8, 10_000, False, 0, "me"))
    handles = [each.receipt_handle for each in got.messages[:5]]
    await engine.submit(Ack("gates", TOPIC, handles))


async def make_adopted(path: Path) -> None:
    """Make a directory with adopted files in every state, and rows recalled, moved and bulk recalled.

    One file is finished and gone, others are handed over in part, or untouched.
    """
    engine = await open_directory(path)
    for topic in TOPICS:
        await engine.submit(CreateTopic(topic, TopicType.DELAY, 2))
    await send(engine, TOPIC, range(200))
    soon = spread(1_000, 40, START_MS - 5_000, 1_000)
    later = spread(2_000, 200, START_MS + 20 * MINUTE_MS, 3 * MINUTE_MS)
    months = spread(3_000, 50, START_MS + 30 * DAY_MS, DAY_MS)
    assert (await adopt(engine, path, "load", 1, [soon, later, months])).files == 3
    await adopt(
        engine, path, "load", 2, [spread(4_000, 20, START_MS + HOUR_MS, HOUR_MS)], inline=True
    )
    untouched = spread(5_000, 9, START_MS + 3 * DAY_MS, 1)
    await adopt(engine, path, "other", 7, [untouched])
    await recall(engine, later | months, [2_003, 2_004, 2_150, 3_000, 3_049])
    for n in (2_010, 2_160, 3_007):
        due = (later | months)[n]
        await engine.submit(Reschedule(TOPIC, message_id(n), due, due + MINUTE_MS))
    window = START_MS + 40 * MINUTE_MS
    await engine.submit(RecallMany(TOPIC, window, window + 10 * MINUTE_MS))
    for i in range(6):
        await engine.advance(HOUR_MS)
        await send(engine, TOPICS[1], range(200 + 10 * i, 210 + 10 * i))
        await engine.checkpoint()
    await consume(engine)
    left = [name for name in Disk(path).list("shard-00/runs") if name.endswith(".run")]
    assert sum(is_adopted_name(name) for name in left) == 3, "the file of `soon` is finished"
    await engine.stop()


# --- offloads -------------------------------------------------------------------------------------


async def begin(engine: Engine, from_ms: int, app: str = "job") -> OffloadView:
    """Begin an offload and freeze it."""
    view: OffloadView = await engine.submit(BeginOffload(app, from_ms))
    await engine.submit(FreezeOffload(view.offload_id))
    found: OffloadView = await engine.submit(DescribeOffload(view.offload_id))
    return found


def exported(path: Path, view: OffloadView) -> list[Row]:
    """Return the rows that a job would write into the table."""
    found = []
    for frozen in view.runs:
        directory, _, name = frozen.path.rpartition("/")
        run = Run.open(Disk(path), directory, name.removesuffix(".run"), view.log_id)
        rows = np.arange(frozen.first, frozen.stop)
        if frozen.removed:
            bits = np.unpackbits(np.frombuffer(frozen.removed, np.uint8), bitorder="little")
            rows = rows[bits[: len(rows)] == 0]
        entries = run.entries(rows)
        for entry, record in zip(entries, run.records(entries), strict=True):
            origin, row = int(entry["origin"]), int(entry["row"])
            if frozen.adopted is not None:
                origin, row = frozen.adopted[0], row + frozen.adopted[1]
            found.append(Row(int(entry["due_ms"]), origin, row, int(entry["key"]), bytes(record)))
    return sorted(found)


async def commit(engine: Engine, path: Path, view: OffloadView) -> list[Row]:
    """Commit a frozen offload."""
    rows = exported(path, view)
    await engine.submit(CommitOffload(view.offload_id, len(rows), "lake"))
    return rows


async def make_offloaded(path: Path, *, under_way: bool = False) -> None:
    """Make two offloads and an aborted one, with recalls before, in and after each, and a promotion.

    under_way  leave a third offload open at the end of the log
    """
    engine = await open_directory(path)
    for topic in TOPICS:
        await engine.submit(CreateTopic(topic, TopicType.DELAY, 2))
    await send(engine, TOPIC, range(120))
    whole = spread(1_000, 30, START_MS + 6 * DAY_MS, HOUR_MS)
    parts = spread(2_000, 90, START_MS + 2 * HOUR_MS, 2 * HOUR_MS)
    sent = spread(6_000, 60, START_MS + 20 * HOUR_MS, 2 * HOUR_MS)
    await adopt(engine, path, "load", 1, [whole, parts])
    await adopt(engine, path, "load", 2, [sent], inline=True)
    dues = whole | parts | sent
    await recall(engine, dues, [1_003, 2_020, 2_080, 6_040])
    aborted = await begin(engine, START_MS + 3 * DAY_MS)
    await recall(engine, dues, [1_004, 2_081])
    await engine.submit(AbortOffload(aborted.offload_id))
    await engine.advance(HOUR_MS)
    first = await begin(engine, START_MS + 4 * DAY_MS)
    await recall(engine, dues, [1_005, 2_082, 6_050, 2_002])
    due = dues[1_006]
    await engine.submit(Reschedule(TOPIC, message_id(1_006), due, START_MS + 9 * DAY_MS))
    rows = await commit(engine, path, first)
    await recall_in_lake(engine, first.offload_id, rows[5:7], dues)
    more = spread(7_000, 40, START_MS + 3 * DAY_MS, 3 * HOUR_MS)
    await adopt(engine, path, "more", 1, [more])
    await engine.advance(2 * HOUR_MS)
    second = await begin(engine, START_MS + 3 * DAY_MS + 5 * HOUR_MS, "other")
    await recall_in_lake(engine, first.offload_id, rows[20:21], dues)
    await move_in_lake(engine, first.offload_id, rows[22], START_MS + 4 * HOUR_MS)
    await move_in_lake(engine, first.offload_id, rows[23], START_MS + 30 * DAY_MS)
    await recall(engine, more, [7_005])
    await commit(engine, path, second)
    await engine.checkpoint()
    await promote(engine, path, first.offload_id)
    await engine.advance(5 * HOUR_MS)
    await consume(engine)
    if under_way:
        await adopt(engine, path, "more", 2, [spread(8_000, 10, START_MS + 5 * DAY_MS, HOUR_MS)])
        await begin(engine, START_MS + 3 * DAY_MS)
        await recall(engine, parts, [2_036])
    await engine.stop()


async def recall_in_lake(engine: Engine, offload_id: int, rows: Sequence[Row], dues: Dues) -> None:
    names = {due: message_id(n) for n, due in dues.items()}
    for row in rows:
        found = (TierRow(offload_id, row.origin, row.row, row.due_ms),)
        answer = await engine.submit(
            Recall(
                TOPIC,
                names.get(row.due_ms, "gone"),
                row.due_ms,
                elsewhere=Elsewhere(found, (offload_id,)),
            )
        )
        assert answer is not None


async def move_in_lake(engine: Engine, offload_id: int, row: Row, new_due_ms: int) -> None:
    stored = layout.properties_of(memoryview(row.record)[HEAD_BYTES:])
    name = properties.decode(stored)[properties.UNIQ_KEY]
    found = (TierRow(offload_id, row.origin, row.row, row.due_ms),)
    answer = await engine.submit(
        Reschedule(
            TOPIC,
            name,
            row.due_ms,
            new_due_ms,
            elsewhere=Elsewhere(found, (offload_id,), (row.record,)),
        )
    )
    assert answer.copies == 1, answer


async def promote(engine: Engine, path: Path, offload_id: int) -> None:
    """Promote the first hour of the topic, as other messages with the same due times."""
    lake = engine.broker.shard.tier
    topic = engine.broker.shard.topics.get(TOPIC).id
    hour = lake.first_hour(offload_id, topic)
    assert hour is not None
    back = spread(9_000, lake.count(offload_id, hour, topic), hour * HOUR_MS, 1)
    await adopt(engine, path, Promotion(offload_id, hour, topic).app, hour, [back])
    assert lake.first_hour(offload_id, topic) != hour
