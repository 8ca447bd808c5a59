"""What came in the last minute, hour and day."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.remoting_door import remoting_door
from tests.support.sent import encoded

from horolog.limits import DAY_MS
from horolog.protocol.commands import CreateTopic, DeleteTopic, Reschedule, SendMessages, TopicType
from horolog.protocol.queue_commands import CommitOffsets, CountLags
from horolog.protocol.remoting.codes import Code
from horolog.server.open_broker import open_engine
from horolog.server.rates import Day, Meter, Rates, Totals

HOUR_S = 3_600


def sums(meter: Meter, now_s: float) -> list[int]:
    return [rate.sum for rate in meter.recent(now_s)]


def test_a_meter_keeps_a_minute_an_hour_and_a_day():
    meter = Meter(100)
    assert sums(meter, 0) == [0, 0, 0]
    meter.record(160, 60)
    assert sums(meter, 60) == [60, 60, 60]
    assert meter.recent(60).minute.a_second == 1.0
    meter.record(190, 120)
    assert sums(meter, 120) == [30, 90, 90]
    assert sums(meter, 180) == [0, 90, 90]
    assert sums(meter, 60 + HOUR_S) == [0, 30, 90]
    assert sums(meter, 120 + HOUR_S) == [0, 0, 90]
    assert sums(meter, 25 * HOUR_S) == [0, 0, 0]


def test_a_meter_keeps_few_numbers_however_long_it_runs():
    meter = Meter(0)
    for minute in range(3_000):
        meter.record(minute, minute * 60)
    assert len(meter._minutes) <= 60
    assert len(meter._hours) <= 25
    assert sums(meter, 2_999 * 60) == [1, 60, 1_440 + 2_999 % 60 - 59 + 0 * 60]


def test_looks_that_follow_each_other_quickly_are_one():
    meter = Meter(0)
    for tenth in range(36_000):
        meter.record(tenth, tenth / 10)
    assert len(meter._minutes) <= 3_600 / 5
    assert meter.recent(3_599.9).hour.sum == 35_999


def test_a_meter_that_has_not_grown_for_a_day_holds_nothing():
    meter = Meter(0)
    meter.record(5, 60)
    assert sums(meter, 26 * HOUR_S) == [0, 0, 0]
    assert meter._minutes is None
    assert meter._hours is None


def test_a_group_that_is_set_back_has_consumed_nothing():
    meter = Meter(10)
    meter.record(4, 60)
    meter.record(9, 120)
    assert sums(meter, 120) == [5, 5, 5]


def test_totals_are_kept_at_midnights():
    totals = Totals()
    assert totals.day() == Day(0, 0, 0)
    totals.record(5, DAY_MS)
    totals.record(8, DAY_MS + 1)
    assert totals.day() == Day(5, 5, 8)
    totals.record(20, 2 * DAY_MS)
    totals.record(21, 2 * DAY_MS + 1)
    assert totals.day() == Day(5, 20, 21)
    totals.record(30, 4 * DAY_MS)
    assert totals.day() == Day(20, 30, 30)


def test_rates_come_from_what_the_broker_knows_anyway(tmp_path: Path):
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=16 << 20)
        rates = Rates(engine)
        try:
            await engine.submit(CreateTopic("old", TopicType.MIXED, 1))
            await engine.submit(SendMessages("old", encoded("old", b"1", b"2")))
            await engine.submit(CommitOffsets("workers", "old", {0: 1}))
            await rates.read_totals()
            assert rates.puts("old").hour.sum == 0  # it was there before
            await engine.submit(CreateTopic("new", TopicType.MIXED, 1))
            await engine.submit(SendMessages("new", encoded("new", b"1")))
            wall_ms = engine.clock.wall_ms()
            later = encoded("old", b"3", b"4", b"5", due_ms=wall_ms + 60_000)
            await engine.submit(SendMessages("old", later))
            await engine.submit(SendMessages("old", encoded("old", b"6")))
            await engine.submit(CommitOffsets("workers", "old", {0: 3}))
            await engine.submit(CommitOffsets("newcomers", "old", {0: 3}))
            await rates.read_totals()
            assert rates.puts("new").minute.sum == 1
            assert rates.puts("old").minute.sum == 1
            assert rates.puts().minute.sum == 5  # with what waits
            assert rates.gets("old", "workers").minute.sum == 2
            assert rates.gets("old", "newcomers").minute.sum == 3  # it began with the first message
            assert rates.gets().day.sum == 5
            assert rates.gets("old", "nobody").day.sum == 0
            assert rates.puts_of_day.day() == Day(2, 2, 7)
        finally:
            await rates.stop()
            await engine.stop()

    asyncio.run(story())


def test_totals_go_on_past_moves_resets_and_deletions(tmp_path: Path):
    """A move counted as another message; after a deletion or a reset nothing was counted until as much had come again."""

    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=16 << 20)
        rates = Rates(engine)
        try:
            for topic in ("old", "gone"):
                await engine.submit(CreateTopic(topic, TopicType.MIXED, 1))
            await engine.submit(SendMessages("old", encoded("old", b"1", b"2")))
            await rates.read_totals()
            await engine.submit(SendMessages("gone", encoded("gone", b"1", b"2", b"3")))
            wall_ms = engine.clock.wall_ms()
            later = encoded("old", b"3", due_ms=wall_ms + 60_000)
            await engine.submit(SendMessages("old", later))
            await engine.submit(CommitOffsets("workers", "old", {0: 2}))
            await rates.read_totals()
            assert rates.puts_of_day.day() == Day(2, 2, 6)
            assert rates.gets_of_day.day() == Day(0, 0, 2)
            moved = Reschedule("old", "old-33", wall_ms + 60_000, wall_ms + 90_000)
            await engine.submit(moved)
            await engine.submit(DeleteTopic("gone"))
            await engine.submit(CommitOffsets("workers", "old", {0: 0}))
            await rates.read_totals()
            assert rates.puts_of_day.day() == Day(2, 2, 6)
            assert rates.gets_of_day.day() == Day(0, 0, 2)
            await engine.submit(SendMessages("old", encoded("old", b"4")))
            await engine.submit(CommitOffsets("workers", "old", {0: 1}))
            await rates.read_totals()
            assert rates.puts_of_day.day() == Day(2, 2, 7)
            assert rates.puts().minute.sum == 5
            assert rates.gets_of_day.day() == Day(0, 0, 3)
        finally:
            await rates.stop()
            await engine.stop()

    asyncio.run(story())


def test_a_topic_that_is_made_again_begins_with_nothing(tmp_path: Path):
    """Its messages were counted only as far as they were more than those of the deleted one."""
    with remoting_door(tmp_path) as door, door.client() as client:
        rates = door.front.node.rates
        door.run(rates.read_totals())
        for sent in (3, 2):
            door.create("again", queues=1)
            bodies = [b"%d of %d" % (number, sent) for number in range(sent)]
            door.submit(SendMessages("again", encoded("again", *bodies)))
            door.submit(CommitOffsets("workers", "again", {0: sent}))
            door.run(rates.read_totals())
            assert door.within(lambda: rates.puts("again")).minute.sum == sent
            assert door.within(lambda: rates.gets("again", "workers")).minute.sum == sent
            client.done(Code.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
        assert door.within(rates.puts).minute.sum == 5
        assert door.within(rates.gets).minute.sum == 5


def test_all_groups_are_counted_with_one_question(tmp_path: Path):
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=16 << 20)
        asked: list[type] = []

        class Listener:
            clock = engine.clock

            def submit(self, command):
                asked.append(type(command))
                return engine.submit(command)

        rates = Rates(Listener())
        try:
            for topic in ("a", "b"):
                await engine.submit(CreateTopic(topic, TopicType.MIXED, 1))
                await engine.submit(SendMessages(topic, encoded(topic, b"1", b"2")))
                for i in range(40):
                    await engine.submit(CommitOffsets(f"workers-{i}", topic, {0: 1}))
            await rates.read_totals()
            await engine.submit(CommitOffsets("workers-7", "b", {0: 2}))
            await rates.read_totals()
            assert rates.gets("b", "workers-7").minute.sum == 1
            assert rates.gets().minute.sum == 1
            assert asked.count(CountLags) == 2
        finally:
            await engine.stop()

    asyncio.run(story())
