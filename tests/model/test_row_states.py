"""The states of a run's rows against a model that holds one state a row: every history of a few rows."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest

from horolog.delay.far.row_states import RowStates
from horolog.delay.far.run_state import RunState, decode_run_state, encode_run_state
from horolog.delay.state import EntryState

WAITING, QUARANTINED = EntryState.WAITING, EntryState.QUARANTINED
GOING = (EntryState.HANDING_OVER, EntryState.RECALLING)
SETTLED_BY = {
    EntryState.HANDING_OVER: (EntryState.HANDED_OVER,),
    EntryState.RECALLING: (EntryState.RECALLED, EntryState.MOVED, EntryState.EXPIRED),
}
ROWS = 3
EVERY = [state for state in EntryState if state is not EntryState.SETTLED_BITS]


class Model(NamedTuple):
    """What is so: the state of each row, the batches in flight in the order of the log, and what is committed."""

    rows: tuple[EntryState, ...]
    flights: tuple[tuple[EntryState, tuple[int, ...]], ...] = ()

    def put(self, chosen: tuple[int, ...], state: EntryState) -> tuple[EntryState, ...]:
        return tuple(state if row in chosen else was for row, was in enumerate(self.rows))

    @property
    def committed(self) -> tuple[EntryState, ...]:
        """As a start finds it that has lost what is in flight."""
        return tuple(WAITING if state in GOING else state for state in self.rows)


class Step(NamedTuple):
    """An event, the rows that it comes to, and what is so then."""

    event: EntryState
    rows: tuple[int, ...]
    after: Model


def some(rows: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(rows) + 1):
        yield from combinations(rows, count)


def steps(model: Model) -> Iterator[Step]:
    """All that can happen next: to any rows that wait, to the oldest batch, and in a replay."""
    waiting = [row for row, state in enumerate(model.rows) if state is WAITING]
    for rows in some(waiting):
        for event in GOING:
            flights = (*model.flights, (event, rows))
            yield Step(event, rows, Model(model.put(rows, event), flights))
        yield Step(QUARANTINED, rows, Model(model.put(rows, QUARANTINED), model.flights))
    if model.flights:
        (event, rows), *later = model.flights
        for state in SETTLED_BY[event]:
            yield Step(state, rows, Model(model.put(rows, state), tuple(later)))
        return
    lost = [row for row, state in enumerate(model.rows) if state is QUARANTINED]
    for rows in some(sorted(waiting + lost)):
        for state in (EntryState.HANDED_OVER, *SETTLED_BY[EntryState.RECALLING]):
            yield Step(state, rows, Model(model.put(rows, state)))


def happen(states: RowStates, step: Step) -> None:
    rows = np.array(step.rows, np.int64)
    if step.event in GOING:
        states.mark(rows, step.event)
    else:
        states.settle(rows, step.event)


def compare(states: RowStates, model: Model) -> None:
    states.check_invariants()
    every = np.arange(ROWS)
    assert states.at(every).tolist() == list(model.rows)
    assert states.in_flight == bool(model.flights)
    assert states.waiting == sum(state in (WAITING, *GOING) for state in model.rows)
    assert states.count_waiting() == states.waiting
    assert states.recalling == any(event is EntryState.RECALLING for event, _ in model.flights)
    gone = [state in (*SETTLED_BY[EntryState.RECALLING], QUARANTINED) for state in model.rows]
    assert states.gone_between(0, ROWS).tolist() == gone
    left = states.left_between(0, ROWS)
    for row, state in enumerate(model.rows):
        if state is WAITING:
            assert left[row]
            assert row >= states.first_left
        elif state in (*SETTLED_BY[EntryState.RECALLING], EntryState.RECALLING, QUARANTINED):
            assert not left[row]


def restarted(states: RowStates) -> RowStates:
    """As a start finds it by a checkpoint that is captured now."""
    found = decode_run_state(encode_run_state(RunState(ROWS, {}, states.capture())))
    assert found is not None
    again = RowStates(ROWS)
    again.restore(states.cursor, states.limit, states.waiting)
    again.restore_maps(found.maps)
    return again


def settled_as(states: RowStates) -> tuple:
    """All that the rest of its life depends on."""
    every = np.arange(ROWS)
    maps = {kind: bits.tobytes() for kind, bits in states.maps.items() if bits.any()}
    return (
        states.cursor,
        states.decided,
        states.passed_rows().tobytes(),
        tuple(sorted(states.passed)),
        tuple(sorted(maps.items())),
        states.at(every).tobytes(),
    )


def test_every_history_of_three_rows() -> None:
    """Breadth first over what can be told apart, with a restart from each of them."""
    first = Model((WAITING,) * ROWS)
    found = {(first, settled_as(RowStates(ROWS)))}
    left = deque([(first, RowStates(ROWS))])
    while left:
        model, states = left.popleft()
        compare(states, model)
        compare(restarted(states), Model(model.committed))
        for step in steps(model):
            after = copy.deepcopy(states)
            happen(after, step)
            seen = step.after, settled_as(after)
            if seen not in found:
                found.add(seen)
                left.append((step.after, after))
    assert len({model.rows for model, _ in found}) == len(EVERY) ** ROWS


@pytest.mark.parametrize("event", [state for state in EVERY if state is not WAITING])
@pytest.mark.parametrize("state", EVERY)
def test_an_event_that_is_not_legal_changes_nothing(state: EntryState, event: EntryState) -> None:
    reach = {
        WAITING: (),
        EntryState.HANDED_OVER: (EntryState.HANDING_OVER, EntryState.HANDED_OVER),
        EntryState.RECALLED: (EntryState.RECALLING, EntryState.RECALLED),
        EntryState.MOVED: (EntryState.RECALLING, EntryState.MOVED),
        EntryState.EXPIRED: (EntryState.RECALLING, EntryState.EXPIRED),
    }.get(state, (state,))
    model = Model((WAITING,) * ROWS)
    states = RowStates(ROWS)
    for each in reach:
        happen(states, Step(each, (1,), model))
    legal = {step.event for step in steps(Model((state, WAITING, WAITING))) if 0 in step.rows}
    if state in SETTLED_BY:
        legal |= set(SETTLED_BY[state])
    before = settled_as(states)
    if event in legal:
        happen(states, Step(event, (1,), model))
        assert settled_as(states) != before
    else:
        with pytest.raises(AssertionError, match="of a message that is"):
            happen(states, Step(event, (1,), model))
        assert settled_as(states) == before


def test_a_cut_takes_what_is_not_gone() -> None:
    states = RowStates(10)
    states.settle(np.array([2, 8]), EntryState.RECALLED)
    states.cut(5)
    assert (states.limit, states.count, states.waiting) == (5, 10, 4)
    assert states.count_waiting() == 4
