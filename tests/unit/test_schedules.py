"""Recurring schedules in the core: firings are ordinary messages, planned once, whatever happens."""

from __future__ import annotations

import pytest
from worlds import checkpoint, consume, killed_at

from horolog.broker.schedule.firings import FIRING, FIRING_TIME, SCHEDULE
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS, MINUTE_MS, PLANNED_MAX, SCHEDULE_BYTES_MAX
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    ListPending,
    Recall,
    Reschedule,
    TopicSettings,
    TopicType,
)
from horolog.protocol.schedules import (
    ChangeSchedule,
    Content,
    CreateSchedule,
    FindSchedule,
    ListSchedules,
    Missed,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    Rule,
    State,
)
from horolog.testing.sim_broker import Answer

HOURLY = Rule("0 * * * *")
HELLO = Content("t", b"hello", "tag", ("k1", "k2"), {"colour": "red"})


@pytest.fixture
def world(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    any_world.clock.advance(HOUR_MS - any_world.clock.wall_ms() % HOUR_MS)
    return any_world


def create(world, rule: Rule = HOURLY, name: str = "s", content: Content = HELLO):
    return world.broker.ask(CreateSchedule(name, rule, content))


def find(world, name: str = "s"):
    return world.broker.ask(FindSchedule(name))


def pending(world):
    return world.broker.ask(ListPending(0, 1 << 60, "t", 1_000))


def advance(world, ms: int, by: int = MINUTE_MS) -> None:
    end = world.clock.wall_ms() + ms
    while world.clock.wall_ms() < end:
        world.clock.advance(min(by, end - world.clock.wall_ms()))
        world.broker.settle()


def received(world) -> list[dict[str, str]]:
    """Properties of what is there, in order."""
    return [found | {"body": stored.body.decode()} for stored, found in consume(world)]


def firings(world) -> list[int]:
    return [int(found[FIRING]) for found in received(world)]


def times(world) -> list[int]:
    return [int(found[FIRING_TIME]) for found in received(world)]


def test_a_firing_is_an_ordinary_message(world) -> None:
    start = world.clock.wall_ms()
    view = create(world)
    assert (view.state, view.revision) == (State.ACTIVE, 1)
    (first,) = pending(world)
    assert first.due_ms == start + HOUR_MS
    planned = find(world).planned
    assert [(f.number, f.nominal_ms, f.message_id) for f in planned] == [
        (1, first.due_ms, first.message_id)
    ]
    advance(world, 2 * HOUR_MS)
    got = received(world)
    assert [found[FIRING] for found in got] == ["1", "2"]
    assert [int(found[FIRING_TIME]) for found in got] == [start + HOUR_MS, start + 2 * HOUR_MS]
    assert got[0][SCHEDULE] == "s"
    assert (got[0]["TAGS"], got[0]["KEYS"], got[0]["colour"], got[0]["body"]) == (
        "tag",
        "k1 k2",
        "red",
        "hello",
    )
    assert len({found["UNIQ_KEY"] for found in got}) == 2


def test_a_firing_can_be_recalled_and_moved(world) -> None:
    start = world.clock.wall_ms()
    create(world)
    (first,) = pending(world)
    world.broker.ask(Recall("t", first.message_id, first.due_ms))
    advance(world, HOUR_MS)
    (second,) = pending(world)
    world.broker.ask(Reschedule("t", second.message_id, second.due_ms, start + 150 * MINUTE_MS))
    advance(world, 2 * HOUR_MS)
    assert firings(world) == [2, 3]


def test_often_means_planned_in_advance_and_never_early(world) -> None:
    create(world, Rule(every_ms=1_000))
    assert len(pending(world)) == 20
    world.clock.advance(1_000)
    world.broker.settle()
    assert find(world).fired == 20, "not a frame a second"
    advance(world, 59_000, by=700)
    assert firings(world) == list(range(1, 61))


@pytest.mark.parametrize("keep", [False, True])
def test_it_goes_on_after_a_restart(world, keep: bool) -> None:
    start = world.clock.wall_ms()
    create(world, Rule("*/10 * * * *"))
    advance(world, 25 * MINUTE_MS)
    before = find(world)
    if keep:
        checkpoint(world)
    world.reopen()
    assert find(world) == before
    advance(world, 15 * MINUTE_MS)
    assert times(world) == [start + n * 10 * MINUTE_MS for n in (1, 2, 3, 4)]


def test_a_replay_asks_no_calendar(world) -> None:
    create(world)
    world.broker.settle()
    planned = find(world).planned
    world.broker.settings = world.broker.settings._replace(calendar=None)  # whoever asks it fails
    world.reopen()
    shard = world.broker.shard
    assert shard.schedules.get("s").planned == planned


@pytest.mark.parametrize(
    ("missed", "expected"),
    [(Missed.LATEST, [1, 5]), (Missed.SKIP, [1]), (Missed.ALL, [1, 2, 3, 4, 5])],
)
def test_what_a_pause_of_the_broker_has_missed(world, missed: Missed, expected) -> None:
    """Down for five hours: the first firing was planned; the other four were not."""
    start = world.clock.wall_ms()
    create(world, HOURLY._replace(missed=missed))
    world.clock.advance(5 * HOUR_MS + MINUTE_MS)
    world.broker.settle()
    assert times(world) == [start + n * HOUR_MS for n in expected]
    assert [f.nominal_ms for f in find(world).planned] == [start + 6 * HOUR_MS]


def test_a_year_of_seconds_missed_costs_little(world) -> None:
    create(world, Rule("* * * * * *"))
    world.clock.advance(365 * DAY_MS)
    now = world.clock.wall_ms()
    world.broker.settle()
    got = times(world)
    assert len(got) == 21
    assert got[-1] == now - now % 1000


def test_all_that_was_missed_comes_in_turns(world) -> None:
    create(world, Rule(every_ms=1_000, missed=Missed.ALL))
    world.clock.advance(200_000)
    world.broker.settle()
    assert firings(world) == list(range(1, 201))
    assert len(find(world).planned) <= PLANNED_MAX


def test_the_clock_steps_back_and_nothing_fires_again(world) -> None:
    start = world.clock.wall_ms()
    create(world)
    advance(world, HOUR_MS)
    world.clock.step_wall(-30 * MINUTE_MS)
    world.broker.settle()
    world.reopen()
    advance(world, 2 * HOUR_MS)
    assert times(world) == [start + HOUR_MS, start + 2 * HOUR_MS]


@pytest.mark.parametrize("missed", [Missed.LATEST, Missed.SKIP])
def test_a_clock_that_was_ahead_by_days_is_reported(world, missed: Missed) -> None:
    start = world.clock.wall_ms()
    create(world, HOURLY._replace(missed=missed))
    advance(world, HOUR_MS)
    world.clock.step_wall(30 * DAY_MS)
    world.broker.settle()
    assert find(world).problem == ""
    world.clock.step_wall(-30 * DAY_MS)
    world.reopen()
    fired = times(world)
    assert fired[:2] == [start + HOUR_MS, start + 2 * HOUR_MS], "planned, and due by that clock"
    assert "create it again" in find(world).problem
    (listed,) = world.broker.ask(ListSchedules())
    assert listed.problem == find(world).problem
    advance(world, 5 * HOUR_MS)
    assert times(world) == []
    world.broker.ask(RemoveSchedule("s"))
    create(world, HOURLY)
    advance(world, HOUR_MS)
    assert times(world) == [start + 7 * HOUR_MS]
    assert find(world).problem == ""


def test_count_and_end(world) -> None:
    start = world.clock.wall_ms()
    create(world, HOURLY._replace(times=2))
    create(world, HOURLY._replace(end_ms=start + HOUR_MS), "until")
    advance(world, 5 * HOUR_MS)
    assert sorted(found[SCHEDULE] for found in received(world)) == ["s", "s", "until"]
    assert {view.name: (view.state, view.fired) for view in world.broker.ask(ListSchedules())} == {
        "s": (State.ENDED, 2),
        "until": (State.ENDED, 1),
    }


def test_what_is_far_is_planned_a_day_before(world) -> None:
    """So that what is planned is near, where no tier takes it, and a new rule of a zone still counts."""
    start = world.clock.wall_ms()
    create(world, Rule(every_ms=10 * DAY_MS))
    assert pending(world) == []
    advance(world, 9 * DAY_MS - MINUTE_MS, by=HOUR_MS)
    assert pending(world) == []
    advance(world, MINUTE_MS)
    assert [each.due_ms for each in pending(world)] == [start + 10 * DAY_MS]


def test_jitter_makes_it_late_and_not_early(world) -> None:
    start = world.clock.wall_ms()
    create(world, HOURLY._replace(jitter_ms=30 * MINUTE_MS))
    advance(world, 4 * HOUR_MS)
    got = received(world)
    assert [int(found[FIRING_TIME]) for found in got] == [start + n * HOUR_MS for n in (1, 2, 3)]
    late = [int(found["TIMER_DELIVER_MS"]) - int(found[FIRING_TIME]) for found in got]
    assert all(0 <= ms <= 30 * MINUTE_MS for ms in late)
    assert any(late)


@pytest.mark.parametrize("restart", [False, True])
def test_pause_and_resume(world, restart: bool) -> None:
    start = world.clock.wall_ms()
    create(world)
    advance(world, HOUR_MS + MINUTE_MS)
    assert world.broker.ask(PauseSchedule("s")).state is State.PAUSED
    assert pending(world) == []
    if restart:
        world.reopen()
    assert world.broker.ask(PauseSchedule("s")).revision == 2, "again: no change"
    advance(world, 3 * HOUR_MS)
    assert world.broker.ask(ResumeSchedule("s")).state is State.ACTIVE
    assert world.broker.ask(ResumeSchedule("s")).revision == 3
    if restart:
        world.reopen()
    advance(world, HOUR_MS)
    got = received(world)
    assert [int(found[FIRING]) for found in got] == [1, 2]
    assert [int(found[FIRING_TIME]) for found in got] == [start + HOUR_MS, start + 5 * HOUR_MS]


def test_a_pause_takes_back_what_is_planned_and_not_filed_yet(world) -> None:
    in_flight = 0
    for i in range(10):
        world.broker.step([Answer(CreateSchedule(f"s{i}", HOURLY, HELLO))])
        in_flight += len(world.broker.shard.uncommitted)
        world.broker.step([Answer(PauseSchedule(f"s{i}"))])
    world.broker.settle()
    assert (in_flight > 0, pending(world)) == (True, [])


def test_a_schedule_that_does_not_exist(world) -> None:
    for command in (PauseSchedule("s"), RemoveSchedule("s"), ChangeSchedule("s", HOURLY, HELLO)):
        with pytest.raises(HorologError) as refused:
            world.broker.ask(command)
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_a_short_pause_loses_nothing_and_fires_once(world) -> None:
    create(world, HOURLY._replace(times=2))
    (first,) = pending(world)
    world.broker.ask(PauseSchedule("s"))
    world.broker.ask(ResumeSchedule("s"))
    (again,) = pending(world)
    assert again.due_ms == first.due_ms
    assert again.message_id != first.message_id
    advance(world, 4 * HOUR_MS)
    assert firings(world) == [1, 2]


def test_a_firing_recalled_by_hand_is_not_planned_again_by_a_pause(world) -> None:
    start = world.clock.wall_ms()
    create(world, Rule(every_ms=1_000))
    waiting = pending(world)
    for each in waiting[1:3]:
        world.broker.ask(Recall("t", each.message_id, each.due_ms))
    world.broker.ask(PauseSchedule("s"))
    world.broker.ask(ResumeSchedule("s"))
    advance(world, 5_000, by=1_000)
    assert times(world) == [start + n * 1_000 for n in (1, 4, 5)]


def test_a_schedule_is_changed_with_compare_and_set(world) -> None:
    create(world)
    rule = Rule("30 * * * *")
    with pytest.raises(HorologError) as caught:
        world.broker.ask(ChangeSchedule("s", rule, HELLO, 7))
    assert caught.value.code is ErrorCode.SCHEDULE_CHANGED
    view = world.broker.ask(ChangeSchedule("s", rule, HELLO, 1))
    assert (view.revision, view.rule) == (2, rule)
    assert world.broker.ask(ChangeSchedule("s", rule, HELLO)).revision == 2, "the same"
    (planned,) = pending(world)
    assert planned.due_ms % HOUR_MS == 30 * MINUTE_MS
    world.reopen()
    advance(world, HOUR_MS)
    assert firings(world) == [1]
    with pytest.raises(HorologError, match=r"^times: 1; it has fired 1 time already"):
        world.broker.ask(ChangeSchedule("s", rule._replace(times=1), HELLO))


def test_a_dry_run_of_a_change_says_what_it_would_be_and_changes_nothing(world) -> None:
    create(world)
    advance(world, HOUR_MS)
    rule = Rule("30 * * * *", jitter_ms=MINUTE_MS)
    before = world.broker.ask(FindSchedule("s")), pending(world), world.broker.shard.log.end
    with pytest.raises(HorologError) as caught:
        world.broker.ask(ChangeSchedule("s", rule, HELLO, 7, dry_run=True))
    assert caught.value.code is ErrorCode.SCHEDULE_CHANGED
    foreseen = world.broker.ask(ChangeSchedule("s", rule, HELLO, 1, dry_run=True))
    world.broker.check_invariants(rows=True)
    assert (
        world.broker.ask(FindSchedule("s")),
        pending(world),
        world.broker.shard.log.end,
    ) == before
    assert foreseen == world.broker.ask(ChangeSchedule("s", rule, HELLO, 1))._replace(planned=())


def test_a_removed_schedule_leaves_nothing(world) -> None:
    create(world)
    with pytest.raises(HorologError, match="'s' sends to it"):
        world.broker.ask(DeleteTopic("t"))
    world.broker.ask(RemoveSchedule("s"))
    assert pending(world) == []
    world.reopen()
    with pytest.raises(HorologError) as caught:
        find(world)
    assert (caught.value.code, caught.value.field) == (ErrorCode.NOT_FOUND, "schedule")
    create(world)
    assert world.broker.shard.schedules.get("s").schedule_id == 2
    world.broker.ask(RemoveSchedule("s"))
    world.broker.ask(DeleteTopic("t"))


def test_the_type_of_a_topic_that_a_schedule_sends_to_stays(world) -> None:
    world.broker.ask(CreateTopic("mixed", TopicType.MIXED, 1))
    create(world, content=HELLO._replace(topic="mixed"))
    with pytest.raises(HorologError, match="'s' sends to it"):
        world.broker.ask(ChangeTopic("mixed", type=TopicType.DELAY))
    world.broker.ask(RemoveSchedule("s"))
    assert world.broker.ask(ChangeTopic("mixed", type=TopicType.DELAY)).type is TopicType.DELAY


def test_created_twice_is_created_once(world) -> None:
    first = create(world, Rule(every_ms=HOUR_MS))
    world.clock.advance(MINUTE_MS)
    again = create(world, Rule(every_ms=HOUR_MS))
    assert again.created_ms == first.created_ms
    for rule, content, field in (
        (Rule(every_ms=HOUR_MS, zone="Europe/Berlin"), HELLO, "zone"),
        (Rule(every_ms=HOUR_MS), HELLO._replace(body=b"bye"), "body"),
    ):
        with pytest.raises(HorologError) as caught:
            create(world, rule, content=content)
        assert (caught.value.code, caught.value.field) == (ErrorCode.SCHEDULE_EXISTS, field)


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("s p", HELLO, "schedule"),
        ("", HELLO, "schedule"),
        ("s" * 128, HELLO, "schedule"),
        ("s", HELLO._replace(topic="nobody"), "topic"),
        ("s", HELLO._replace(topic="closed"), "topic"),
        ("s", HELLO._replace(topic="normal"), "message_type"),
        ("s", HELLO._replace(body=b""), "body"),
        ("s", HELLO._replace(tag="a|b"), "tag"),
        ("s", HELLO._replace(properties={"UNIQ_KEY": "x"}), "user_properties"),
        ("s", HELLO._replace(properties={"HOROLOG_LATE": "drop soon"}), "HOROLOG_LATE"),
        ("s", HELLO._replace(body=b"x" * SCHEDULE_BYTES_MAX), "schedule"),
    ],
)
def test_what_is_refused_changes_nothing(world, name, content, field) -> None:
    world.broker.ask(CreateTopic("normal", TopicType.NORMAL, 1))
    world.broker.ask(CreateTopic("closed", TopicType.MIXED, 1, TopicSettings(perm=4)))
    end = world.broker.shard.log.end
    with pytest.raises(HorologError) as caught:
        create(world, name=name, content=content)
    assert caught.value.field.startswith(field)
    assert world.broker.ask(ListSchedules()) == []
    assert world.broker.shard.log.end == end


