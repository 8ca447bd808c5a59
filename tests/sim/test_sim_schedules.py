"""The checker of recurring schedules in the simulator can fail: it is shown what must not be."""

from __future__ import annotations

import pytest

from horolog.protocol.commands import MessageType, SendMessages
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.schedules import Content, CreateSchedule, Missed, Rule
from horolog.testing.sim_broker import Answer
from horolog.testing.sim_checks import PromiseBroken
from horolog.testing.sim_schedules import TOPIC, Schedules

RULE = Rule(every_ms=60_000, times=3, missed=Missed.ALL)


@pytest.fixture
def checker(world) -> Schedules:
    """One that has made a schedule, which has fired twice."""
    found = Schedules(1, world.broker)
    found.begin()
    create = Answer(CreateSchedule("s0", RULE, Content(TOPIC, b"\0")))
    found._asked.add("s0")
    create.result = world.broker.ask(create.command)
    found.noted(create, world.clock.wall_ms())
    for _ in range(2):
        world.clock.advance(60_000)
        world.broker.settle()
    return found


def finish(world, checker: Schedules) -> None:
    checker.remove_all(world.clock.wall_ms())
    checker.finish(lost_allowed=False)


def send(world, name: str, number: int, nominal_ms: int) -> None:
    """A message that looks like a firing."""
    marks = {
        "HOROLOG_SCHEDULE": name,
        "HOROLOG_FIRING": str(number),
        "HOROLOG_FIRING_TIME": str(nominal_ms),
    }
    made = encode(
        topic=TOPIC,
        body=b"\0",
        message_id="forged",
        type=MessageType.DELAY,
        due_ms=world.clock.wall_ms() - 1,
        user_properties=marks,
    )
    world.broker.ask(SendMessages(TOPIC, [made]))


def test_all_is_well(world, checker) -> None:
    finish(world, checker)


def test_what_would_have_fired_after_the_schedules_were_removed_is_not_missing(
    world, checker
) -> None:
    checker.remove_all(world.clock.wall_ms())
    world.clock.advance(60_000)
    checker.finish(lost_allowed=False)


def test_a_firing_that_is_there_twice(world, checker) -> None:
    send(world, "s0", 2, world.clock.wall_ms() - 7)
    with pytest.raises(PromiseBroken, match="P3: fired twice, by number"):
        finish(world, checker)


def test_a_time_that_the_rule_does_not_give(world, checker) -> None:
    send(world, "s0", 3, world.clock.wall_ms() - 7)
    with pytest.raises(PromiseBroken, match=r"P2: .* does not give"):
        finish(world, checker)


def test_a_schedule_that_nobody_made(world, checker) -> None:
    send(world, "nobody", 1, world.clock.wall_ms() - 7)
    with pytest.raises(PromiseBroken, match="P11"):
        finish(world, checker)


def test_a_firing_that_is_missing(world, checker) -> None:
    checker.remove_all(world.clock.wall_ms() + 60_000)  # the third one was due by then
    with pytest.raises(PromiseBroken, match="P2: firing 3 of s0"):
        checker.finish(lost_allowed=False)
