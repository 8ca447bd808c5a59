"""What a turn costs does not show what is stored or parked: work is counted, not timed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from work import bytecodes

from horolog.broker.queries import answer
from horolog.broker.send.sends import Sends
from horolog.broker.topic_changes import plan
from horolog.lake.core.counts import LakeCounts
from horolog.lake.core.state import Lake
from horolog.limits import HOUR_MS
from horolog.log.checkpoint import QUEUE
from horolog.protocol.commands import (
    NOT_COUNTED,
    ChangeTopic,
    CreateTopic,
    DescribeTopic,
    ListTopics,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode

# --- counting what waits ----------------------------------------------------------------------------


def test_a_route_costs_the_same_whatever_waits(world) -> None:
    for name in "tu":
        world.broker.ask(CreateTopic(name, TopicType.MIXED, 1))
    route = DescribeTopic("t", with_pending=False)
    few = bytecodes(lambda: answer(world.broker.shard, route))
    now = world.clock.wall_ms()
    for hour in range(1, 24):
        due = now + hour * HOUR_MS
        message = encode(
            topic="t", body=b"x", message_id=f"m{hour}", type=MessageType.DELAY, due_ms=due
        )
        world.broker.ask(SendMessages("t", [message]))
    assert bytecodes(lambda: answer(world.broker.shard, route)) < few + 200
    assert world.broker.ask(route).pending == NOT_COUNTED
    assert world.broker.ask(DescribeTopic("t")).pending == 23


def test_a_list_of_topics_counts_once_what_waits(world) -> None:
    for i in range(20):
        world.broker.ask(CreateTopic(f"t{i}", TopicType.MIXED, 1))
    few = bytecodes(lambda: answer(world.broker.shard, ListTopics()))
    now = world.clock.wall_ms()
    messages = [
        encode(
            topic="t3",
            body=b"x",
            message_id=f"m{hour}",
            type=MessageType.DELAY,
            due_ms=now + hour * HOUR_MS,
        )
        for hour in range(1, 24)
    ]
    world.broker.ask(SendMessages("t3", messages))
    assert bytecodes(lambda: answer(world.broker.shard, ListTopics())) < few + 24 * 60
    assert [view.pending for view in world.broker.ask(ListTopics()) if view.pending] == [23]


def test_a_deletion_costs_the_same_however_many_topics_there_are(world) -> None:
    topics = world.broker.shard.topics

    def cost() -> int:
        world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
        world.broker.ask(CreateTopic("between", TopicType.MIXED, 1))
        world.broker.ask(ChangeTopic("t", queues=3))  # its queues do not stand together
        found = bytecodes(lambda: topics.drop(topics.by_name["t"].id, 0))
        topics.check_invariants()
        lengths = topics.queue_column("length", QUEUE)
        assert lengths["topic"].tolist() == [
            topic.id for topic in topics.by_id.values() for _ in topic.queues
        ]
        topics.drop(topics.by_name["between"].id, 0)
        return found

    few = cost()
    for i in range(50):
        world.broker.ask(CreateTopic(f"t{i}", TopicType.MIXED, 8))
    assert cost() < few + 200


def test_an_id_for_a_topic_costs_the_same_however_many_there_are(world) -> None:
    topics = world.broker.shard.topics

    def took() -> int:
        best = 1 << 60
        for i in range(50):
            began = time.thread_time_ns()
            plan(topics, CreateTopic(f"new{i}", TopicType.MIXED, 1))
            best = min(best, time.thread_time_ns() - began)
        return best

    few = took()
    for i in range(20_000):
        topics.put(i + 1, f"t{i}", TopicType.MIXED, 1)
    assert took() < 10 * few, "to look at 20 000 numbers takes a millisecond"
    assert plan(topics, CreateTopic("new", TopicType.MIXED, 1)).id == 20_001


# --- recalls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", [lambda sends: sends.has_key(7), Sends.has_keyed])
def test_a_recall_does_not_look_at_all_sends_of_its_turn(world, question) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    sends = Sends(world.broker.shard)
    none = bytecodes(lambda: question(sends))
    messages = [encode(topic="t", body=b"x", message_id=f"m{i}", keys=[]) for i in range(500)]
    sends.add(None, SendMessages("t", messages))
    assert not question(sends), "the first one of a turn looks"
    assert bytecodes(lambda: question(sends)) == none


def test_what_was_sent_in_a_turn_is_known_to_its_recalls_only(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    sends = Sends(world.broker.shard)
    message = encode(topic="t", body=b"x", message_id="m", keys=["k"])
    sends.add(None, SendMessages("t", [message]))
    assert sends.has_key(message.key_hash)
    assert sends.has_keyed()
    sends.flush(world.clock.wall_ms(), 0)
    assert not sends.has_key(message.key_hash)
    assert not sends.has_keyed()


# --- the lake ---------------------------------------------------------------------------------------


def test_a_recall_costs_the_same_however_much_is_in_the_lake() -> None:
    def took(hours: int) -> int:
        lake = Lake()
        lake._counts = LakeCounts(
            ((1, hour, topic), 3) for hour in range(hours) for topic in (1, 2)
        )
        best = 1 << 60
        for i in range(50):
            began = time.thread_time_ns()
            assert lake.waiting
            assert not lake.may_hold(1, -HOUR_MS, -HOUR_MS + 1)
            assert lake.in_hour(i % hours, 1)
            lake._counts.put((1, hours - 1, 1), 50 - i)
            assert lake.next_hour == 0
            best = min(best, time.thread_time_ns() - began)
        return best

    assert took(50_000) < 20 * took(10) + 20_000, "100 000 sums take some milliseconds"


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(1, 3), st.integers(0, 4)))
)
def test_counts_of_the_lake_are_sums(puts: list[tuple[int, int, int, int]]) -> None:
    counts, model = LakeCounts(), dict[tuple[int, int, int], int]()
    for number, hour, topic, n in puts:
        counts.put((number, hour, topic), n)
        model[number, hour, topic] = n
        model = {key: left for key, left in model.items() if left}
        assert counts.total == sum(model.values())
        assert counts.first_hour() == min((key[1] for key in model), default=None)
        for of in (None, 1, 2, 3):
            for each in range(6):
                waits = sum(
                    left for (_, h, t), left in model.items() if h == each and of in (None, t)
                )
                assert counts.in_hour(each, of) == waits == counts.by_hour(of).get(each, 0)
                assert counts.has(each, of or 0) == (of is not None and waits > 0)
        counts.check_invariants()
    assert dict(counts.items()) == model
