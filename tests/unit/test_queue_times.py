"""Searching a queue by store time, and reading one message by its log position."""

from __future__ import annotations

import numpy as np
import pytest
from work import bytecodes

from horolog.broker.consume.queue_times import earliest_store_time, search_offset
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOLES_READ_MAX
from horolog.log.queue_unit import UNIT
from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.queue_commands import EarliestStoreTime, Pull, ReadMessage, SearchOffset
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return any_world.broker


def send(broker, *names: str, due_ms: int = 0) -> None:
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    messages = [
        encode(topic="t", body=b"x", message_id=name, due_ms=due_ms, type=kind) for name in names
    ]
    broker.ask(SendMessages("t", messages))


def filled(world, broker) -> list[int]:
    """Three messages each second; their store times."""
    times = []
    for i in range(7):
        world.clock.advance(1_000)
        times += [world.clock.wall_ms()] * 3
        send(broker, *(f"m{i}-{j}" for j in range(3)))
    return times


def search(broker, store_ms: int, *, upper: bool = False) -> int:
    return broker.ask(SearchOffset("t", 0, store_ms, upper))


def test_offsets_by_store_time(any_world, broker) -> None:
    assert search(broker, 0) == search(broker, 1 << 60) == 0
    assert broker.ask(EarliestStoreTime("t", 0)) == -1
    times = filled(any_world, broker)
    for _ in range(2):
        for asked in {at + by for at in times[::9] for by in (-500, -1, 0, 1)} | {0, 1 << 60}:
            lower = next((i for i, at in enumerate(times) if at >= asked), len(times))
            assert search(broker, asked) == lower
            upper = [i for i, at in enumerate(times) if at <= asked]
            assert search(broker, asked, upper=True) == max(upper, default=0)
        assert broker.ask(EarliestStoreTime("t", 0)) == times[0]
        any_world.reopen()


def test_a_message_that_was_scheduled_was_stored_when_it_became_visible(any_world, broker) -> None:
    filled(any_world, broker)
    due = any_world.clock.wall_ms() + 60_000
    send(broker, "later", due_ms=due)
    any_world.clock.advance(60_000)
    broker.settle()
    assert search(broker, due - 1) == search(broker, due) == 21
    assert search(broker, due + 10_000) == 22


def test_holes_say_nothing(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    times = filled(world, world.broker)
    queue = world.broker.shard.topics.get("t").queues[0]
    assert isinstance(world.disk, FaultyDisk)
    units = queue.read(0, 21).copy()
    for lost in (0, 9, 10, 11, 20):
        units[lost] = (0, 0, 0)
        world.broker.shard.queued._found[1, 0, lost] = (0, 0)
    assert units.dtype == UNIT
    queue._tail = [units]
    assert world.broker.ask(EarliestStoreTime("t", 0)) == times[1]
    assert search(world.broker, times[9]) in (9, 12)
    assert search(world.broker, times[12]) in range(9, 13)
    assert search(world.broker, times[13] + 1) == 15
    assert search(world.broker, times[20] + 1) == 20


def test_a_search_reads_no_more_holes_than_a_turn_may(world) -> None:
    """Where a segment has rotted a queue may have a million of them in a row."""
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    times = filled(world, world.broker)
    shard = world.broker.shard
    topic, lost = shard.topics.get("t"), 40 * HOLES_READ_MAX
    queue = topic.queues[0]
    holes = np.zeros(lost, UNIT)
    holes["position"] = 8  # of the segment, and of no record
    holes["size"] = 100
    queue._tail = [np.concatenate([queue.read(0, 9), holes])]
    queue.length = topic.tails[0] = 9 + lost
    for offset in range(9, 9 + lost):
        shard.queued._found[1, 0, offset] = (0, 0)
    newest = times[20]  # of the segment
    for asked, expected in ((times[6], 6), (times[8] + 1, 9), (newest, 9), (newest + 1, 9 + lost)):
        command = SearchOffset("t", 0, asked)
        assert bytecodes(lambda it=command: search_offset(shard, it)) < 1_000 * HOLES_READ_MAX
        assert world.broker.ask(command) == expected
    queue.first = 9
    command = EarliestStoreTime("t", 0)
    assert bytecodes(lambda: earliest_store_time(shard, command)) < 1_000 * HOLES_READ_MAX
    assert earliest_store_time(shard, command) == newest


def test_a_message_by_its_log_position(any_world, broker) -> None:
    send(broker, "a", "b")
    send(broker, "later", due_ms=any_world.clock.wall_ms() + 60_000)
    stored = [bytes(each) for each in broker.ask(Pull("t", 0, 0, 9, 9_999, "*", 0)).layouts]
    positions = [layout.decode(each).position for each in stored]
    for _ in range(2):
        assert [broker.ask(ReadMessage(at)) for at in positions] == stored
        any_world.reopen()
    scheduled = positions[1] + len(stored[1]) + 32 + 64
    log = broker.shard.log
    assert log.message(scheduled)[4] == 2, "a scheduled message is there"
    for position in (-1, 0, positions[0] + 1, positions[0] - 32, scheduled, log.end, 1 << 70):
        with pytest.raises(HorologError, match="no message that consumers can see") as refused:
            broker.ask(ReadMessage(position))
        assert (refused.value.code, refused.value.field) == (ErrorCode.NOT_FOUND, "offset")


def test_refusals(broker) -> None:
    for kind in (SearchOffset("nope", 0, 0), EarliestStoreTime("nope", 0)):
        with pytest.raises(HorologError) as refused:
            broker.ask(kind)
        assert refused.value.code is ErrorCode.TOPIC_NOT_FOUND
    for kind in (SearchOffset("t", 1, 0), EarliestStoreTime("t", -1)):
        with pytest.raises(HorologError) as refused:
            broker.ask(kind)
        assert refused.value.field == "queue"
