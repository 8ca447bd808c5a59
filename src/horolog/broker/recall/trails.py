"""The trail of the messages with one id: their events, gathered record by record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from horolog.broker.recall.control_scans import ControlScan, Logged
from horolog.broker.send.dead_letters import REDRIVING
from horolog.broker.topics import Topic
from horolog.log.control_records import AckRecord, Grant, OffsetsRecord
from horolog.log.controls import ENDING, Outcome
from horolog.log.record import Kind
from horolog.protocol.commands import MessageState
from horolog.protocol.history_commands import HistoryEvent, MessageEvent
from horolog.ready.groups import GroupTable

ENDS = {Outcome.RECALLED: MessageEvent.RECALLED, Outcome.EXPIRED: MessageEvent.EXPIRED}

QueuePlace = tuple[int, int, int]  # topic id, queue, queue offset


class Placed(NamedTuple):
    """An event, and its log position."""

    position: int
    event: HistoryEvent


@dataclass
class Trail:
    """The known events and places of the messages with an id.

    states    of the messages when the trail began
    again     whether this is the second trail, because the states had changed
    origins   of scheduled messages, with their rows
    places    where the messages, their attempts and dead letters became visible
    attempts  of the newest lease of each group in a place
    consumed  groups that have consumed a place
    ended     by origin, how a record says that the message ended: recalled, or expired
    whole     whether every record that there ever was is still there
    """

    topic: Topic
    groups: GroupTable
    states: list[MessageState]
    again: bool
    whole: bool
    origins: set[tuple[int, int]] = field(default_factory=set)
    events: list[Placed] = field(default_factory=list)
    places: dict[QueuePlace, Topic] = field(default_factory=dict)
    attempts: dict[tuple[str, QueuePlace], int] = field(default_factory=dict)
    consumed: set[tuple[str, QueuePlace]] = field(default_factory=set)
    ended: dict[int, MessageEvent] = field(default_factory=dict)
    scan: ControlScan | None = None

    @property
    def is_searching(self) -> bool:
        """Whether the log is still being scanned."""
        return self.scan is not None and not self.scan.done

    def add(self, position: int, event: MessageEvent, at_ms: int | None, **detail: Any) -> None:
        """Add an event."""
        self.events.append(Placed(position, HistoryEvent(event, at_ms, detail)))

    def take(self, logged: Logged) -> None:
        """Take the events from a control record, which mostly is of other messages."""
        control = logged.control
        match control.kind:
            case Kind.GRANT:
                self._take_grant(logged, control.content)
            case Kind.ACK:
                self._take_ack(logged, control.content)
            case Kind.OFFSETS:
                self._take_offsets(logged, control.content)
            case kind if kind in ENDING:
                self._take_end(logged)

    def _take_grant(self, logged: Logged, grant: Grant) -> None:
        for place, topic in self.places.items():
            topic_id, queue, offset = place
            if (grant.topic, grant.queue) != (topic_id, queue):
                continue
            key = self._group(grant.group), place
            rows = np.flatnonzero(grant.granted["offset"] == offset)
            known = self.attempts.get(key, 0)
            detail = self.detail(topic, key[0])
            at, at_ms = logged.header.base, logged.header.append_ms
            if len(rows):
                attempt = int(grant.granted["attempt"][rows[0]])
                detail |= {"attempt": attempt, "lease_ms": grant.duration_ms}
                self.attempts[key] = attempt
                event = MessageEvent.LEASED if attempt > known else MessageEvent.LEASE_CHANGED
                self._add_change(at, event, at_ms, detail)
            elif not known and key not in self.consumed and grant.next_offset > offset:
                self.consumed.add(key)
                self.add(at, MessageEvent.PASSED_OVER, at_ms, **detail)

    def _add_change(
        self, position: int, event: MessageEvent, at_ms: int, detail: dict[str, Any]
    ) -> None:
        """Add a lease event; merge repeated renewals into one event with their count."""
        last = self.events[-1].event if self.events else None
        if event is MessageEvent.LEASE_CHANGED and last is not None and last.event is event:
            same = all(last.detail.get(name) == detail.get(name) for name in ("group", "attempt"))
            if same and last.detail.get("topic") == detail.get("topic"):
                detail["times"] = last.detail.get("times", 1) + 1
                self.events.pop()
        self.add(position, event, at_ms, **detail)

    def _take_ack(self, logged: Logged, ack: AckRecord) -> None:
        for place, topic in self.places.items():
            topic_id, queue, offset = place
            if (ack.topic, ack.queue) != (topic_id, queue) or offset not in ack.offsets:
                continue
            name = self._group(ack.group)
            if (name, place) in self.consumed:
                continue
            self.consumed.add((name, place))
            event = MessageEvent.REDRIVEN if name == REDRIVING else MessageEvent.ACKED
            detail = self.detail(topic, "" if name == REDRIVING else name)
            self.add(logged.header.base, event, logged.header.append_ms, **detail)

    def _take_offsets(self, logged: Logged, record: OffsetsRecord) -> None:
        for place, topic in self.places.items():
            topic_id, queue, offset = place
            if record.topic != topic_id:
                continue
            for of_queue, following in dict(record.committed.tolist()).items():  # the last of each
                if of_queue != queue:
                    continue
                name = self._group(record.group)
                was = (name, place) in self.consumed
                if (following > offset) == was:
                    continue
                if was:
                    self.consumed.discard((name, place))
                    self.attempts.pop((name, place), None)
                else:
                    self.consumed.add((name, place))
                event = MessageEvent.RESET if was else MessageEvent.CONSUMED
                detail = self.detail(topic, name)
                self.add(logged.header.base, event, logged.header.append_ms, **detail)

    def _take_end(self, logged: Logged) -> None:
        ended = logged.control.ended()
        if ended is None or ended.outcome not in ENDS:
            return
        positions = [position for position, _ in self.origins]
        for row in np.flatnonzero(np.isin(ended.origins["position"], positions)).tolist():
            origin = int(ended.origins["position"][row]), int(ended.origins["row"][row])
            if origin in self.origins:
                at_ms = logged.header.append_ms
                self.ended[origin[0]] = ENDS[ended.outcome]
                self.add(logged.header.base, ENDS[ended.outcome], at_ms)

    def _group(self, group_id: int) -> str:
        return self.groups.names.get(group_id, f"group {group_id}, deleted")

    def detail(self, topic: Topic, group: str) -> dict[str, Any]:
        """Return the details of a group's event, with its topic if that is another one."""
        named = {"group": group} if group else {}
        return named if topic is self.topic else {**named, "topic": topic.name}
