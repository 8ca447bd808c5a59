"""One message may be for many polls that wait: a turn answers so many of them, and nobody waits for good."""

from __future__ import annotations

import pytest
from plain_sends import plain
from turns import Turns

from horolog.broker.consume import receives, waiting
from horolog.limits import POLL_MAX_MS
from horolog.protocol.commands import CancelReceive, CreateTopic, Receive, Received, TopicType

HOUR_MS = 3_600_000
AT_ONCE = 4
PER_STEP = 2 * AT_ONCE  # a turn of `Turns` has two steps


@pytest.fixture
def turns(world, monkeypatch) -> Turns:
    monkeypatch.setattr(waiting, "TURN_SERVED_MAX", AT_ONCE)
    monkeypatch.setattr(receives, "TURN_SERVED_MAX", AT_ONCE)
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 2))
    return Turns(world)


def poll(group: str) -> Receive:
    return Receive(group, "t", -1, "*", 1, HOUR_MS, False, POLL_MAX_MS, "c")


def answered(turns: Turns) -> dict[object, object]:
    """What the polls get, turn by turn, until a turn is not wanted at once."""
    found = dict(turns.answers)
    while turns.last.wake_in_ms == 0:
        turns.turn()
        assert len(turns.answers) <= PER_STEP
        assert not turns.answers.keys() & found.keys(), "answered twice"
        found.update(turns.answers)
        turns.broker.check_invariants()
    return found


def test_a_message_for_many_groups_is_given_to_some_of_them_a_turn(turns) -> None:
    groups = [f"g{i:02d}" for i in range(30)]
    turns.turn(*map(poll, groups), tokens=list(groups))
    turns.turn(plain("t", 1, "a", 0))
    assert len(turns.answers) <= PER_STEP
    assert turns.last.wake_in_ms == 0, "the others have the next turns"
    turns.turn(CancelReceive("g29"))
    early = dict(turns.answers)
    found = early | answered(turns)
    assert turns.broker.shard.ready.parked == 0
    assert all(isinstance(each, Received) and len(each.messages) == 1 for each in found.values())
    assert "g29" not in found


def test_many_polls_of_one_group_get_many_messages_over_some_turns(turns) -> None:
    tokens: list[object] = [f"poll-{i}" for i in range(30)]
    turns.turn(*[poll("g") for _ in tokens], tokens=tokens)
    turns.turn(plain("t", 25, "a", 0))
    assert len(turns.answers) <= PER_STEP
    found = answered(turns)
    assert len(found) == 25
    assert turns.broker.shard.ready.parked == 5


def test_a_group_whose_news_is_new_waits_for_those_that_wait_longer(turns) -> None:
    groups = [f"g{i:02d}" for i in range(20)]
    turns.turn(*map(poll, groups), tokens=list(groups))
    turns.turn(plain("t", 1, "a", 0))
    first = list(turns.answers)
    turns.turn(*map(poll, first), plain("t", 1, "a", 1), tokens=[*(f"{g} again" for g in first), 0])
    found = turns.answers | answered(turns)
    order = [str(token) for token in found if token != 0]
    old = [i for i, token in enumerate(order) if "again" not in token]
    new = [i for i, token in enumerate(order) if "again" in token]
    assert len(new) == len(first)
    assert max(old) < min(new)
