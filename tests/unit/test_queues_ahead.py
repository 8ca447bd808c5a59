"""Consume queues are written some in each turn before a checkpoint: no turn writes those of all topics."""

from __future__ import annotations

from worlds import changes_of, checkpoint

from horolog.limits import HOUR_MS, TURN_QUEUES_SEARCHED_MAX, TURN_QUEUES_WRITTEN_MAX
from horolog.protocol.commands import (
    CreateTopic,
    DeleteTopic,
    DescribeGroup,
    DescribeTopic,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets
from horolog.protocol.rocketmq.message import encode

QUEUES = 5 * TURN_QUEUES_WRITTEN_MAX
MANY = 5 * TURN_QUEUES_SEARCHED_MAX


def send_to_each(world, round: int) -> None:
    """A message to every queue of the topic; they come in a circle."""
    messages = [encode(topic="t", body=b"x", message_id=f"m{round}-{i}") for i in range(QUEUES)]
    assert not world.broker.ask(SendMessages("t", messages)).refused


def written(changes: list[str]) -> int:
    """Consume queues among what was written."""
    return len({change for change in changes if change.startswith("write") and ".cq" in change})


def turns_until_decided(world) -> list[int]:
    """The queues that each turn writes from the wish for a checkpoint on."""
    world.broker.request_checkpoint()
    found = []
    while not world.broker.core.checkpoints.is_decided:
        with changes_of(world.disk) as changes:
            world.broker.step([])
        found.append(written(changes))
        assert len(found) < 100
        assert world.broker.pending_next_ms == 0, "it would wait until something else comes"
    return found


def test_no_turn_writes_the_queues_of_all(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, QUEUES))
    send_to_each(world, 1)
    found = turns_until_decided(world)
    assert sum(found) >= QUEUES - TURN_QUEUES_WRITTEN_MAX
    assert max(found) <= TURN_QUEUES_WRITTEN_MAX
    with changes_of(world.disk) as changes:
        world.broker.settle()
    assert written(changes) <= TURN_QUEUES_WRITTEN_MAX
    world.reopen()
    assert world.broker.ask(DescribeTopic("t")).queue_offsets == [1] * QUEUES


def test_few_queues_keep_no_checkpoint_waiting(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, TURN_QUEUES_WRITTEN_MAX))
    send_to_each(world, 1)
    assert turns_until_decided(world) == [0]


def test_news_that_come_as_fast_do_not_put_a_checkpoint_off(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, QUEUES))
    send_to_each(world, 0)
    position = world.broker.shard.checkpoint_position
    world.broker.request_checkpoint()
    for round in range(1, 4):
        send_to_each(world, round)
    assert world.broker.shard.checkpoint_position > position


def test_files_of_a_topic_that_is_deleted_meanwhile_do_not_come_back(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, QUEUES))
    send_to_each(world, 1)
    world.broker.request_checkpoint()
    world.broker.step([])
    assert not world.broker.core.checkpoints.is_decided
    world.broker.ask(DeleteTopic("t"))
    for _ in range(3):
        checkpoint(world)
        world.broker.ask(CreateTopic("u", TopicType.NORMAL, 1))
        world.broker.ask(DeleteTopic("u"))
    assert world.disk.list("shard-00/queues") == []


def test_a_full_disk_ends_it(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, QUEUES))
    send_to_each(world, 1)
    world.disk.capacity_bytes = world.disk.used_bytes()
    world.broker.request_checkpoint()
    world.broker.settle()
    assert world.broker.shard.topics.by_name["t"].queues[0].is_unwritten
    world.disk.capacity_bytes = None
    checkpoint(world)
    assert not any(queue.is_unwritten for queue in world.broker.shard.topics.by_name["t"].queues)


def test_no_turn_searches_the_queues_of_all_for_what_retention_drops(make_world) -> None:
    world = make_world()
    world.broker.settings = world.broker.settings._replace(retention_ms=HOUR_MS)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, MANY))
    for round in range(3):
        names = [f"m{round}-{i}" for i in range(MANY)]
        messages = [encode(topic="t", body=b"x" * 99, message_id=name) for name in names]
        assert not world.broker.ask(SendMessages("t", messages)).refused
        world.broker.ask(CommitOffsets("g", "t", dict.fromkeys(range(MANY), round)))
    checkpoint(world)
    turns, shard = 0, world.broker.shard
    world.clock.advance(2 * HOUR_MS)
    while shard.log.start == 0:
        world.broker.step([])
        starts = world.broker.core.checkpoints._starts
        turns += starts is not None and not starts.is_done
        assert turns < 100
    world.broker.settle()
    assert turns >= MANY // TURN_QUEUES_SEARCHED_MAX
    for queue_id, queue in enumerate(shard.topics.by_name["t"].queues):
        assert 0 < queue.first == queue.first_from(shard.log.start), queue_id
    groups = world.broker.ask(DescribeGroup("g", "t"))
    assert [each.ack_floor for each in groups] == [max(2, each.min_offset) for each in groups]
    world.reopen()
    assert world.broker.ask(DescribeGroup("g", "t")) == groups
