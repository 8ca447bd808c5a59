"""A log in which messages end in every way there is: the tables of Spark, the audit and its report agree with the broker.

Late drops and late dead letters, firings of recurring schedules, transactions, dead letters given up and sent once more,
and a message group that is consumed in order; the broker was down for ten minutes in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from audited import START_MS

from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import audit_page, balance
from horolog.pipeline.log_source import LogSource
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Receive,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.dead_letter_commands import Redrive
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.late_policy import late_topic
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.schedules import (
    Content,
    CreateSchedule,
    Missed,
    PauseSchedule,
    Rule,
)
from horolog.protocol.transaction_commands import EndTransaction, Resolution, SendHalf
from horolog.server.open_broker import open_engine

MINUTE_MS = 60_000
MONTH_MS = 30 * 24 * 60 * MINUTE_MS
AFTER = {"late_after_ms": 5 * MINUTE_MS}
TOPICS = {
    "offers": CreateTopic("offers", TopicType.MIXED, 2, TopicSettings(late="drop", **AFTER)),
    "orders": CreateTopic("orders", TopicType.MIXED, 2, TopicSettings(late="dead-letter", **AFTER)),
    "deals": CreateTopic("deals", TopicType.MIXED, 1),
    "steps": CreateTopic("steps", TopicType.FIFO, 4),
}


async def opened(path: Path, at_ms: int) -> Any:
    return await open_engine(
        path, clock="simulated", flush="os", segment_bytes=1 << 22, start_ms=START_MS + at_ms
    )


def timed(topic: str, name: str, in_ms: int) -> Any:
    return encode(topic=topic, body=b"x", message_id=name, type=MessageType.DELAY,
                  due_ms=START_MS + in_ms)  # fmt: skip


def half(name: str, in_ms: int = 0) -> Any:
    system = {properties.PRODUCER_GROUP: "traders", properties.TRANSACTION: "true"}
    return encode(topic="deals", body=b"x", message_id=name, type=MessageType.TRANSACTION,
                  due_ms=START_MS + in_ms if in_ms else 0,
                  system_properties=properties.encode(system))  # fmt: skip


async def before(engine: Any) -> None:
    """What is there when the broker goes down; all but the far messages is due in these ten minutes."""
    for create in TOPICS.values():
        await engine.submit(create)
    for topic, dues in {
        "offers": (1, 1, 2, 2, 8, 9),  # minutes: four are too late
        "orders": (1, 2, 3, 9),  # three
    }.items():
        made = [timed(topic, f"{topic}-{i}", at * MINUTE_MS) for i, at in enumerate(dues)]
        await engine.submit(SendMessages(topic, [*made, timed(topic, f"{topic}-far", MONTH_MS)]))
    halves = [half("committed", 9 * MINUTE_MS), half("rolled-back", MINUTE_MS), half("at-once")]
    found = await engine.submit(SendHalf("deals", [*halves, half("open")]))
    for origin, resolution in zip(
        found.origins[:3],
        (Resolution.COMMIT, Resolution.ROLLBACK, Resolution.COMMIT),
        strict=True,
    ):
        await engine.submit(EndTransaction(origin, resolution))
    every = {"every_ms": MINUTE_MS}
    in_order = Content("steps", b"step", message_group="one")
    await engine.submit(
        CreateSchedule("steps", Rule(**every, times=5, missed=Missed.ALL), in_order)
    )
    await engine.submit(CreateSchedule("promo", Rule(**every), Content("offers", b"promo")))


async def after(engine: Any) -> None:
    """Ten minutes later."""
    await engine.advance(0)
    await engine.submit(PutGroup("workers", GroupSettings(orderly=True)))
    take = Receive("workers", "steps", -1, "*", 32, 60_000, False, 0, "me")
    steps = (await engine.submit(take)).messages
    assert len(steps) == 5
    assert [each.queue_offset for each in steps] == list(range(5))
    first, *rest = [each.receipt_handle for each in steps]
    changed = await engine.submit(ChangeInvisible("workers", "steps", first, 90_000))
    await engine.submit(Ack("workers", "steps", [changed.receipt_handle, *rest]))
    deals = await engine.submit(Receive("w", "deals", -1, "*", 32, 60_000, False, 0, "me"))
    for each in deals.messages:
        await engine.submit(ForwardToDeadLetters("w", "deals", each.receipt_handle))
    redriven = await engine.submit(
        Redrive("w", limit=1, due_ms=engine.clock.wall_ms() + 60 * MINUTE_MS)
    )
    assert len(redriven.letters) == 1
    late = f"%LATE%{TOPICS['orders'].name}"
    assert late == late_topic("orders")
    found = await engine.submit(Receive("w", late, -1, "*", 32, 60_000, False, 0, "me"))
    assert len(found.messages) == 3
    await engine.advance(90_000)  # promo fires once or twice more
    await engine.submit(PauseSchedule("promo"))


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Any]:
    """The directory, and what its broker counts."""
    path = tmp_path_factory.mktemp("ended") / "data"

    async def story() -> Any:
        engine = await opened(path, 0)
        await before(engine)
        await engine.checkpoint()
        await engine.stop()
        engine = await opened(path, 10 * MINUTE_MS)
        await after(engine)
        view = await engine.submit(DescribeBroker())
        await engine.stop()
        return view

    return path, asyncio.run(asyncio.wait_for(story(), 60))


def test_the_log_source_has_a_row_for_each_end(spark, written) -> None:
    path, view = written
    spark.dataSource.register(LogSource)
    log = spark.read.format("horolog_log").option("path", str(path)).load()
    rows = log.select("kind", "topic", "message_id", "due_ms", "store_ms").collect()
    counts = Counter(row["kind"] for row in rows)
    assert counts["EXPIRED"] == view.expired == 4 + 3 + 1, "one is the first promo"
    assert counts["HANDED"] == view.handed_over
    assert counts["RECALL"] == view.recalled == 1, "the promo that was planned when it was paused"
    settled = counts["EXPIRED"] + counts["HANDED"] + counts["RECALL"]
    assert counts["SCHEDULED"] - settled == view.pending == 3, "two far ones, and a re-driven one"
    names = {row["message_id"] for row in rows}
    assert {"committed", "at-once", "orders-far"} <= names
    assert not {"rolled-back", "open"} & names, "a half message is none"
    handed = [row for row in rows if row["kind"] == "HANDED"]
    assert all(row["store_ms"] >= row["due_ms"] for row in handed)
    expired = log.where("kind = 'EXPIRED'").select("due_ms", "append_ms").collect()
    assert all(row["append_ms"] - row["due_ms"] > 5 * MINUTE_MS for row in expired)


def test_it_audits_clean_and_its_report_balances(spark, written, tmp_path) -> None:
    path, view = written
    result = audit(spark, path, out=tmp_path, late_ms=15 * MINUTE_MS)  # it was down
    assert (result.faults, result.counts, result.overdue) == (0, {}, 0)
    assert result.total("expired") == view.expired
    assert result.total("expired", "orders") == 3
    assert result.total("handed_over", "steps") == 1
    assert result.total("visible_at_once", "steps") == 4, "firings that it made up for"
    rows = dict(balance(result))
    assert rows["too late: dropped, or dead letters"] == -view.expired
    assert rows["recalled"] == -view.recalled
    assert rows["left: waiting, or among the findings"] == view.pending
    page = audit_page(result)
    assert "too late: dropped, or dead letters" in page
    funnel = {(row["group"], row["attempt"]): row["messages"] for row in result.funnel.to_pylist()}
    assert funnel["workers", 0] == funnel["workers", 1] == 5
