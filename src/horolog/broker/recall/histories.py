"""The history of a message: everything that log and present state can tell, in log order.

    the key index     names the records of the message, its attempts and its dead letters: when it
                      was accepted, moved and handed over, sent back, given up
    a log scan        finds what no index has: recalls, leases, acknowledgements (`control_scans`)
    the present       gives the current state; what only it tells has no instant, leases excepted

Nothing is made up: where the instant of an event is not known it is None, and where events may be
missing the history is not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horolog.broker.recall import past
from horolog.broker.recall.control_scans import ControlScan
from horolog.broker.recall.look_ups import find_messages
from horolog.broker.recall.trails import QueuePlace, Trail
from horolog.broker.send.dead_letters import REDRIVING
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.limits import HISTORY_EVENTS_MAX
from horolog.log.controls import read_control
from horolog.log.frame_reader import Hole
from horolog.log.record import Kind
from horolog.protocol.commands import FindMessages, FoundMessage, MessageState
from horolog.protocol.history_commands import (
    GroupDelivery,
    GroupState,
    MessageEvent,
    MessageHistory,
    ShowMessage,
)
from horolog.protocol.rocketmq import layout, retry
from horolog.protocol.rocketmq.late_policy import late_topic
from horolog.protocol.rocketmq.message import key_hash
from horolog.ready.lease_life import State

_LAST = 1 << 63  # after all log positions: for events that the log did not tell
_EVENTS = {  # by which a message came into its present state
    MessageState.RECALLED: MessageEvent.RECALLED,
    MessageState.EXPIRED: MessageEvent.EXPIRED,
    MessageState.QUARANTINED: MessageEvent.QUARANTINED,
    MessageState.IN_TIER: MessageEvent.OFFLOADED,
}


class Histories:
    """Requests for histories, by the token of the command."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._trails: dict[object, Trail] = {}

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to do at once."""
        return any(trail.is_searching for trail in self._trails.values())

    def is_searching(self, token: object, command: ShowMessage) -> bool:
        """Return whether the log is still being searched; the first call begins the search.

        Raise TOPIC_NOT_FOUND.
        """
        trail = self._trails.get(token)
        if trail is None:
            trail = self._trails[token] = self._begin(command)
        return trail.is_searching

    def end(self, token: object) -> None:
        """Forget the trail of a command that is answered."""
        self._trails.pop(token, None)

    def work(self) -> None:
        """Search a piece of the log for the first request that is not done."""
        for trail in self._trails.values():
            if trail.scan is not None and not trail.scan.done:
                for logged in trail.scan.scan_next():
                    trail.take(logged)
                if len(trail.events) > HISTORY_EVENTS_MAX:
                    trail.scan.end()
                    trail.whole = False
                return

    def show(self, token: object, command: ShowMessage) -> MessageHistory | None:
        """Return the history, once the search is done; None if it has to be searched for once more.

        It is searched for again if the state of a message has changed during the search.
        """
        trail = self._trails.pop(token)
        found = find_messages(self._shard, FindMessages(command.topic, command.message_id))
        if [each.state for each in found] != trail.states:
            if not trail.again:
                self._trails[token] = self._begin(command, again=True)
                return None
            trail.whole = False
        whole = trail.whole and (trail.scan is None or trail.scan.whole)
        found = [_with_ending(each, trail) for each in found]
        groups = self._present(trail, found)
        trail.events.sort(key=lambda each: each.position)
        return MessageHistory(found, [each.event for each in trail.events], groups, whole)

    # --- what the key index knows -----------------------------------------------------------------

    def _begin(self, command: ShowMessage, *, again: bool = False) -> Trail:
        shard = self._shard
        topic = shard.topics.get(command.topic)
        found = find_messages(shard, FindMessages(command.topic, command.message_id))
        states = [view.state for view in found]
        trail = Trail(topic, shard.ready.groups, states, again, bool(found))
        starts = []
        for of_topic in self._related(topic):
            for copy in past.with_id(shard, of_topic, command.message_id):
                starts.append(copy.position)
                self._take_copy(trail, of_topic, copy)
        trail.origins |= self._origins(topic, command.message_id, {view.origin for view in found})
        for view in found:
            self._take_adopted(trail, view)
            starts.append(view.origin)
            trail.whole &= view.origin >= shard.log.start
        if not found:
            return trail
        first = max(min(starts), shard.log.start)
        frame = shard.log.frame(first)
        start = shard.log.start if isinstance(frame, Hole) else frame.base
        trail.scan = ControlScan(shard.log, start, shard.log.commit_position)
        return trail

    def _origins(self, topic: Topic, message_id: str, known: set[int]) -> set[tuple[int, int]]:
        """Return the origins of the found messages with their rows, as the delay store has them."""
        delay = self._shard.delay
        entries = delay.entries(delay.find_key(key_hash(topic.name, message_id), topic.id, None))
        rows = zip(entries["origin"].tolist(), entries["row"].tolist(), strict=True)
        return {origin for origin in rows if origin[0] in known}

    def _related(self, topic: Topic) -> Iterator[Topic]:
        """Yield the topic, and the topics to which failed or late messages of it go."""
        shard = self._shard
        yield topic
        names = [late_topic(topic.name)]
        for group_id, name in shard.ready.groups.names.items():
            if (group_id, topic.id) in shard.ready.progress:
                names += [retry.retry_topic(name), retry.dead_letter_topic(name)]
        for name in names:
            if name in shard.topics.by_name and name != topic.name:
                yield shard.topics.by_name[name]

    def _take_copy(self, trail: Trail, topic: Topic, copy: past.Copy) -> None:
        """Add the event that one message record tells to the trail."""
        stored = layout.decode(copy.layout)
        detail: dict[str, Any] = {} if topic is trail.topic else {"topic": topic.name}
        visible = copy.kind is not Kind.SCHEDULED
        if visible:
            detail |= {"queue_id": stored.queue_id, "queue_offset": stored.queue_offset}
            trail.places[topic.id, stored.queue_id, stored.queue_offset] = topic
        else:
            trail.origins.add((copy.position, 0))
        at_ms = self._appended_ms(copy.position, stored.store_ms)
        if copy.kind is Kind.HANDED:
            lateness = {"due_ms": copy.due_ms, "lateness_ms": at_ms - copy.due_ms}
            trail.add(copy.position, MessageEvent.HANDED_OVER, at_ms, **lateness, **detail)
            return
        if copy.due_ms:
            detail["deliver_at_ms"] = copy.due_ms
        event, more = self._creating_event(trail, topic, copy.position)
        if visible and event is MessageEvent.MOVED:
            event = MessageEvent.HANDED_OVER
            more |= {"by_request": True, "due_ms": detail.pop("deliver_at_ms", 0)}
            more["lateness_ms"] = at_ms - more["due_ms"]
        trail.add(copy.position, event, at_ms, **more, **detail)

    def _appended_ms(self, position: int, store_ms: int) -> int:
        """Return the wall clock when a record was appended.

        Store time stays ahead after a step of the clock back.
        """
        frame = self._shard.log.frame(position)
        return store_ms if isinstance(frame, Hole) else min(store_ms, frame.append_ms)

    def _creating_event(
        self, trail: Trail, topic: Topic, position: int
    ) -> tuple[MessageEvent, dict[str, Any]]:
        """Return the event that made a message record.

        It follows from the topic and the control records before the message in its frame.
        """
        if topic is not trail.topic:
            if topic.name.startswith(retry.RETRY_PREFIX):
                return MessageEvent.SENT_BACK, {"group": topic.name[len(retry.RETRY_PREFIX) :]}
            group = retry.group_of_letters(topic.name)
            return MessageEvent.DEAD_LETTERED, {"group": group} if group != topic.name else {}
        from_ms = past.moved_from(self._shard, position)
        if from_ms is not None:
            return MessageEvent.MOVED, {"from_due_ms": from_ms}
        frame = self._shard.log.frame(position)
        if isinstance(frame, Hole):
            return MessageEvent.ACCEPTED, {}
        for at in past.controls_before(frame, position):
            control = read_control(frame.body, at, frame.start + at)
            if control.kind is Kind.SCHEDULE:
                return MessageEvent.ACCEPTED, {"schedule": control.content.get("name", "")}
            if control.kind is Kind.HALF_END:
                return MessageEvent.ACCEPTED, {"transaction": True}
            if control.kind is Kind.ADOPT:
                return MessageEvent.ACCEPTED, {"app": control.content["app"]}
            if control.kind is Kind.ACK and self._is_redriving(control.content.group):
                return MessageEvent.REDRIVEN, {}
        return MessageEvent.ACCEPTED, {}

    def _is_redriving(self, group: int) -> bool:
        return self._shard.ready.groups.ids.get(REDRIVING) == group

    def _take_adopted(self, trail: Trail, view: FoundMessage) -> None:
        """Add the event of a message that came in a file: its origin is the ADOPT record."""
        log = self._shard.log
        if view.origin in {each.position for each in trail.events}:
            return
        found = log.record(view.origin)
        if isinstance(found, Hole):
            trail.whole = False
            return
        control = read_control(found, 0, view.origin)
        if control.kind is not Kind.ADOPT:
            return
        frame = log.frame(view.origin)
        assert not isinstance(frame, Hole), "the record was read out of it"
        header = next((header for header, _ in log.intact_frames(frame.base, frame.end)), None)
        if header is None:  # damaged since it was read
            trail.whole = False
            return
        detail = {"app": control.content["app"], "deliver_at_ms": view.due_ms}
        trail.add(view.origin, MessageEvent.ACCEPTED, header.append_ms, **detail)

    # --- the present ------------------------------------------------------------------------------

    def _present(self, trail: Trail, found: list[FoundMessage]) -> list[GroupDelivery]:
        """Return the state in each group, and add the events that the log did not tell.

        Such events have no instant, except leases: the time of their grant is known.
        """
        for view in found:
            event = _EVENTS.get(view.state)
            if event is not None and view.origin not in trail.ended:
                trail.add(_LAST, event, None)
        views: list[GroupDelivery] = []
        newest = max((view for view in found if view.queue_offset >= 0), key=_origin, default=None)
        for place, topic in trail.places.items():
            is_newest = newest is not None and place == (
                trail.topic.id,
                newest.queue_id,
                newest.queue_offset,
            )
            for group in self._groups_at(place):
                if is_newest and group.group != REDRIVING:
                    views.append(group)
                self._add_unlogged(trail, topic, place, group)
        return views

    def _groups_at(self, place: QueuePlace) -> Iterator[GroupDelivery]:
        topic_id, queue, offset = place
        ready = self._shard.ready
        for group_id, name in ready.groups.names.items():
            progress = ready.progress_if_any(group_id, topic_id, queue)
            if progress is None:
                continue
            state = progress.state(offset)
            lease = progress.leases.get(offset)
            if lease is None:
                is_new = state is State.NEW
                yield GroupDelivery(name, GroupState.NEW if is_new else GroupState.CONSUMED)
                continue
            is_live = state is State.LEASED
            yield GroupDelivery(
                name,
                GroupState.LEASED if is_live else GroupState.WAITS_AGAIN,
                lease.attempt,
                lease.granted_ms,
                lease.duration_ms,
            )

    def _add_unlogged(
        self, trail: Trail, topic: Topic, place: QueuePlace, group: GroupDelivery
    ) -> None:
        """Add events of a group that no record has: the log was too long or begins later."""
        key = group.group, place
        detail = trail.detail(topic, group.group)
        if group.state is GroupState.CONSUMED and key not in trail.consumed:
            is_letter = group.group == REDRIVING
            event = MessageEvent.REDRIVEN if is_letter else MessageEvent.CONSUMED
            trail.add(_LAST, event, None, **({} if is_letter else detail))
        elif group.attempt > trail.attempts.get(key, 0):
            detail |= {"attempt": group.attempt, "lease_ms": group.lease_ms}
            trail.add(_LAST, MessageEvent.LEASED, group.leased_ms, **detail)


def _with_ending(view: FoundMessage, trail: Trail) -> FoundMessage:
    """Correct the state of an expired message, which the delay store has forgotten."""
    if view.state is MessageState.RECALLED and trail.ended.get(view.origin) is MessageEvent.EXPIRED:
        return view._replace(state=MessageState.EXPIRED)
    return view


def _origin(view: FoundMessage) -> int:
    return view.origin
