"""Pulls: what lies in a queue from an offset on, and long polls that wait for one queue."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from itertools import count as count_from

import pytest
from turns import Turns
from work import bytecodes

from horolog.errors import ErrorCode, HorologError
from horolog.limits import POLL_MAX_MS, SCAN_MAX, TURN_READ_MAX
from horolog.protocol.commands import (
    CancelReceive,
    ClientGone,
    CreateTopic,
    DeleteTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, Pull, Pulled, PullStatus
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

_numbers = count_from(1)


def message(body: bytes = b"x", tag: str | None = None, due_ms: int = 0, topic: str = "t"):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    name = f"m{next(_numbers)}"
    return encode(topic=topic, body=body, message_id=name, type=kind, due_ms=due_ms, tag=tag)


def send(*tags: str | None, topic: str = "t") -> SendMessages:
    return SendMessages(topic, [message(tag=tag, topic=topic) for tag in tags])


def pull(
    first: int = 0,
    limit: int = 32,
    max_bytes: int = 1 << 18,
    tags: str = "*",
    poll_ms: int = 0,
    queue: int = 0,
    topic: str = "t",
    client: str = "c",
) -> Pull:
    return Pull(topic, queue, first, limit, max_bytes, tags, poll_ms, client)


def offsets(found: Pulled) -> list[int]:
    return [layout.decode(bytes(each)).queue_offset for each in found.layouts]


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return any_world.broker


@pytest.fixture
def turns(world) -> Turns:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 4))
    world.broker.ask(CreateTopic("other", TopicType.NORMAL, 1))
    return Turns(world)


def test_only_what_is_visible_is_pulled(any_world, broker) -> None:
    due = any_world.clock.wall_ms() + 5_000
    broker.ask(SendMessages("t", [message(), message(due_ms=due), message(b"y" * 200), message()]))
    for _ in range(2):
        found = broker.ask(pull())
        assert (found.status, offsets(found), found.next_offset) == (PullStatus.FOUND, [0, 1, 2], 3)
        assert (found.min_offset, found.max_offset) == (0, 3)
        assert layout.decode(bytes(found.layouts[1])).body == b"y" * 200
        any_world.reopen()
    any_world.clock.advance(5_000)
    broker.settle()
    assert offsets(broker.ask(pull(3))) == [3]


def test_a_pull_goes_through_many_frames_and_queues(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.NORMAL, 3))
    sent = [message(b"%d" % i * (1 + i % 40)) for i in range(1, 400)]
    for at, n in ((0, 1), (1, 2), (3, 60), (63, 1), (64, 335)):
        broker.ask(SendMessages("t", sent[at : at + n]))
    bodies = []
    for queue in range(3):
        found = broker.ask(pull(limit=1_000, queue=queue, max_bytes=1 << 21))
        assert offsets(found) == list(range(found.max_offset))
        bodies += [layout.decode(bytes(each)).body for each in found.layouts]
        step = 0
        while step < found.max_offset:
            part = broker.ask(pull(step, limit=7, queue=queue))
            assert offsets(part) == list(range(step, min(step + 7, found.max_offset)))
            step = part.next_offset
    wanted = [layout.decode(each.record[32:]).body for each in sent]
    assert sorted(bodies) == sorted(wanted)


def test_limits_of_count_and_bytes(broker) -> None:
    broker.ask(SendMessages("t", [message(b"x" * 1_000) for _ in range(9)]))
    size = len(broker.ask(pull(limit=1)).layouts[0])
    assert offsets(broker.ask(pull(limit=4))) == [0, 1, 2, 3]
    assert offsets(broker.ask(pull(2, max_bytes=2 * size))) == [2, 3]
    assert offsets(broker.ask(pull(2, max_bytes=3 * size - 1))) == [2, 3]
    one = broker.ask(pull(4, max_bytes=1))  # never nothing
    assert (offsets(one), one.next_offset) == ([4], 5)
    broker.ask(SendMessages("t", [message()]))
    broker.ask(SendMessages("t", [message()]))
    assert offsets(broker.ask(pull(8, max_bytes=1))) == [8], "the last one of a frame"
    assert offsets(broker.ask(pull(9, max_bytes=1))) == [9]
    tagged = broker.ask(pull(4, max_bytes=1, tags="A"))
    assert (tagged.status, tagged.next_offset) == (PullStatus.FILTERED, 11)
    broker.ask(SendMessages("t", [message() for _ in range(TURN_READ_MAX)]))
    many = broker.ask(pull(0, limit=1 << 30, max_bytes=1 << 30))
    assert offsets(many) == list(range(TURN_READ_MAX))


def test_a_group_whose_offset_is_past_the_end_goes_on_where_it_stands(any_world, broker):
    broker.ask(send(None, None, None))
    past = replace(pull(9), group="g", resumes=True)
    assert broker.ask(past).next_offset == 0, "a new group begins at the first message"
    broker.ask(CommitOffsets("g", "t", {0: 2}))
    assert broker.ask(past) == Pulled(PullStatus.MOVED, [], 2, 0, 3)
    decides = replace(past, resumes=False)
    assert broker.ask(decides).next_offset == 3, "as with RocketMQ"


def test_a_group_of_a_topic_that_is_made_again_misses_nothing(any_world, broker):
    broker.ask(send(*[None] * 9))
    broker.ask(CommitOffsets("g", "t", {0: 9}))
    broker.ask(DeleteTopic("t"))
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.ask(send(None, None))
    found = broker.ask(replace(pull(9), group="g", resumes=True))
    assert found == Pulled(PullStatus.MOVED, [], 0, 0, 2)


def test_offsets_that_are_not_the_queues(any_world, broker) -> None:
    assert broker.ask(pull()) == Pulled(PullStatus.NOTHING, [], 0, 0, 0)
    broker.ask(send(None, None))
    assert broker.ask(pull(2)) == Pulled(PullStatus.NOTHING, [], 2, 0, 2)
    assert broker.ask(pull(3)) == Pulled(PullStatus.MOVED, [], 2, 0, 2)
    assert broker.ask(pull(-1)) == Pulled(PullStatus.MOVED, [], 0, 0, 2)
    for command, code, field in (
        (pull(topic="nope"), ErrorCode.TOPIC_NOT_FOUND, "topic"),
        (pull(queue=1), ErrorCode.BAD_REQUEST, "queue"),
        (pull(queue=-1), ErrorCode.BAD_REQUEST, "queue"),
        (pull(tags="||"), ErrorCode.ILLEGAL_FILTER, "filter_expression"),
    ):
        with pytest.raises(HorologError) as refused:
            broker.ask(command)
        assert (refused.value.code, refused.value.field) == (code, field)


def test_tags_are_compared_by_their_codes(broker) -> None:
    broker.ask(send("A", "B", None, "A", "BB", "Aa", "B"))
    assert offsets(broker.ask(pull(tags="A"))) == [0, 3]
    assert offsets(broker.ask(pull(tags="A || B", limit=2))) == [0, 1]
    assert broker.ask(pull(tags="A || B", limit=2)).next_offset == 2
    assert offsets(broker.ask(pull(tags="Aa"))) == [4, 5], "one code: the client compares tags"
    nothing = broker.ask(pull(1, tags="C"))
    assert nothing == Pulled(PullStatus.FILTERED, [], 7, 0, 7)


def test_a_pull_looks_at_so_many_units_and_no_more(turns) -> None:
    turns.turn(CreateTopic("long", TopicType.NORMAL, 1))
    for _ in range(5):
        turns.turn(send(*["A"] * 1_000, topic="long"))
    turns.turn(send("B", topic="long"))
    (found,) = turns.turn(pull(tags="B", topic="long", poll_ms=1_000))
    assert found.status is PullStatus.FILTERED
    assert found.next_offset == SCAN_MAX
    (found,) = turns.turn(pull(SCAN_MAX, tags="B", topic="long"))
    assert offsets(found) == [5_000]


# --- pulls that wait --------------------------------------------------------------------------------


def test_a_message_ends_a_pull_of_its_queue(turns) -> None:
    waiting = [object() for _ in range(4)]
    none = turns.turn(*(pull(poll_ms=POLL_MAX_MS, queue=i) for i in range(4)), tokens=waiting)
    assert none == [None] * 4
    turns.turn(send(None))
    (answered,) = turns.answers
    assert offsets(turns.answers[answered]) == [0]
    turns.turn(send(None, topic="other"))
    assert not turns.answers
    turns.clock.advance(POLL_MAX_MS - 1)
    turns.turn()
    assert not turns.answers
    turns.clock.advance(1)
    turns.turn()
    assert set(turns.answers) == set(waiting) - {answered}
    assert all(x == Pulled(PullStatus.NOTHING, [], 0, 0, 0) for x in turns.answers.values())
    assert turns.broker.shard.ready.parked == 0
    turns.broker.check_invariants()


def test_a_message_that_does_not_match_wakes_nobody(turns) -> None:
    tokens = [object(), object()]
    topic = {"topic": "other"}
    turns.turn(
        pull(tags="A", poll_ms=1_000, **topic),
        pull(tags="B", poll_ms=1_000, **topic),
        tokens=tokens,
    )
    turns.turn(send("C", "C", **topic))
    assert not turns.answers
    turns.turn(send("C", "A", **topic))
    assert offsets(turns.answers[tokens[0]]) == [3]
    assert turns.answers[tokens[0]].next_offset == 4
    assert tokens[1] not in turns.answers
    turns.clock.advance(1_000)
    turns.turn()
    assert turns.answers == {tokens[1]: Pulled(PullStatus.FILTERED, [], 4, 0, 4)}


@pytest.mark.parametrize("ends", ["cancelled", "client", "told"])
def test_a_pull_ends_with_its_caller(turns, ends: str) -> None:
    token = object()
    turns.turn(pull(poll_ms=1_000), tokens=[token])
    turns.turn(pull(poll_ms=1_000, client="d"))
    if ends == "client":
        turns.turn(ClientGone("c"))
    else:
        turns.turn(CancelReceive(token, answer=ends == "told"))
    nothing = Pulled(PullStatus.NOTHING, [], 0, 0, 0)
    assert turns.answers == ({} if ends == "cancelled" else {token: nothing})
    assert turns.broker.shard.ready.parked == 1
    turns.broker.check_invariants()


def test_pulls_and_receives_wait_beside_each_other(turns) -> None:
    tokens = [object(), object(), object()]
    receive = Receive("g", "other", 0, "*", 1, 10_000, False, 5_000, "c")
    turns.turn(receive, pull(poll_ms=5_000, topic="other"), pull(poll_ms=5_000), tokens=tokens)
    turns.turn(send(None, topic="other"))
    assert set(turns.answers) == set(tokens[:2])
    assert len(turns.answers[tokens[0]].messages) == 1
    assert offsets(turns.answers[tokens[1]]) == [0]


def test_pulls_that_are_over_leave_nothing_after(turns) -> None:
    turns.turn(pull(poll_ms=POLL_MAX_MS))

    def rounds(n: int) -> None:
        for i in range(n):
            tokens = [object() for _ in range(500)]
            turns.turn(*(pull(poll_ms=10, queue=1) for _ in tokens), tokens=tokens)
            if i % 2:
                turns.turn(*map(CancelReceive, tokens))
            else:
                turns.clock.advance(10)
                turns.turn()

    rounds(6)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(40)
    gc.collect()
    assert sys.getallocatedblocks() < before + 1_000, "20 000 pulls"
    assert turns.broker.shard.ready.parked == 1


def test_a_send_costs_the_same_whoever_waits_for_another_queue(turns) -> None:
    turns.turn(CreateTopic("wide", TopicType.NORMAL, 1_000))
    turns.turn(send(None, topic="other"))

    def cost() -> int:
        return min(bytecodes(lambda: turns.turn(send(None, topic="other"))) for _ in range(3))

    nobody = cost()
    waiting = [pull(poll_ms=POLL_MAX_MS, queue=i, topic="wide") for i in range(1_000)]
    assert not any(turns.turn(*waiting))
    assert cost() < nobody + 1_000
    one = bytecodes(lambda: turns.turn(send(None, topic="wide")))
    assert one < nobody + 8_000, "one of 1 000 is woken"
    assert turns.broker.shard.ready.parked == 999


def test_pulls_with_a_filter_are_compared_once_for_all_of_them(turns) -> None:
    topic = {"topic": "other"}

    one = bytecodes(lambda: turns.turn(send("B", **topic)))
    turns.turn(send("A", **topic))
    end = turns.turn(pull(**topic))[0].max_offset
    turns.turn(*(pull(end, tags="A", poll_ms=POLL_MAX_MS, **topic) for _ in range(1_000)))
    many = bytecodes(lambda: turns.turn(send("B", **topic)))
    assert turns.broker.shard.ready.parked == 1_000
    assert many < one + 2_000
    turns.turn(send("A", **topic))
    assert len(turns.answers) == 1_000
    assert len({id(found) for found in turns.answers.values()}) == 1


# --- messages that cannot be read -------------------------------------------------------------------


def test_a_unit_that_leads_nowhere_is_found_again_and_a_hole_is_passed_over(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    broker.ask(send("A", "B", "A"))
    broker.ask(send("A", "B", "A"))
    queue = broker.shard.topics.get("t").queues[0]
    units = queue.read(0, 6).copy()
    units["position"][3] += 5
    units["size"][0] = 0
    queue._tail = [units]
    assert offsets(broker.ask(pull())) == [0, 1, 2, 3, 4, 5], "the log has them"
    assert offsets(broker.ask(pull(tags="A"))) == [0, 2, 3, 5]


def test_a_pull_waits_on_the_simulated_clock_as_long_as_its_caller(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    answer = Answer(pull(poll_ms=500))
    broker.step([answer])
    broker.settle()
    assert not answer.done
    broker.ask(CancelReceive(answer, answer=True))
    assert answer.result == Pulled(PullStatus.NOTHING, [], 0, 0, 0)


def test_a_turn_reads_for_so_many_pulls_and_no_more(turns, monkeypatch) -> None:
    """The others are decided in the next turns, in their order; what else was asked does not wait for them."""
    monkeypatch.setattr("horolog.broker.consume.pulls.TURN_PULLED_MAX", 20)
    turns.turn(*[SendMessages("t", [message()]) for _ in range(32)])
    tokens = [object() for _ in range(12)]
    pulls = [pull(limit=8, queue=number % 4) for number in range(12)]
    *found, sent = turns.turn(*pulls, send(None, topic="other"), tokens=[*tokens, object()])
    assert not isinstance(sent, HorologError)
    answered = [result for result in found if result is not None]
    assert len(answered) < 12
    while len(answered) < 12:
        assert turns.last.wake_in_ms == 0
        turns.turn()
        later = [turns.answers[token] for token in tokens if token in turns.answers]
        assert 0 < len(later) <= 6
        answered += later
    assert all(isinstance(each, Pulled) and each.layouts for each in answered)
