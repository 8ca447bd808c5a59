"""Commands of schedules: each makes its changes in one frame of its own.

Planned messages that are not due are recalled in the same frame as the change that makes them
obsolete: a RECALL for each message, after the SCHEDULE record.  Their firings are taken back:
numbers and times are assigned again, ids of messages never are.  A message that was recalled or
moved by hand counts as a firing, and is left as it is: its time is *used*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from horolog.broker.applied import Applied, Settled
from horolog.broker.effects import Effects, Now
from horolog.broker.handlers import Handler, Input
from horolog.broker.life.space import DiskPressure
from horolog.broker.recall.recalls import find_copies
from horolog.broker.schedule import rows
from horolog.broker.schedule.firings import is_beyond, message, message_id_of, still_ahead
from horolog.broker.schedule.planning import Planner
from horolog.broker.schedule.registry import new_schedule
from horolog.broker.schedule.schedule import Schedule
from horolog.broker.send.late_marks import check_policy
from horolog.broker.shard import Shard
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    SCHEDULE_BYTES_MAX,
    SCHEDULES_BYTES_MAX,
    SCHEDULES_MAX,
    TURN_SCHEDULES_MAX,
)
from horolog.log.control_records import (
    encode_recall,
    encode_schedule,
    encode_schedule_end,
    origins_of,
)
from horolog.log.record import HEAD_BYTES
from horolog.protocol.accepted import refusal
from horolog.protocol.rocketmq.names import check_schedule
from horolog.protocol.schedules import (
    ChangeSchedule,
    CreateSchedule,
    Cursor,
    FindSchedule,
    Firing,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    ScheduleView,
    State,
)
from horolog.protocol.send_commands import MessageType
from horolog.units import TIME_MAX_MS, counted, format_time_ms


class ScheduleChanges:
    """The schedule handlers of `broker.decisions`.

    The planner plans firings at the end of the turn.
    """

    def __init__(self, shard: Shard, disk: DiskPressure) -> None:
        self._shard = shard
        self._disk = disk
        self.planner = Planner(shard, disk)

    def handlers(self) -> Mapping[type, Handler]:
        """Return the rows of the handler table for the commands of schedules."""
        return {
            CreateSchedule: lambda _item, command, now, _: self._create(command, now),
            ChangeSchedule: lambda _item, command, now, _: self._change(command, now),
            PauseSchedule: lambda _item, command, now, _: self._pause(command, now),
            ResumeSchedule: lambda _item, command, now, _: self._resume(command, now),
            RemoveSchedule: lambda _item, command, now, _: self._remove(command, now),
            FindSchedule: lambda _item, command, now, _: self._view(command.name, now),
            ListSchedules: self._page,
        }

    # --- questions ------------------------------------------------------------------------------

    def _view(self, name: str, now: Now) -> ScheduleView:
        return _view_without_due(self._shard.schedules.get(name), now)

    def _page(self, _: Input, command: ListSchedules, now: Now, _e: Effects) -> object:
        """Return one turn's worth of schedules, by name."""
        schedules = self._shard.schedules.by_name
        names = sorted(schedules)
        at = bisect_right(names, command.after)
        return [
            _view_without_due(schedules[name], now) for name in names[at : at + TURN_SCHEDULES_MAX]
        ]

    # --- changes --------------------------------------------------------------------------------

    def _create(self, command: CreateSchedule, now: Now) -> ScheduleView:
        schedules = self._shard.schedules
        check_schedule(command.name)
        known = schedules.by_name.get(command.name)
        if known is not None:
            _check_is_the_same(known, command)
            return _view_without_due(known, now)
        if len(schedules.by_name) >= SCHEDULES_MAX:
            raise refused(
                "schedule",
                f"there are {SCHEDULES_MAX} schedules already, the most that are allowed",
                f"{SCHEDULES_MAX} schedules",
            )
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        made = new_schedule(
            schedules.last + 1, command.name, command.rule, command.content, now.wall_ms
        )
        self._check_content(made, 0)
        if command.dry_run:
            return made.view()
        schedules.put(made)
        self._append([encode_schedule(made.row)], [], now)
        return made.view()

    def _change(self, command: ChangeSchedule, now: Now) -> ScheduleView:
        schedules = self._shard.schedules
        known = schedules.get(command.name)
        if command.revision not in (0, known.revision):
            raise refused(
                "revision",
                f"schedule {known.name!r} has revision {known.revision}, not {command.revision}: "
                "somebody has changed it",
                code=ErrorCode.SCHEDULE_CHANGED,
            )
        if (command.rule, command.content) == (known.rule, known.content):
            return _view_without_due(known, now)
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        made = new_schedule(
            known.schedule_id, known.name, command.rule, command.content, now.wall_ms
        )
        self._check_content(made, known.size)
        fired = known.fired - len(known.planned)
        if made.rule.times and made.rule.times <= fired:
            raise _times_used_up(made, fired)
        recalls, settled, back = self._take_back(known, now, dry_run=command.dry_run)
        state = known.state if known.state is State.PAUSED else State.ACTIVE
        last_ms = max(back.before.at_ms, now.wall_ms)
        local = back.before.local if last_ms == back.before.at_ms else ""
        made.revision, made.state = known.revision + 1, state
        made.sequence, made.fired = known.sequence, back.fired
        made.cursor = Cursor(last_ms, local)
        made.before = back.before
        made.used = back.used
        if command.dry_run:
            return made.view()
        schedules.put(made)
        self._append([encode_schedule(made.row), *recalls], settled, now)
        return made.view()

    def _pause(self, command: PauseSchedule, now: Now) -> ScheduleView:
        known = self._shard.schedules.get(command.name)
        if known.state is State.PAUSED:
            return known.view()
        recalls, settled, back = self._take_back(known, now)
        row = self._shard.schedules.set_progress(known, back._replace(state=State.PAUSED))
        self._append([encode_schedule(row), *recalls], settled, now)
        return known.view()

    def _resume(self, command: ResumeSchedule, now: Now) -> ScheduleView:
        known = self._shard.schedules.get(command.name)
        if known.state is not State.PAUSED:
            return _view_without_due(known, now)
        cursor = known.before
        if cursor.at_ms < now.wall_ms:
            cursor = Cursor(now.wall_ms)
        progress = rows.Progress(
            known.revision + 1,
            State.ACTIVE,
            known.sequence,
            known.fired,
            cursor,
            known.before,
            known.planned,
            known.used,
        )
        row = self._shard.schedules.set_progress(known, progress)
        self._shard.schedules.changed[known.schedule_id] = None
        self._append([encode_schedule(row)], [], now)
        return known.view()

    def _remove(self, command: RemoveSchedule, now: Now) -> ScheduleView:
        known = self._shard.schedules.get(command.name)
        view = _view_without_due(known, now)
        recalls, settled, _ = self._take_back(known, now)
        self._shard.schedules.drop(known.schedule_id)
        self._append([encode_schedule_end(known.schedule_id, known.name), *recalls], settled, now)
        return view

    # --- shared by the commands -----------------------------------------------------------------

    def _take_back(
        self, schedule: Schedule, now: Now, *, dry_run: bool = False
    ) -> tuple[list[bytes], list[Settled], rows.Progress]:
        """Recall planned messages that are pending.

        Return the RECALL records, what they settle, and the progress then.  A dry run returns the
        same and marks nothing: its records must not be appended.
        """
        shard = self._shard
        before, ahead = still_ahead(schedule.before, schedule.planned, now.wall_ms)
        records: list[bytes] = []
        settled: list[Settled] = []
        kept: list[Firing] = []
        used = [at_ms for at_ms in schedule.used if at_ms > before.at_ms]
        for firing in ahead:
            copies = find_copies(shard, schedule.content.topic, firing.message_id, firing.due_ms)
            waiting = copies.waiting
            if not bool(waiting.any()):
                kept.append(firing)
                if records:
                    used.append(firing.nominal_ms)
                else:
                    before = Cursor(firing.nominal_ms, firing.local)
                continue
            refs, gone = copies.refs[waiting], copies.entries[waiting]
            if not dry_run:
                shard.delay.mark_inflight(refs, EntryState.RECALLING)
            origins = origins_of(gone["origin"], gone["row"])
            lanes = copies.lanes[waiting]
            records.append(
                encode_recall(copies.topic.id, copies.key, firing.due_ms, origins, lanes)
            )
            settled.append(Settled(refs, EntryState.RECALLED, lanes))
        fired = max([schedule.fired - len(records), *(firing.number for firing in kept)])
        progress = rows.Progress(
            schedule.revision + 1,
            schedule.state,
            schedule.sequence,
            fired,
            before,
            before,
            (),
            tuple(used),
        )
        return records, settled, progress

    def _append(self, records: list[bytes], settled: list[Settled], now: Now) -> None:
        shard = self._shard
        shard.log.append(b"".join(records), len(records), now.wall_ms)
        shard.uncommitted.append(Applied(shard.log.end, [], None, settled))

    def _check_content(self, made: Schedule, size_before: int) -> None:
        """Refuse a content that could never be sent, as the send of its messages would be."""
        topic = self._shard.topics.get(made.content.topic)
        topic.check_writable()
        is_fifo = made.content.message_group is not None
        kind = MessageType.FIFO if is_fifo else MessageType.DELAY
        why = refusal(topic.name, topic.type, kind, is_timed=True)
        if why is not None:
            raise why
        last = 10**15  # the longest number that a firing can have
        message_id = message_id_of(self._shard.log.log_id, made.schedule_id, last)
        firing = Firing(last, TIME_MAX_MS, TIME_MAX_MS, message_id)
        check_policy(message(made.name, made.content, firing, TIME_MAX_MS).record[HEAD_BYTES:])
        if made.size > SCHEDULE_BYTES_MAX:
            raise refused(
                "schedule",
                f"{made.size} bytes as JSON; at most {SCHEDULE_BYTES_MAX} are allowed",
                f"{SCHEDULE_BYTES_MAX} bytes",
            )
        if self._shard.schedules.bytes - size_before + made.size > SCHEDULES_BYTES_MAX:
            raise refused(
                "schedule",
                f"all schedules together may have {SCHEDULES_BYTES_MAX} bytes",
                f"{SCHEDULES_BYTES_MAX} bytes",
            )


