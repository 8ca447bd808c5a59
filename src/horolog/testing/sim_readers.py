"""Consumers that read by offset in a simulation: they pull, commit offsets, and go back.

Their groups come and go. The model is the set of offsets that a group may have committed for a
queue: the last one that was answered, and the later ones that may or may not have got into the log
before a crash. A pull must return the messages that other consumers got at the same places, in
order and without gaps except for holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from horolog.errors import HorologError
from horolog.protocol.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    Receive,
    SendMessages,
    TopicType,
)
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
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History, PromiseBroken

PASSING = "passing"
_GROUPS = ("reader-0", "reader-1")
_QUEUES = 3  # of a topic at most; commands for a missing queue are refused
_Place = tuple[str, int]  # (topic, queue)


class Readers:
    """The clients that read by offset in one simulation."""

    def __init__(self, seed: int, broker: SimBroker, history: History) -> None:
        self._random = Random(seed)  # of its own: it does not change the story of a seed
        self._share = self._random.choice([0, 0.03, 0.1])  # share of the turns
        self._broker = broker
        self._history = history
        self._n = 0
        self._next: dict[_Place, int] = {}  # where the next pull continues
        self._ends: dict[_Place, int] = {}  # the highest offset that was ever pulled, and one more
        # Lowest offset that a queue has ever had; a crash may undo a raise
        self._lowest: dict[_Place, int] = {}
        self._may_be: dict[tuple[str, str, int], list[int]] = {}  # (group, topic, queue) → offsets
        self._settings: dict[str, list[GroupSettings | None]] = {}  # None: there is no such group

    def wants_turn(self) -> bool:
        """Return whether the readers act in this turn."""
        for topic, queue, units in self._broker.shard.topics.all_queues():
            place = topic.name, queue
            self._lowest[place] = max(self._lowest.get(place, 0), units.first)
        return self._random.random() < self._share

    def turn(self, topics: Sequence[str], _wall_ms: int, _mono_ms: int) -> tuple[list[Answer], str]:
        """Return the command of one step, and a description of it."""
        command = self._command(topics)
        return [Answer(command)], f"{command}"

    def _command(self, topics: Sequence[str]) -> Command:
        draw = self._random
        if draw.random() < 0.1:
            return self._passing()
        topic, queue, group = draw.choice(topics), draw.randrange(_QUEUES), draw.choice(_GROUPS)
        roll = draw.random()
        if roll < 0.5 or not self._next:
            return self._pull(topic, queue)
        if roll < 0.85:
            return self._commit(group, *draw.choice(sorted(self._next)))
        if roll < 0.95:
            settings = GroupSettings(retry_max=draw.randrange(3))
            self._settings.setdefault(group, [None]).append(settings)
            return PutGroup(group, settings)
        self._settings.setdefault(group, [None]).append(None)
        for (of_group, _, _), may_be in self._may_be.items():
            if of_group == group:
                may_be.append(-1)
        return DeleteGroup(group)

    def _passing(self) -> Command:
        """Return a command for a topic that is created, used and deleted again and again.

        Each time it is a new topic.
        """
        draw, name = self._random, PASSING
        topic = self._broker.shard.topics.by_name.get(name)
        if topic is None:
            return CreateTopic(name, TopicType.NORMAL, 1)
        roll = draw.random()
        if roll < 0.5:
            self._n += 1
            message = encode(topic=name, body=bytes(9), message_id=f"{topic.id}-{self._n % 5}")
            return SendMessages(name, [message])
        if roll < 0.6:
            return CommitOffsets("passing-0", name, {0: 0})
        if roll < 0.7:
            renew = draw.random() < 0.5
            return Receive("passing-1", name, -1, "*", 8, 10_000, renew, 3_000, "r")
        if roll < 0.85:
            return Pull(name, 0, 0, 100, 1 << 20, "*", draw.choice([0, 900]), "reader")
        return DeleteTopic(name)

    def _pulled_passing(self, result: object) -> None:
        """Check a pull: the name of each message says in which life of the topic it was sent."""
        if isinstance(result, Pulled):
            found = [layout.decode(bytes(each)) for each in result.layouts]
            names = [properties.decode(each.properties)[properties.UNIQ_KEY] for each in found]
            if len({name.partition("-")[0] for name in names}) > 1 or len(set(names)) < len(names):
                raise PromiseBroken(f"P3: {PASSING} has {names}")
            if not self._history.excused and [each.queue_offset for each in found] != list(
                range(len(found))
            ):
                raise PromiseBroken(f"P2: {PASSING} has {[each.queue_offset for each in found]}")

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
        """Commit the offset pulled so far, or step back; sometimes commit more than there is."""
        draw = self._random
        at = self._ends.get((topic, queue), 0)
        offset = draw.choice([at, at, at, draw.randrange(at + 1), at + 100_000])
        may_be = self._may_be.setdefault((group, topic, queue), [-1])
        if offset <= at:
            may_be.append(offset)
        settings = self._settings.setdefault(group, [None])
        if None in settings and settings[-1] != GroupSettings():
            # The group is created, if the earlier change was not durable
            settings.append(GroupSettings())
        return CommitOffsets(group, topic, {queue: offset}, afresh=draw.random() < 0.2)

    # --- answers --------------------------------------------------------------------------------

    def answered(self, answer: Answer) -> bool:
        """Check the answer to a command of `turn`; return False for any other command."""
        command, result = answer.command, answer.result
        if PASSING in (getattr(command, "topic", ""), getattr(command, "name", "")):
            if isinstance(command, Pull):
                self._pulled_passing(result)
            return True
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
            decoded = properties.decode(stored.properties)
            message_id, due = (
                decoded[properties.UNIQ_KEY],
                decoded.get(properties.TIMER_DELIVER_MS, "0"),
            )
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

    def check(self, topics: Sequence[str]) -> None:
        """Compare with the broker's own view, while nothing is in flight."""
        groups = {view.name: view.settings for view in self._broker.ask(ListGroups())}
        for group, may_be in self._settings.items():
            if groups.get(group) not in may_be:
                raise PromiseBroken(f"P2: {group} has {groups.get(group)}, not one of {may_be}")
        for topic in topics:
            view = self._broker.ask(DescribeTopic(topic))
            for group in _GROUPS:
                found = self._broker.ask(GetOffsets(group, topic))
                for queue, lowest in enumerate(view.min_offsets):
                    has = found.get(queue, -1)
                    offsets = self._may_be.get((group, topic, queue), [-1])
                    lowest = max(lowest, self._lowest.get((topic, queue), 0))
                    if has not in offsets and not min(offsets) < has <= lowest:
                        raise PromiseBroken(
                            f"P2: {group} has {has} of {topic} {queue}, not one of {offsets}"
                        )

    def finish(self, delivered: dict[tuple[str, int, int], str], topics: Sequence[str]) -> None:
        """Check, when every message is visible, that pulls return what receives have returned."""
        self.check(topics)
        pulled: dict[tuple[str, int, int], str] = {}
        for topic in topics:
            for queue, at in enumerate(self._broker.ask(DescribeTopic(topic)).min_offsets):
                while True:
                    result = self._broker.ask(Pull(topic, queue, at, 100, 1 << 20, "*", 0))
                    for each in result.layouts:
                        stored = layout.decode(bytes(each))
                        decoded = properties.decode(stored.properties)
                        pulled[topic, queue, stored.queue_offset] = decoded[properties.UNIQ_KEY]
                    if result.status is PullStatus.NOTHING:
                        break
                    at = result.next_offset
        if pulled != delivered:
            differing = sorted(pulled.items() ^ delivered.items())[:5]
            raise PromiseBroken(f"P2: pulls and receives differ: {differing}")
