"""The life of a queue offset for a group (`ready.lease_life`): the code does what the table says."""

from __future__ import annotations

import pytest

from horolog.ready.lease_life import TABLE, Event, State
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress

PAIRS = [(state, event) for state in State for event in Event]


def offset_in(state: State) -> tuple[QueueProgress, int]:
    """Progress of a queue, and an offset of it that is in a state."""
    progress = QueueProgress()
    for offset in range(3):
        ends_at = 1 if offset == 1 else 10
        progress.lease(offset, Lease(1, offset, ends_at, 0, 10), Event.GRANT)
    progress.next = 3
    progress.expire(1)
    progress.consume(2, Event.ACK)
    offset = {"leased": 0, "ended": 1, "consumed": 2, "new": 3}[state]
    assert progress.state(offset) is state
    return progress, offset


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_offset(state: State, event: Event) -> None:
    """As the table says, or an AssertionError that changes nothing."""
    progress, offset = offset_in(state)
    progress.check_invariants()
    expected = TABLE.get((state, event))
    if event in (Event.END, Event.RETAIN, Event.COMMIT, Event.REWIND):
        return  # of many at once: `expire` looks at what is leased, the others at everything
    if state is State.ENDED:
        progress.take_free()

    def happens() -> None:
        if event in (Event.ACK, Event.SKIP, Event.HOLE, Event.GIVE_UP):
            assert progress.consume(offset, event) == (state is not State.CONSUMED)
        else:
            progress.lease(offset, Lease(2, 9, 20, 0, 10), event)
            progress.next = max(progress.next, offset + 1)

    if expected is None:
        with pytest.raises(AssertionError, match="illegal event"):
            happens()
        assert progress.state(offset) is state
    else:
        happens()
        assert progress.state(offset) is expected
        progress.check_invariants()


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", [Event.RETAIN, Event.COMMIT, Event.REWIND])
def test_what_happens_to_many_offsets_at_once(state: State, event: Event) -> None:
    progress, offset = offset_in(state)
    if event is Event.REWIND:
        assert progress.commit(1) == [0]
        assert progress.commit(0) == [1], "the one that is left"
    elif event is Event.COMMIT:
        assert progress.commit(offset + 1) == [o for o in (0, 1) if o <= offset]
    else:
        progress.drop_below(offset + 1)
    assert progress.state(offset) is TABLE[state, event]
    progress.check_invariants()


def test_every_state_of_an_offset_is_reached_and_all_events_come() -> None:
    table = TABLE
    assert {state for state, _ in table} == set(State)
    assert set(table.values()) == set(State)
    assert {event for (_, event), state in table.items() if state is State.NEW} == {Event.REWIND}
    assert {event for _, event in table} == set(Event)


@pytest.mark.parametrize(
    "broken",
    [
        lambda progress: progress.acked.add(0),
        lambda progress: progress.leases.pop(0),
        lambda progress: progress.ends.drop(0),
        lambda progress: progress.ends.set(0, 99),
        lambda progress: progress.free.clear(),
        lambda progress: progress.free.append(1),
        lambda progress: setattr(progress, "next", 5),
        lambda progress: setattr(progress, "floor", 2),
    ],
)
def test_broken_progress_is_reported(broken) -> None:
    progress, _ = offset_in(State.NEW)
    progress.check_invariants()
    broken(progress)
    with pytest.raises(AssertionError):
        progress.check_invariants()
