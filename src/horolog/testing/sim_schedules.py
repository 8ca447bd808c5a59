"""Recurring schedules in a simulation: created, paused, resumed, changed, removed; recalls too.

They are checked from outside, by what a new group finds at the end, with a calendar of the
checker's own: each firing is there once, for a time that the rule gives, not early; no firing that
was recalled, or paused away, is there; and a schedule that no client has touched, and that makes up
for all missed times, has every single firing.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from horolog.calendar.rules import Zones, check_rule
from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    Recall,
    Recalled,
    RecallStatus,
    Receive,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.schedules import (
    ChangeSchedule,
    Content,
    CreateSchedule,
    Cursor,
    FindSchedule,
    ListSchedules,
    Missed,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    Rule,
    ScheduleView,
    due_of,
)
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

TOPIC = "ticks"
_TIMES_MAX = 40  # of a schedule that makes up for all missed times: clocks jump by years here
_BY_NAME: dict[str, type[PauseSchedule | ResumeSchedule | RemoveSchedule]] = {
    "pause": PauseSchedule,
    "resume": ResumeSchedule,
    "remove": RemoveSchedule,
}
_COMMANDS = (CreateSchedule, ChangeSchedule, PauseSchedule, ResumeSchedule, RemoveSchedule)


class _Fired(NamedTuple):
    """A firing that was found at the end."""

    schedule: str
    number: int
    nominal_ms: int
    due_ms: int
    message_id: str


class Schedules(Actor):
    """The client that makes schedules in one simulation, and what it knows of them."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0.1, 0.3])
        self._broker = broker
        self._views: dict[str, ScheduleView] = {}  # as last answered
        self._made: dict[str, ScheduleView] = {}  # as answered when it was created
        self._asked: set[str] = set()  # names of all schedules whose creation was asked for
        # Names of schedules that were changed, perhaps without an answer
        self._touched: set[str] = set()
        # Name → wall clock of the removal, or since when the schedule is paused
        self._ended: dict[str, int] = {}
        self._newest: dict[str, object] = {}  # the last change of each schedule that was asked for
        self._cancelled: set[str] = set()  # message ids, as answered
        self._latest_ms = 0  # latest time that the clock has shown
        self._removed_ms = 0  # when the remaining schedules were removed

    def begin(self) -> None:
        """Create the topic."""
        self._broker.ask(CreateTopic(TOPIC, TopicType.MIXED, 2))

    def turn(
        self, _topics: tuple[str, ...], wall_ms: int, _mono_ms: int
    ) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        self._latest_ms = max(self._latest_ms, wall_ms)
        roll = self._random.random()
        if roll < 0.4 or not self._views:
            name = f"s{len(self._asked)}"
            self._asked.add(name)
            create = CreateSchedule(name, self._rule(wall_ms), Content(TOPIC, b"\0"))
            return [Answer(create)], f"create schedule {name}"
        name = self._random.choice(sorted(self._views))
        if roll < 0.5:
            return [Answer(FindSchedule(name))], f"look at schedule {name}"
        self._touched.add(name)
        planned = self._views[name].planned
        if roll < 0.6 and planned:
            firing = self._random.choice(planned)
            recall = Recall(TOPIC, firing.message_id, firing.due_ms)
            return [Answer(recall)], f"recall {name} {firing.number}"
        change = self._random.choice(["pause", "pause", "resume", "resume", "change", "remove"])
        self._ended.pop(name, None)
        if change == "change":
            rule = self._rule(wall_ms)._replace(times=0, missed=Missed.LATEST)
            asked = Answer(ChangeSchedule(name, rule, Content(TOPIC, b"\0")))
        else:
            asked = Answer(_BY_NAME[change](name))
        self._newest[name] = asked.command
        return [asked], f"{change} schedule {name}"

    def _rule(self, wall_ms: int) -> Rule:
        draw = self._random.choice
        missed = draw(list(Missed))
        times = draw([1, 5, _TIMES_MAX]) if missed is Missed.ALL else draw([0, 0, 3])
        rule = Rule(zone=draw(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]), times=times)
        rule = rule._replace(missed=missed, end_ms=draw([0, 0, wall_ms + 5 * HOUR_MS]))
        if self._random.random() < 0.5:
            every_ms = draw([1_000, 7_000, 60_000, HOUR_MS, 20 * HOUR_MS])
            start_ms = draw([0, 0, wall_ms + 5_000, wall_ms - 100 * HOUR_MS])
            rule = rule._replace(every_ms=every_ms, start_ms=start_ms)
            return check_rule(rule._replace(jitter_ms=draw([0, every_ms // 2])), wall_ms)
        cron = draw(["* * * * * *", "*/15 * * * *", "30 2 * * *", "0 0 1 * *"])
        return check_rule(rule._replace(cron=cron, jitter_ms=draw([0, 900])), wall_ms)

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of this client."""
        command = answer.command
        if isinstance(command, Recall):
            return command.topic == TOPIC
        return isinstance(command, (*_COMMANDS, FindSchedule))

    def noted(self, answer: Answer, latest_ms: int) -> None:
        """Note an answer that has been released; `latest_ms`: the latest time of the clock."""
        command, result = answer.command, answer.result
        self._latest_ms = max(self._latest_ms, latest_ms)
        if isinstance(result, Recalled):
            if result.status is RecallStatus.CANCELLED:
                self._cancelled.add(result.message_id)
        elif isinstance(result, ScheduleView):
            self._views[result.name] = result
            if isinstance(command, CreateSchedule):
                self._made[result.name] = result
            elif isinstance(command, RemoveSchedule):
                del self._views[result.name]
                self._ended[result.name] = self._latest_ms
            elif isinstance(command, PauseSchedule) and self._newest[result.name] is command:
                self._ended[result.name] = self._latest_ms

    # --- the end --------------------------------------------------------------------------------

    def remove_all(self, wall_ms: int) -> None:
        """Remove the remaining schedules after the last hand-over, so that nothing is pending."""
        self._removed_ms = wall_ms
        self._latest_ms = max(self._latest_ms, wall_ms)
        while page := self._broker.ask(ListSchedules()):
            for view in page:
                if view.name not in self._asked:
                    raise PromiseBroken(f"P11: schedule {view.name} is there, and nobody made it")
                self._broker.ask(RemoveSchedule(view.name))
        self._broker.settle()

    def finish(self, *, lost_allowed: bool) -> None:
        """Compare; called after `remove_all`."""
        found = self._consume()
        for of in ("number", "nominal_ms", "message_id"):
            times = Counter((each.schedule, getattr(each, of)) for each in found)
            twice = [key for key, count in times.items() if count > 1]
            if twice:
                raise PromiseBroken(f"P3: fired twice, by {of}: {twice[:5]}")
        for each in found:
            self._check(each)
        dropped = sum(self._broker.ask(DescribeTopic(TOPIC)).min_offsets)
        if lost_allowed or dropped:
            return
        for name, view in self._made.items():
            if name not in self._touched:
                self._check_whole(view, [each for each in found if each.schedule == name])

    def _check(self, fired: _Fired) -> None:
        if fired.schedule not in self._asked:
            raise PromiseBroken(f"P11: {fired} of a schedule that nobody made")
        if fired.message_id in self._cancelled:
            raise PromiseBroken(f"P8: {fired} was CANCELLED and is delivered")
        if fired.due_ms < fired.nominal_ms:
            raise PromiseBroken(f"P1: {fired} is due before its time")
        ended_ms = self._ended.get(fired.schedule)
        if ended_ms is not None and fired.due_ms > ended_ms:
            raise PromiseBroken(
                f"P8: {fired}, and the schedule was paused or removed at {ended_ms}"
            )

    def _check_whole(self, view: ScheduleView, found: list[_Fired]) -> None:
        """Check a schedule that no client touched: its firings are of the rule, and complete.

        They must be complete only if the schedule makes up for all missed times.
        """
        rule, cursor, calendar = view.rule.since(view.created_ms), Cursor(view.created_ms), Zones()
        times = {each.nominal_ms: each for each in found}
        for at_ms, each in times.items():
            given = calendar.after(rule, Cursor(at_ms - 1))
            if given is None or given.at_ms != at_ms or at_ms <= view.created_ms:
                raise PromiseBroken(f"P2: {each} is for a time that {rule} does not give")
            if each.due_ms != due_of(view.name, rule, at_ms) or each.due_ms > self._latest_ms:
                raise PromiseBroken(f"P1: {each} is due at a time that {rule} does not give")
        if rule.missed is not Missed.ALL:
            return
        for number in range(1, rule.times + 1):
            later = calendar.after(rule, cursor)
            if later is None or due_of(view.name, rule, later.at_ms) > self._removed_ms:
                return
            cursor = later
            if cursor.at_ms not in times or times[cursor.at_ms].number != number:
                raise PromiseBroken(f"P2: firing {number} of {view.name}, {cursor}, is not there")

    def _consume(self) -> list[_Fired]:
        found: list[_Fired] = []
        command = Receive("final", TOPIC, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            for message in messages:
                stored = layout.decode(message.layout)
                known = properties.decode(stored.properties)
                due_ms = int(known[properties.TIMER_DELIVER_MS])
                if due_ms > stored.store_ms:
                    raise PromiseBroken(
                        f"P1: a firing due {due_ms} is visible at {stored.store_ms}"
                    )
                found.append(
                    _Fired(
                        known["HOROLOG_SCHEDULE"],
                        int(known["HOROLOG_FIRING"]),
                        int(known["HOROLOG_FIRING_TIME"]),
                        due_ms,
                        known[properties.UNIQ_KEY],
                    )
                )
        return found
