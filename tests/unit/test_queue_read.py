"""Reading a queue in bulk, without a group: what the Spark source is answered."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from admin_api import answering, exchange, serve

from horolog.admin import topics
from horolog.errors import ErrorCode, HorologError
from horolog.limits import ADMIN_READ_MAX, SCAN_MAX, TURN_READ_BYTES, TURN_READ_MAX
from horolog.log.queue_unit import UNIT
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    MessageType,
    QueueRead,
    ReadQueue,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_read import decode_read, encode_read
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.engine import LAYOUT


def message(i: int, size: int = 10, due_ms: int = 0):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(topic="t", body=b"%d" % i * size, message_id=f"m{i}", type=kind, due_ms=due_ms)


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return any_world.broker


def read(broker, first: int = 0, limit: int = 100, max_bytes: int = 1 << 20) -> QueueRead:
    return broker.ask(ReadQueue("t", 0, first, limit, max_bytes))


def offsets(found: QueueRead) -> list[int]:
    return [layout.decode(record[HEAD_BYTES:]).queue_offset for record in found.records]


@pytest.mark.parametrize("restart", [False, True])
def test_only_what_is_visible_is_read(any_world, broker, restart: bool) -> None:
    due = any_world.clock.wall_ms() + 5_000
    broker.ask(SendMessages("t", [message(i) for i in range(3)] + [message(9, due_ms=due)]))
    if restart:
        any_world.reopen()
    found = read(broker)
    assert (offsets(found), found.next_offset, found.min_offset, found.max_offset) == (
        [0, 1, 2],
        3,
        0,
        3,
    )
    assert read(broker, 3) == QueueRead([], 3, 0, 3)
    assert read(broker, 99).records == []


def test_limits_of_count_and_bytes(broker) -> None:
    broker.ask(SendMessages("t", [message(i, size=1_000) for i in range(9)]))
    assert offsets(read(broker, limit=4)) == [0, 1, 2, 3]
    some = read(broker, 2, max_bytes=2_500)
    assert (offsets(some), some.next_offset) == ([2, 3], 4)
    one = read(broker, 4, max_bytes=1)  # never nothing
    assert (offsets(one), one.next_offset) == ([4], 5)


def test_refusals(broker) -> None:
    for command, code, field in (
        (ReadQueue("nope", 0, 0, 1, 1), ErrorCode.TOPIC_NOT_FOUND, "topic"),
        (ReadQueue("t", 1, 0, 1, 1), ErrorCode.BAD_REQUEST, "queue"),
    ):
        with pytest.raises(HorologError) as refused:
            broker.ask(command)
        assert (refused.value.code, refused.value.field) == (code, field)


PATH = "/v1/topics/reminders/queues/1/messages"


def test_over_http_a_turn_s_worth_at_a_time() -> None:
    record = bytes(HEAD_BYTES) + LAYOUT
    seen: list[object] = []

    async def use(client, engine) -> None:
        engine.answers[ReadQueue] = QueueRead([record, record], 7, 2, 7)
        response = await client.get(f"{PATH}?from=5&limit=1000")
        assert response.headers["content-type"] == "application/octet-stream"
        seen.append(decode_read(response.content))
        assert engine.asked == [ReadQueue("reminders", 1, 5, 1_000, TURN_READ_BYTES)]
        engine.asked.clear()
        engine.answers[ReadQueue] = QueueRead([], 0, 0, 900)  # nothing moves: it ends
        await client.get(PATH)
        assert engine.asked == [ReadQueue("reminders", 1, 0, TURN_READ_MAX, TURN_READ_BYTES)]

    serve(use)
    (found,) = seen
    assert (found.next_offset, found.min_offset, found.max_offset) == (7, 2, 7)
    assert bytes(found.records) == record * 2


def test_an_answer_is_built_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have 16 MiB."""
    threads: list[threading.Thread] = []

    def encode_there(*given: Any, **more: Any) -> bytes:
        threads.append(threading.current_thread())
        return encode_read(*given, **more)

    monkeypatch.setattr(topics, "encode_read", encode_there)

    async def use(client, engine) -> None:
        engine.answers[ReadQueue] = QueueRead([], 0, 0, 900)
        await client.get(PATH)
        assert threads
        assert threading.current_thread() not in threads

    serve(use)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/topics/reminders/queues/x/messages", "queue"),
        ("/v1/topics/reminders/queues/99999/messages", "queue"),
        (f"{PATH}?from=-1", "from"),
        (f"{PATH}?limit={ADMIN_READ_MAX + 1}", "limit"),
        (f"{PATH}?limit=0", "limit"),
        (f"{PATH}?to=5", "to"),
    ],
)
def test_refusals_over_http(path: str, field: str) -> None:
    status, answer, engine = exchange("GET", path)
    assert (status, answer["error"]["field"], engine.asked) == (400, field, [])


def test_what_retention_has_dropped_is_404() -> None:
    gone = HorologError(ErrorCode.NOT_FOUND, "queue offset 1 is older than the retention")
    status, answer, _ = exchange("GET", PATH, None, answering(ReadQueue, gone))
    assert (status, answer["error"]["code"]) == (404, "not_found")


def test_a_turn_passes_over_some_holes_and_the_next_one_over_more(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.ask(SendMessages("t", [message(0)]))
    topic = broker.shard.topics.get("t")
    queue, lost = topic.queues[0], SCAN_MAX + 10
    queue._tail = [np.concatenate([queue.read(0, 1), np.zeros(lost, UNIT)])]
    queue.length = topic.tails[0] = 1 + lost
    for offset in range(1, 1 + lost):
        broker.shard.queued._found[1, 0, offset] = (0, 0)
    found = read(broker)
    assert (offsets(found), found.next_offset) == ([0], SCAN_MAX)
    assert read(broker, SCAN_MAX) == QueueRead([], 1 + lost, 0, 1 + lost)
