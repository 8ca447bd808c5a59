"""When the next turn is: never two asked for, and with company while a write is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from horolog.limits import KIB
from horolog.server.next_turn import NextTurn


class Timer:
    """A call that a loop was asked for; `after_s` is None for one at once."""

    def __init__(self, after_s: float | None, call: Callable[[], None]) -> None:
        self.after_s = after_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Waiting:
    """A next turn with a log that is busy when it is told so, and the calls that its loop was asked for."""

    def __init__(self) -> None:
        self.log = SimpleNamespace(is_busy=False)
        self.inputs = SimpleNamespace(message_bytes=0)
        self.meters = SimpleNamespace(recent_turn_s=0.002)
        self.calls: list[Timer] = []
        self.next = NextTurn(*cast(Any, (self.log, self.inputs, self.meters)))
        loop = SimpleNamespace(
            call_soon=lambda call: self._asked(None, call),
            call_later=self._asked,
        )
        self.next.start(cast(asyncio.AbstractEventLoop, loop), lambda: None)

    def _asked(self, after_s: float | None, call: Callable[[], None]) -> Timer:
        self.calls.append(Timer(after_s, call))
        return self.calls[-1]

    def had(self) -> None:
        """A turn, to its end."""
        self.next.turn_arrived()
        self.next.turn_began()
        self.next.inputs_taken()
        self.next.appended()
        self.next.write_started()


def test_one_turn_at_most_is_asked_for() -> None:
    waiting = Waiting()
    for gather in (True, False, True):
        waiting.next.soon(gather=gather)
    assert [call.after_s for call in waiting.calls] == [None]
    assert waiting.next.is_asked
    waiting.had()
    assert waiting.calls[0].is_cancelled, "a turn that came for another reason is in its place"
    assert not waiting.next.is_asked


def test_what_comes_during_a_write_waits_for_company() -> None:
    waiting = Waiting()
    waiting.log.is_busy = True
    waiting.next.soon(gather=True)
    waiting.had()
    waiting.next.soon()
    assert [call.after_s for call in waiting.calls] == [pytest.approx(0.006), None]


def test_what_is_asked_during_a_turn_is_had_after_its_write_has_begun() -> None:
    waiting = Waiting()
    waiting.next.turn_began()
    waiting.next.soon()  # before the inputs are taken: this turn has it
    waiting.next.inputs_taken()
    waiting.next.appended()
    waiting.next.write_started()
    assert not waiting.next.is_asked
    waiting.next.turn_began()
    waiting.next.inputs_taken()
    waiting.next.soon()
    waiting.next.appended()
    assert not waiting.next.is_asked
    waiting.log.is_busy = True
    waiting.next.write_started()
    assert [call.after_s for call in waiting.calls] == [pytest.approx(0.006)]
    waiting.next.turn_arrived()
    waiting.next.write_started()
    assert not waiting.next.is_asked, "it was wanted once"


def test_what_becomes_due_has_one_timer_and_company_during_a_write() -> None:
    waiting = Waiting()
    waiting.next.within(4)
    waiting.had()
    waiting.log.is_busy = True
    waiting.next.within(4)
    waiting.had()
    waiting.next.within(500)
    assert [call.after_s for call in waiting.calls] == [0.004, pytest.approx(0.006), 0.5]
    assert [call.is_cancelled for call in waiting.calls] == [True, True, False]
    assert not waiting.next.is_asked


def test_sends_gather_during_a_write_until_they_are_many() -> None:
    waiting = Waiting()
    assert not waiting.next.can_gather()
    waiting.log.is_busy = True
    assert waiting.next.can_gather()
    waiting.inputs.message_bytes = 64 * KIB - 1
    assert waiting.next.can_gather()
    waiting.inputs.message_bytes += 1
    assert not waiting.next.can_gather()


@pytest.mark.parametrize(("turn_s", "wait_s"), [(0.0, 0.001), (0.002, 0.006), (1.0, 0.01)])
def test_inputs_wait_three_times_as_long_as_a_turn_takes(turn_s: float, wait_s: float) -> None:
    waiting = Waiting()
    waiting.meters.recent_turn_s = turn_s
    assert waiting.next.gather_s == pytest.approx(wait_s)
