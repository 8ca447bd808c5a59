"""Messages of a message group go to one queue, in the order they came, whichever protocol they came by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remoting_sends import send_frame

from horolog.broker.send.group_queues import queues_of_groups
from horolog.errors import ErrorCode
from horolog.limits import QUEUES_MAX
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    MessageType,
    ReadQueue,
    SendMessages,
    TopicType,
)
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode
from horolog.protocol.rocketmq.message_group import NO_GROUP, group_code, group_hash

GROUPS = [f"order-{n}" for n in range(200)]


def queue_of(group: str, queues: int) -> int:
    codes = np.array([group_code(group)], np.uint32)
    return int(queues_of_groups(codes, np.array([queues], np.int64))[0])


def made(topic: str, name: str, group: str | None, due_ms: int = 0):
    kind = MessageType.NORMAL if group is None else MessageType.FIFO
    return encode(
        topic=topic, body=b"b", message_id=name, type=kind, message_group=group, due_ms=due_ms
    )


def of_4x(queue: int, properties: dict[str, str]) -> SendMessages:
    frames = [send_frame(properties, queue=queue)]
    site = Site("broker-a", bytes(8), parse_levels(DEFAULT_LEVELS))
    ((command, *_), *_), refused = gather(frames, (bytes(4), 0), site, lambda: "NEW", Shapes())
    assert not refused
    return command


def message_id_of(stored: bytes) -> str | None:
    return properties.value_of(layout.decode(stored).properties, "UNIQ_KEY")


def ids_by_queue(world, topic: str, queues: int) -> list[list[str]]:
    found = []
    for queue in range(queues):
        read = world.broker.ask(ReadQueue(topic, queue, 0, 1_000, 1 << 24))
        layouts = [record[RECORD_HEAD_BYTES:] for record in read.records]
        found.append([message_id_of(each) for each in layouts])
    return found


def test_the_queues_of_groups_are_those_of_rocketmq() -> None:
    """What Guava's `Hashing.consistentHash`, whose tests have this row, gives for Java's hash codes; it never changes."""
    golden = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    found = queues_of_groups(np.arange(20, dtype=np.uint32), np.full(20, 100, np.int64))
    assert found.tolist() == golden
    assert [queue_of("order-1", n) for n in (1, 2, 4, 8, 16)] == [0, 0, 3, 3, 3]
    assert [queue_of(group, 8) for group in ("a", "EWR", "UA1545", "Ü")] == [0, 3, 0, 6]
    assert group_code("") == NO_GROUP
    assert group_code("\0") == 1, "its Java hash is 0, which stands for no group"


@given(st.text(min_size=1, max_size=30), st.integers(1, QUEUES_MAX - 1))
def test_a_queue_more_moves_groups_only_to_itself(group: str, queues: int) -> None:
    before, after = queue_of(group, queues), queue_of(group, queues + 1)
    assert 0 <= before < queues
    assert after in (before, queues)


def test_groups_are_spread_and_few_move() -> None:
    for queues in (2, 8, 100):
        before = [queue_of(group, queues) for group in GROUPS]
        assert len(set(before)) >= min(queues, 60), queues
        moved = sum(
            queue_of(group, queues + 1) != queue
            for group, queue in zip(GROUPS, before, strict=True)
        )
        assert moved <= 3 * len(GROUPS) / (queues + 1), (queues, moved)


def test_a_group_has_one_queue_in_the_order_of_arrival(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 4))
    world.broker.ask(CreateTopic("mixed", TopicType.MIXED, 4))
    for topic in ("t", "mixed"):
        sent = []
        for round in range(5):
            batch = [made(topic, f"{topic}-{group}-{round}", group) for group in GROUPS[:9]]
            answer = world.broker.ask(SendMessages(topic, batch))
            sent.append(answer.queue_ids)
        assert sent == [[queue_of(group, 4) for group in GROUPS[:9]]] * 5
        queues = ids_by_queue(world, topic, 4)
        for group in GROUPS[:9]:
            ids = [name for name in queues[queue_of(group, 4)] if f"-{group}-" in name]
            assert ids == [f"{topic}-{group}-{round}" for round in range(5)]


def test_more_queues_leave_what_is_there_and_most_groups_where_they_are(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 4))
    world.broker.ask(SendMessages("t", [made("t", f"1-{group}", group) for group in GROUPS]))
    world.broker.ask(ChangeTopic("t", 5))
    world.reopen()
    answer = world.broker.ask(
        SendMessages("t", [made("t", f"2-{group}", group) for group in GROUPS])
    )
    assert answer.queue_ids == [queue_of(group, 5) for group in GROUPS]
    assert {4} < set(answer.queue_ids)


def test_delayed_messages_of_a_group_come_in_the_order_of_due_time_and_arrival(world) -> None:
    """FIFO and delay together: (due time, arrival), among what is visible at once as well."""
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 4))
    now = world.clock.wall_ms()
    dues = [("a", 3_000), ("b", 1_000), ("c", 3_000), ("d", 2_000), ("e", 0), ("f", 1_000)]
    for name, delay in dues:
        sent = world.broker.ask(
            SendMessages("t", [made("t", name, "g", now + delay if delay else 0)])
        )
        assert not sent.refused
    for _ in range(2):
        world.reopen()
    world.clock.advance(2_500)
    world.broker.settle()
    world.broker.ask(SendMessages("t", [made("t", "g", "g")]))
    world.clock.advance(1_000)
    world.broker.settle()
    assert ids_by_queue(world, "t", 4)[queue_of("g", 4)] == list("ebfdgac")


@pytest.mark.parametrize(
    ("type", "group", "due", "taken"),
    [
        (TopicType.FIFO, None, False, False),
        (TopicType.FIFO, "g", False, True),
        (TopicType.FIFO, "g", True, True),
        (TopicType.DELAY, "g", True, True),
        (TopicType.DELAY, "g", False, False),
        (TopicType.NORMAL, "g", False, False),
        (TopicType.NORMAL, "g", True, False),
        (TopicType.MIXED, "g", False, True),
        (TopicType.MIXED, "g", True, True),
    ],
)
def test_which_topics_take_message_groups(world, type, group, due, taken) -> None:
    world.broker.ask(CreateTopic("t", type, 2))
    due_ms = world.clock.wall_ms() + 5_000 if due else 0
    sent = world.broker.ask(SendMessages("t", [made("t", "m", group, due_ms)]))
    assert (not sent.refused) is taken
    if not taken:
        assert sent.refused[0].code is ErrorCode.TYPE_CONFLICT


def test_a_sharding_key_of_4x_clients_is_a_message_group(world) -> None:
    """The queue that its client has chosen counts; without one it is that of the group."""
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 4))
    plain = {"UNIQ_KEY": "plain"}
    assert world.broker.ask(of_4x(2, plain)).queue_ids == [2]
    keyed = {"UNIQ_KEY": "keyed", "__SHARDINGKEY": "order-1", "TAGS": "x"}
    assert world.broker.ask(of_4x(3, keyed)).queue_ids == [3]
    anywhere = keyed | {"UNIQ_KEY": "any"}
    assert world.broker.ask(of_4x(-1, anywhere)).queue_ids == [queue_of("order-1", 4)]
    timed = keyed | {"UNIQ_KEY": "timed", "TIMER_DELAY_SEC": "2"}
    assert world.broker.ask(of_4x(-1, timed)).queue_ids == [queue_of("order-1", 4)]
    empty = {"UNIQ_KEY": "empty", "__SHARDINGKEY": ""}
    assert world.broker.ask(of_4x(1, empty)).queue_ids == [1]


def test_the_group_of_a_stored_message() -> None:
    both = [made("t", "m", group).record[RECORD_HEAD_BYTES:] for group in ("a", "b")]
    hashes = [group_hash(memoryview(each)) for each in both]
    assert len({NO_GROUP, *hashes}) == 3
    assert group_hash(memoryview(made("t", "m", None).record[RECORD_HEAD_BYTES:])) == NO_GROUP
