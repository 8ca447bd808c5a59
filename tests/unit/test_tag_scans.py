"""A tag filter that matches little: a turn looks at so many units, the poll goes on in the next, others get theirs.

Work is counted by how far groups have come, with limits as small as the backlog.
"""

from __future__ import annotations

import pytest
from plain_sends import plain, send_plain
from turns import Turns

from horolog.broker.consume import receives
from horolog.limits import POLL_MAX_MS
from horolog.protocol.commands import CancelReceive, CreateTopic, Receive, Received, TopicType
from horolog.ready import free_pick

HOUR_MS = 3_600_000
BACKLOG = 4_000
AT_ONCE, OF_POLL, OF_TURN = 64, 256, 1_024


@pytest.fixture
def turns(world, monkeypatch) -> Turns:
    monkeypatch.setattr(free_pick, "SCAN_MAX", AT_ONCE)
    monkeypatch.setattr(receives, "RECEIVE_SCAN_MAX", OF_POLL)
    monkeypatch.setattr(receives, "TURN_SCAN_MAX", OF_TURN)
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 2))
    send_plain(world, "t", BACKLOG, "b")
    return Turns(world)


def poll(group: str, tags: str = "a", poll_ms: int = POLL_MAX_MS) -> Receive:
    return Receive(group, "t", -1, tags, 4, HOUR_MS, False, poll_ms, "c")


def looked_at(turns: Turns, group: str) -> int:
    """Queue offsets that a group has passed, of all queues."""
    found = turns.broker.shard.ready
    number = found.groups.ids[group]
    return sum(each.next for each in found.progress.get((number, 1), {}).values())


def test_a_poll_looks_at_so_much_a_turn_and_stays_parked(turns) -> None:
    assert turns.turn(poll("g")) == [None]
    seen = looked_at(turns, "g")
    steps = 2  # of a turn of `Turns`
    assert 0 < seen <= steps * OF_POLL
    while looked_at(turns, "g") < BACKLOG:
        assert turns.last.wake_in_ms == 0, "it goes on at once"
        before = looked_at(turns, "g")
        assert turns.turn() == []
        assert before < looked_at(turns, "g") <= before + steps * OF_POLL
        turns.broker.check_invariants()
    turns.turn()
    assert turns.last.wake_in_ms != 0, "and then it waits"
    assert turns.broker.shard.ready.parked == 1
    turns.turn(plain("t", 1, "a", BACKLOG))
    (answer,) = turns.answers.values()
    assert isinstance(answer, Received)
    assert len(answer.messages) == 1


def test_others_get_their_turn_meanwhile(turns) -> None:
    tokens = [object() for _ in range(40)]
    turns.turn(*(poll(f"g{i}") for i in range(40)), tokens=tokens)
    groups = [f"g{i}" for i in range(40)]
    after = [0] * 40
    while sum(looked_at(turns, group) for group in groups) < 40 * BACKLOG:
        before = sum(looked_at(turns, group) for group in groups)
        assert isinstance(turns.turn(poll("all", "*"))[0], Received), (
            "who takes all is not kept waiting"
        )
        after = [looked_at(turns, group) for group in groups]
        assert sum(after) <= before + 2 * (OF_TURN + AT_ONCE)
        assert max(after) - min(after) <= 2 * (OF_POLL + AT_ONCE), "no group is left behind"
    assert turns.broker.shard.ready.parked == 40


def test_a_receive_that_does_not_wait_still_gets_what_is_there(turns) -> None:
    turns.turn(plain("t", 1, "a", BACKLOG))
    token = object()
    answers: dict[object, object] = {token: turns.turn(poll("g", poll_ms=0), tokens=[token])[0]}
    for _ in range(BACKLOG):
        if answers.get(token):
            break
        turns.turn()
        answers = turns.answers
    answer = answers[token]
    assert isinstance(answer, Received)
    assert len(answer.messages) == 1
    token = object()
    turns.turn(poll("other", "nothing", poll_ms=0), tokens=[token])
    while token not in turns.answers:
        turns.turn()
    assert turns.answers[token] == Received([])
    assert turns.broker.shard.ready.parked == 0
    assert looked_at(turns, "other") == BACKLOG + 1


def test_a_poll_that_is_cancelled_is_looked_for_no_more(turns) -> None:
    token = object()
    turns.turn(poll("g"), tokens=[token])
    assert turns.last.wake_in_ms == 0
    turns.turn(CancelReceive(token))
    assert turns.last.wake_in_ms != 0
    seen = looked_at(turns, "g")
    turns.turn()
    assert looked_at(turns, "g") == seen < BACKLOG
    turns.broker.check_invariants()


def test_what_is_found_is_what_one_look_would_find(turns) -> None:
    for first in range(5):
        turns.turn(plain("t", 1, "a", BACKLOG + first), plain("t", 300, "b", 0))
    token, found = object(), []
    while len(found) < 5:
        waits = turns.turn(poll("g"), tokens=[token])
        answer = waits[0]
        while answer is None:
            turns.turn()
            answer = turns.answers.get(token)
        found += [each.queue_offset for each in answer.messages]
        assert answer.messages
    assert len(found) == 5
