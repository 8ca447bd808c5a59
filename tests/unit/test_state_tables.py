"""State tables: every pair of state and event, and what the code makes of those that must not come."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest

from horolog.broker.adopt import adoption_life
from horolog.broker.adopt.adoptions import stage_of
from horolog.broker.life import checkpoint_life
from horolog.delay.far.adopted import Adoption
from horolog.lake.core import stages as lake_stages
from horolog.lake.core.stages import Event, Stage
from horolog.lake.core.state import Lake
from horolog.lake.core.state_file import COUNT
from horolog.limits import HOUR_MS
from horolog.protocol.adoption_commands import Adopt
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.state_table import after, allows
from horolog.testing.sim_broker import Answer

TABLES = {
    "checkpoint": (checkpoint_life.TABLE, checkpoint_life.Life, checkpoint_life.Event),
    "offload": (lake_stages.TABLE, lake_stages.Stage, lake_stages.Event),
    "adoption": (adoption_life.TABLE, adoption_life.Stage, adoption_life.Event),
}


def every_pair() -> list[tuple]:
    return [
        pytest.param(table, state, event, id=f"{name}-{state}-{event}")
        for name, (table, states, events) in TABLES.items()
        for state in states
        for event in events
    ]


@pytest.mark.parametrize(("table", "state", "event"), every_pair())
def test_a_pair_is_in_the_table_or_illegal(table, state: Enum, event: Enum) -> None:
    if (state, event) in table:
        assert allows(table, state, event)
        assert after(table, state, event) is table[state, event]
    else:
        assert not allows(table, state, event)
        with pytest.raises(AssertionError, match="illegal event"):
            after(table, state, event)


@pytest.mark.parametrize("name", TABLES)
def test_every_state_is_reached_and_left_and_every_event_used(name) -> None:
    table, states, events = TABLES[name]
    assert {state for state, _ in table} == set(states) == set(table.values())
    assert {event for _, event in table} == set(events)


def test_a_checkpoint_that_nobody_began_cannot_end(world) -> None:
    checkpoints = world.broker.core.checkpoints
    with pytest.raises(AssertionError, match="illegal event: durable in state none"):
        checkpoints.done(0)
    with pytest.raises(AssertionError, match="illegal event: failed in state none"):
        checkpoints.failed()
    checkpoints.check_invariants()


# --- offloads: every event in every stage, done to a lake ---------------------------------------

FROM_MS = 500_000 * HOUR_MS
COUNTS = np.array([(1, 500_001, 1, 2)], COUNT)


def lake_in(stage: Stage) -> Lake:
    lake = Lake()
    if stage is not Stage.NONE:
        lake.begin(1, "a", FROM_MS, is_whole=stage is not Stage.BROKEN)
    if stage in (Stage.FROZEN, Stage.LAKE):
        lake.happened(1, Event.FREEZE)
    if stage is Stage.LAKE:
        lake.commit(1, {"uri": "x", "rows": 2}, 64, COUNTS)
    assert lake.stage_of(1) is stage
    lake.check_invariants()
    return lake


DONE = {
    Event.BEGIN: lambda lake: lake.begin(1, "a", FROM_MS),
    Event.BEGIN_UNFILED: lambda lake: lake.begin(1, "a", FROM_MS, is_whole=False),
    Event.FREEZE: lambda lake: lake.happened(1, Event.FREEZE),
    Event.COMMIT: lambda lake: lake.commit(1, {"uri": "x", "rows": 2}, 64, COUNTS),
    Event.ABORT: lambda lake: lake.abort(1),
    Event.PROMOTE: lambda lake: lake.apply_promotion(1, 500_001, 1),
    Event.REBUILT: lambda lake: lake.happened(1, Event.REBUILT),
}


@pytest.mark.parametrize("event", DONE)
@pytest.mark.parametrize("stage", Stage)
def test_a_lake_does_what_the_table_has_and_nothing_else(stage: Stage, event: Event) -> None:
    lake = lake_in(stage)
    before = lake.encode(), lake.registry()
    if (stage, event) in lake_stages.TABLE:
        DONE[event](lake)
        assert lake.stage_of(1) is lake_stages.TABLE[stage, event]
        lake.check_invariants()
        return
    with pytest.raises(AssertionError):
        DONE[event](lake)
    assert (lake.encode(), lake.registry()) == before


@pytest.mark.parametrize("stage", Stage)
def test_only_an_offload_in_the_lake_can_be_over(stage: Stage) -> None:
    lake = lake_in(stage)
    if stage is Stage.LAKE:
        lake.apply_promotion(1, 500_001, 1)
    lake.forget(1 << 40)
    assert lake.stage_of(1) is lake_stages.TABLE.get((stage, Event.OVER), stage)


# --- adoptions ----------------------------------------------------------------------------------


def test_a_version_is_appended_once_and_committed(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    shard = world.broker.shard
    seen = [stage_of(shard, "app", 0)]
    answers = [Answer(Adopt("app", 0, "t")) for _ in range(2)]
    world.broker.step(answers)
    seen.append(stage_of(shard, "app", 0))
    world.broker.settle()
    seen.append(stage_of(shard, "app", 0))
    assert seen == [*adoption_life.Stage]
    assert [answer.result.already for answer in answers] == [False, True]


def test_an_adoption_that_was_not_appended_is_not_applied(world) -> None:
    world.broker.shard.adoptions["app"] = 0
    with pytest.raises(AssertionError, match="app 1 was not appended"):
        world.broker.shard._adopt(Adoption(64, "app", 1, 1, 1, 0, []))
