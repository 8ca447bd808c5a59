"""Consumers that read by offset in a simulation: they pull, commit offsets, go back, and their groups come and go.

The model is a set of offsets that a group may have committed of a queue: the last one that was answered, and those
asked for since, of which nobody knows whether they got into the log before a crash.  What a pull gives must be the
messages that others were given at the same places, in order and without gaps but for holes.
"""

from __future__ import annotations

from random import Random
from typing import Any

from horolog.errors import HorologError
from horolog.protocol.commands import Command, DescribeTopic
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    GetOffsets,
    GroupSettings,
    ListGroups,
    Pull,
    Pulled,
    PullStatus,
    PutGroup,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History, PromiseBroken

_GROUPS = ("reader-0", "reader-1")
_QUEUES = 3  # of a topic at most; a queue that is not there is refused
_Place = tuple[str, int]  # topic and queue


class Readers:
    """Whoever reads by offset in one simulation."""

    def __init__(self, seed: int, broker: SimBroker, history: History) -> None:
        self._random = Random(seed)  # of its own, so that it changes nothing in the story of a seed
        self._share = self._random.choice([0, 0.03, 0.1])  # of all turns
        self._broker = broker
        self._history = history
        self._next: dict[_Place, int] = {}  # where the next pull goes on
        self._ends: dict[_Place, int] = {}  # the highest offset that was ever pulled, and one more
        self._may_be: dict[tuple[str, str, int], list[int]] = {}  # (group, topic, queue) → offsets
        self._settings: dict[str, list[GroupSettings | None]] = {}  # None: there is no such group

    def wants_turn(self) -> bool:
        """Whether this turn is one of these."""
        return self._random.random() < self._share

    def turn(self, topics: tuple[str, ...], wall_ms: int) -> tuple[Answer, str]:
        """A command, and what it does."""
        draw = self._random
        topic, queue, group = draw.choice(topics), draw.randrange(_QUEUES), draw.choice(_GROUPS)
        roll = draw.random()
        if roll < 0.5 or not self._next:
            command: Command = self._pull(topic, queue)
        elif roll < 0.85:
            command = self._commit(group, *draw.choice(sorted(self._next)))
        elif roll < 0.95:
            command = PutGroup(group, GroupSettings(retry_max=draw.randrange(3)))
            self._settings.setdefault(group, [None]).append(command.settings)
        else:
            command = DeleteGroup(group)
            self._settings.setdefault(group, [None]).append(None)
        return Answer(command, wall_ms), f"{command}"

    def _pull(self, topic: str, queue: int) -> Pull:
        draw = self._random
        at = self._next.get((topic, queue), 0)
        return Pull(
            topic,
            queue,
            at if draw.random() < 0.8 else draw.randrange(at + 3),
            draw.choice([1, 5, 32, 1_000]),
            draw.choice([1, 2_000, 1 << 20]),
            draw.choice(["*", "*", "TagA", "TagB || TagC"]),
            draw.choice([0, 0, 900, 15_000]),
            "reader",
        )

    def _commit(self, group: str, topic: str, queue: int) -> CommitOffsets:
        """What was pulled so far, or a step back; sometimes more than there is."""
        draw = self._random
        at = self._ends.get((topic, queue), 0)
        offset = draw.choice([at, at, at, draw.randrange(at + 1), at + 100_000])
        may_be = self._may_be.setdefault((group, topic, queue), [-1])
        if offset <= at:
            may_be.append(offset)
        self._settings.setdefault(group, [None])
        if self._settings[group][-1] is None:
            self._settings[group].append(GroupSettings())  # it is made
        return CommitOffsets(group, topic, {queue: offset})

    # --- answers --------------------------------------------------------------------------------

    def answered(self, answer: Answer) -> bool:
        """Look at the answer to a command of `turn`; False if it is none of these."""
        command, result = answer.command, answer.result
        if isinstance(command, Pull):
            if isinstance(result, Pulled):
                self._pulled(command, result)
            return True
        if isinstance(command, CommitOffsets):
            self._committed(command, result)
            return True
        if isinstance(command, PutGroup | DeleteGroup):
            self._changed(command, result)
            return True
        return False

    def _pulled(self, command: Pull, result: Pulled) -> None:
        place = command.topic, command.queue_id
        self._next[place] = result.next_offset
        offsets = []
        for each in result.layouts:
            stored = layout.decode(bytes(each))
            told = properties.decode(stored.properties)
            message_id, due = told[properties.UNIQ_KEY], told.get(properties.TIMER_DELIVER_MS, "0")
            at = (command.topic, command.queue_id, stored.queue_offset)
            if (stored.topic, stored.queue_id) != place:
                raise PromiseBroken(f"P2: {stored.topic} {stored.queue_id} pulled from {place}")
            self._history.intact(message_id, stored.body)
            self._history.received("reader", at, message_id, stored.store_ms, int(due))
            offsets.append(stored.queue_offset)
        whole = command.filter_expression == "*" and not self._history.excused
        expected = list(range(command.first, command.first + len(offsets)))
        if offsets != sorted(set(offsets)) or (whole and offsets and offsets != expected):
            raise PromiseBroken(f"P2: {command} gave {offsets}")
        if len(offsets) > command.limit or bool(offsets) != (result.status is PullStatus.FOUND):
            raise PromiseBroken(f"{command} gave {result.status.name} and {offsets}")
        size = sum(len(each) for each in result.layouts)
        if len(offsets) > 1 and size > command.max_bytes:
            raise PromiseBroken(f"{command} gave {size} bytes")
        if offsets and not offsets[-1] < result.next_offset <= result.max_offset:
            raise PromiseBroken(f"{command} gave {offsets}, and goes on at {result.next_offset}")
        self._ends[place] = max(self._ends.get(place, 0), result.next_offset)

    def _committed(self, command: CommitOffsets, result: object) -> None:
        ((queue, offset),) = command.offsets.items()
        may_be = self._may_be[command.group, command.topic, queue]
        refused = isinstance(result, HorologError)
        if refused != (offset not in may_be):
            raise PromiseBroken(f"{command} was answered with {result}")
        if not refused:
            del may_be[: may_be.index(offset)]

    def _changed(self, command: PutGroup | DeleteGroup, result: Any) -> None:
        may_be = self._settings[command.name]
        wanted = command.settings if isinstance(command, PutGroup) else None
        del may_be[: may_be.index(wanted)]
        if isinstance(command, DeleteGroup):
            for group, topic, queue in self._may_be:
                if group == command.name:
                    self._may_be[group, topic, queue].append(-1)

    def check(self, topics: tuple[str, ...]) -> None:
        """Compare with what the broker says; when nothing is under way."""
        groups = {view.name: view.settings for view in self._broker.ask(ListGroups())}
        for group, may_be in self._settings.items():
            if groups.get(group) not in may_be:
                raise PromiseBroken(f"P2: {group} has {groups.get(group)}, not one of {may_be}")
        for topic in topics:
            view = self._broker.ask(DescribeTopic(topic))
            for group in _GROUPS:
                found = self._broker.ask(GetOffsets(group, topic))
                for queue, lowest in enumerate(view.min_offsets):
                    has, offsets = (
                        found.get(queue, -1),
                        self._may_be.get((group, topic, queue), [-1]),
                    )
                    if has not in offsets and not (has == lowest and min(offsets) < lowest):
                        raise PromiseBroken(
                            f"P2: {group} has {has} of {topic} {queue}, not one of {offsets}"
                        )

    def finish(self, delivered: dict[tuple[str, int, int], str], topics: tuple[str, ...]) -> None:
        """Everything is visible: pulls give the same as receives have given."""
        self.check(topics)
        pulled: dict[tuple[str, int, int], str] = {}
        for topic in topics:
            for queue, at in enumerate(self._broker.ask(DescribeTopic(topic)).min_offsets):
                while True:
                    result = self._broker.ask(Pull(topic, queue, at, 100, 1 << 20, "*", 0))
                    for each in result.layouts:
                        stored = layout.decode(bytes(each))
                        told = properties.decode(stored.properties)
                        pulled[topic, queue, stored.queue_offset] = told[properties.UNIQ_KEY]
                    if result.status is PullStatus.NOTHING:
                        break
                    at = result.next_offset
        if pulled != delivered:
            differing = sorted(pulled.items() ^ delivered.items())[:5]
            raise PromiseBroken(f"P2: pulls and receives differ: {differing}")
