"""Failing 5.x consumers in a simulation: they, or the broker after some leases, give messages up.

Their group acknowledges nothing, so at the end each of its messages is either still available or a
dead letter: one dead letter for each message that was given up, and none for any other. Dead
letters are re-driven to a topic of their own: at the end each letter is a message there once if the
broker says that it was re-driven, and else not.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    Receive,
    Received,
    Sent,
    TopicType,
)
from horolog.protocol.dead_letter_commands import (
    BEGINNING,
    DeadLetterPage,
    ListDeadLetters,
    Redrive,
    Redriven,
)
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import layout, properties, retry
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

GROUP = "giving-up"
RETRY_MAX = 1
AGAIN = "once-more"  # topic to which dead letters are re-driven
_DEAD = retry.dead_letter_topic(GROUP)


class _Id(NamedTuple):
    """Identity of a message: two topics, or two sends after the window, may have one message id."""

    message_id: str
    origin_id: str


class GivingUp(Actor):
    """The consumers of one simulation, and the messages they have given up."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0.05, 0.15, 0.3])
        self._broker = broker
        self._held: list[tuple[str, str, _Id]] = []  # topic, handle
        self._asked: dict[str, _Id] = {}  # by handle
        self.certain: set[_Id] = set()  # given up, as answered
        self.redriven: Counter[str] = Counter()  # message ids, as answered
        self.latest_ms = 0  # latest due time of a re-drive that was asked for

    def turn(
        self, topics: tuple[str, ...], wall_ms: int, _mono_ms: int
    ) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        if _DEAD in self._broker.shard.topics.by_name and self._random.random() < 0.2:
            return self._redrive(wall_ms)
        if not self._held or self._random.random() < 0.5:
            topic = self._random.choice(topics)
            command = Receive(GROUP, topic, -1, "*", 8, 10_000, False, 0, GROUP, gives_up=True)
            settings = PutGroup(GROUP, GroupSettings(retry_max=RETRY_MAX))
            return [Answer(settings), Answer(command)], f"{GROUP} of {topic}"
        topic, handle, message = self._held.pop(self._random.randrange(len(self._held)))
        self._asked[handle] = message
        forward = ForwardToDeadLetters(GROUP, topic, handle)
        times = self._random.choice([1, 1, 2])
        return [Answer(forward) for _ in range(times)], f"{GROUP}: {message.message_id}"

    def _redrive(self, wall_ms: int) -> tuple[list[Answer], str]:
        """Re-drive some dead letters, once or twice, at once or spread over some time."""
        due_ms = self._random.choice([0, 0, wall_ms, wall_ms + 5_000, wall_ms + 30 * HOUR_MS])
        command = Redrive(
            GROUP,
            AGAIN,
            limit=self._random.choice([1, 3, 100]),
            due_ms=due_ms,
            rate=self._random.choice([0, 1, 7]) if due_ms else 0,
        )
        spread_ms = command.limit * 1_000 // command.rate if command.rate else 0
        self.latest_ms = max(self.latest_ms, due_ms + spread_ms)
        topic = Answer(CreateTopic(AGAIN, TopicType.MIXED, 1))
        times = self._random.choice([1, 1, 2])
        return [topic, *(Answer(command) for _ in range(times))], f"{GROUP}: {command}"

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of these consumers."""
        command = answer.command
        name = getattr(command, "name", "") if isinstance(command, PutGroup | CreateTopic) else ""
        return name in (GROUP, AGAIN) or getattr(command, "group", "") == GROUP

    def noted(self, answer: Answer) -> None:
        """Note an answer that has been released."""
        command, result = answer.command, answer.result
        if isinstance(command, ForwardToDeadLetters) and isinstance(result, Sent):
            if result.origins and not result.refused:  # empty if retention was faster
                self.certain.add(self._asked[command.receipt_handle])
        elif isinstance(command, Redrive) and isinstance(result, Redriven):
            self.redriven.update(each.message_id for each in result.letters)
        elif isinstance(command, Receive) and isinstance(result, Received):
            self._held += [
                (command.topic, each.receipt_handle, _id_of(each.layout))
                for each in result.messages
            ]

    def finish(self, *, lost_allowed: bool) -> None:
        """Compare, when every message is handed over."""
        there: Counter[_Id] = Counter()
        dropped = 0
        if _DEAD in self._broker.shard.topics.by_name:
            command = Receive("final", _DEAD, -1, "*", 32, 600_000, False, 0, "final")
            while messages := self._broker.ask(command).messages:
                there.update(_id_of(each.layout) for each in messages)
            dropped = sum(self._broker.ask(DescribeTopic(_DEAD)).min_offsets)
        for message, times in there.items():
            if times > 1:
                raise PromiseBroken(f"P3: {message} is a dead letter {times} times")
        missing = self.certain - there.keys()
        if len(missing) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {sorted(missing)} were given up and are no dead letters")
        self._check_redriven(dropped, lost_allowed=lost_allowed)

    def _check_redriven(self, dropped: int, *, lost_allowed: bool) -> None:
        """Compare by counts of message ids, because two letters may have one message id (`_Id`)."""
        there: Counter[str] = Counter()
        if AGAIN not in self._broker.shard.topics.by_name:
            return
        command = Receive("final", AGAIN, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            there.update(_id_of(each.layout).message_id for each in messages)
        gone = sum(self._broker.ask(DescribeTopic(AGAIN)).min_offsets)
        counts: Counter[str] = Counter()
        page = DeadLetterPage([], BEGINNING)
        while page.next is not None:
            page = self._broker.ask(ListDeadLetters(GROUP, page.next, all=True))
            counts.update(_id_of(each.layout).message_id for each in page.letters if each.redriven)
        for promise, wrong, excused, why in (
            ("P2", self.redriven - there, gone, "were re-driven and are not there"),
            ("P2", counts - there, gone, "are said to be re-driven and are not there"),
            ("P3", there - counts, dropped, "are there, and their letters wait, or came twice"),
        ):
            if wrong.total() > excused and not lost_allowed:
                raise PromiseBroken(f"{promise}: {wrong} {why}")


def _id_of(stored: bytes) -> _Id:
    known = properties.decode(layout.topic_and_properties(stored)[1])
    origin_id = known.get(properties.ORIGIN_MESSAGE_ID) or layout.offset_message_id(stored)
    return _Id(known[properties.UNIQ_KEY], origin_id)
