"""State tables: every pair of state and event, and what the code makes of those that must not come."""

from __future__ import annotations

from enum import Enum

import pytest

from horolog.broker import checkpoint_life
from horolog.broker.checkpoint_life import Event, Life
from horolog.state_table import after, allows


def pairs(states: type[Enum], events: type[Enum]) -> list[tuple]:
    return [(state, event) for state in states for event in events]


@pytest.mark.parametrize(("state", "event"), pairs(Life, Event))
def test_checkpoint(state: Life, event: Event) -> None:
    table = checkpoint_life.TABLE
    if (state, event) in table:
        assert after(table, state, event) is table[state, event]
    else:
        assert not allows(table, state, event)
        with pytest.raises(AssertionError, match="illegal event"):
            after(table, state, event)


def test_every_state_of_a_checkpoint_is_reached_and_left() -> None:
    table = checkpoint_life.TABLE
    assert {state for state, _ in table} == set(Life) == set(table.values())
    assert {event for _, event in table} == set(Event)


def test_a_checkpoint_that_nobody_began_cannot_end(world) -> None:
    checkpoints = world.broker._opened.broker.checkpoints
    with pytest.raises(AssertionError, match="illegal event: durable in state none"):
        checkpoints.done(0)
    with pytest.raises(AssertionError, match="illegal event: failed in state none"):
        checkpoints.failed()
    checkpoints.check_invariants()