def test_a_topic_that_nobody_may_send_to_stops_its_schedules_for_a_while(world) -> None:
    create(world)
    world.broker.ask(ChangeTopic("t", 0, TopicSettings(perm=4)))
    advance(world, 2 * HOUR_MS)
    assert "nobody may send" in find(world).problem
    world.broker.ask(ChangeTopic("t", 0, TopicSettings(perm=6)))
    advance(world, MINUTE_MS)
    assert find(world).problem == ""
    assert firings(world) == [1, 2], "the latest of those that were missed"


def test_many_schedules_are_planned_in_turns(world) -> None:
    for n in range(150):
        create(world, HOURLY, f"s{n}")
    world.reopen()
    advance(world, HOUR_MS, by=10 * MINUTE_MS)
    assert len(received(world)) == 150
    names = [view.name for view in world.broker.ask(ListSchedules("s97"))]
    assert names == ["s98", "s99"]


LONG = HELLO._replace(body=b"x" * 1_000)  # so that frames of messages are long
EVENTS = {
    "create": CreateSchedule("s", Rule(every_ms=4_000), LONG),
    "pause": PauseSchedule("s"),
    "change": ChangeSchedule("s", Rule(every_ms=5_000), LONG),
    "remove": RemoveSchedule("s"),
}


@pytest.mark.parametrize("event", [*EVENTS, "plan"])
def test_killed_at_every_change_of_the_disk(make_world, event: str) -> None:
    """Whatever a crash leaves: either the schedule is as before or as after, and each firing comes once."""
    nth = 0
    while killed_in(make_world(), event, nth):
        nth += 1
    assert nth >= 2