def _view_without_due(schedule: Schedule, now: Now) -> ScheduleView:
    """Return a view without the firings that are due, with a problem if the clock was wrong."""
    _, ahead = still_ahead(schedule.before, schedule.planned, now.wall_ms)
    view = schedule.view()._replace(planned=ahead)
    if view.problem or view.state is not State.ACTIVE or not is_beyond(view.cursor, now.wall_ms):
        return view
    at = format_time_ms(view.cursor.at_ms)
    why = f"clock: it was ahead, and the firing of {at} is planned; before that none is"
    return view._replace(problem=f"{why}.  Remove the schedule and create it again")


def _times_used_up(made: Schedule, fired: int) -> HorologError:
    return refused(
        "times",
        f"{made.rule.times}; it has fired {counted(fired, 'time')} already",
        f"over {fired}",
    )


def _check_is_the_same(known: Schedule, command: CreateSchedule) -> None:
    """Raise SCHEDULE_EXISTS, naming the first difference, if the schedule is another one."""
    for there, wanted in ((known.rule, command.rule), (known.content, command.content)):
        for field, value in there._asdict().items():
            other = getattr(wanted, field)
            if value != other:
                shown = "something else" if field in ("body", "properties") else repr(value)
                raise HorologError(
                    ErrorCode.SCHEDULE_EXISTS,
                    f"schedule {known.name!r} exists, with {shown} as its {field}; change it "
                    "(`horolog schedule change`, PUT /v1/schedules/{name}), or remove it",
                    field=field,
                )