@pytest.mark.parametrize("event", [*EVENTS, "plan"])
def test_torn_anywhere(make_world, event: str) -> None:
    """The power goes before the log is synced, and only the first bytes of what was written are there."""
    kept, whole = 0, 1
    while kept < whole:
        whole = killed_in(make_world(), event, 1, kept=kept)
        kept += 400


def killed_in(world, event: str, nth: int, *, kept: int | None = None) -> int:
    """Kill a broker before the nth change of the disk in an event, start it again, and check what it finds.

    Of what it wrote to the log, `kept` bytes stay (None: all).  Return how many it wrote, + 1; 0 if nothing was killed.
    """
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    start = world.clock.wall_ms()
    if event != "create":
        create(world, Rule(every_ms=4_000), content=LONG)
    end = world.broker.shard.log.end
    with killed_at(world.disk, nth) as life:
        if event == "plan":
            world.clock.advance(12_000)
            world.broker.settle()
        else:
            world.broker.ask(EVENTS[event])
    written = world.broker.shard.log.end - end
    world.disk.crash(power_cut=False)
    if kept is not None:
        log = world.disk.open("shard-00/log/00000000000000000000.log")
        log.write(end + kept, bytes(max(0, written - kept)))
    world.broker.open()
    view = {each.name: each for each in world.broker.ask(ListSchedules())}.get("s")
    advance(world, 40_000, by=4_000)
    got = [(int(found[FIRING]), int(found[FIRING_TIME])) for found in received(world)]
    if view is None or view.state is State.PAUSED:
        assert event in ("create", "remove", "pause")
        assert got == []
        assert pending(world) == []
        return life.killed and written + 1
    step = view.rule.every_ms
    assert step == 4_000 or event == "change"
    numbers, nominal = zip(*got, strict=True)
    assert numbers == tuple(range(1, len(got) + 1))
    begin = view.created_ms if step != 4_000 else start
    assert nominal == tuple(begin + n * step for n in numbers)
    assert nominal[-1] > world.clock.wall_ms() - step
    return life.killed and written + 1
