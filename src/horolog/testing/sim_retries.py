"""Consumers that fail, in a simulation: they send messages back, repeat it, and fail again.

Each attempt must become one copy: no answered one is lost, none is there twice, and none is there
that was not asked for. The last attempt is a dead letter. All this is checked from outside, by what
a new group finds at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from horolog.limits import DEDUP_MS
from horolog.protocol.commands import Ack, Delivered, DescribeTopic, Receive, Received, Sent
from horolog.protocol.retry_commands import SendBack
from horolog.protocol.rocketmq import layout, properties, retry
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

GROUP = "failing"
RETRY_MAX = 3
_TOPICS = (retry.retry_topic(GROUP), retry.dead_letter_topic(GROUP))


class Copy(NamedTuple):
    """One attempt of a message: its id, the attempt count, and the place of the first attempt."""

    message_id: str
    attempt: int
    origin_id: str


class _Held(NamedTuple):
    topic: str
    handle: str
    position: int
    copy: Copy  # the copy that a send-back makes


class Retries(Actor):
    """The failing consumers of one simulation."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0, 0.05, 0.15])
        self._broker = broker
        self._held: list[_Held] = []
        self._asked: dict[int, tuple[int, int, Copy]] = {}  # log position → (when, level, copy)
        self.certain: set[Copy] = set()  # stored copies, as answered

    def turn(
        self, topics: tuple[str, ...], _wall_ms: int, mono_ms: int
    ) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        if not self._held or self._random.random() < 0.3:
            known = [name for name in _TOPICS[:1] if name in self._broker.shard.topics.by_name]
            topic = self._random.choice([*topics, *known, *known])
            command = Receive(GROUP, topic, -1, "*", 8, 10_000, False, 0, "failing")
            return [Answer(command)], f"{GROUP} receives of {topic}"
        held = self._held.pop(self._random.randrange(len(self._held)))
        level = self._random.choice([0, 1, 1, 2, 4, -1])
        first = (mono_ms, level, held.copy)
        since, level, copy = self._asked.setdefault(held.position, first)
        if mono_ms - since > DEDUP_MS - 5_000:
            return [], f"{GROUP} leaves {copy}"  # a repeat may no longer be recognised
        back = SendBack(GROUP, held.position, level, RETRY_MAX)
        answers = [Answer(back) for _ in range(self._random.choice([1, 1, 2]))]
        if self._random.random() < 0.5:
            self._held.append(held)  # to be sent back again
        else:
            answers.append(Answer(Ack(GROUP, held.topic, [held.handle])))
        return answers, f"{GROUP} sends back {copy}, level {level}"

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of these; they are answered at once or never."""
        command = answer.command
        return isinstance(command, SendBack) or getattr(command, "group", "") == GROUP

    def noted(self, answer: Answer) -> None:
        """Note an answer that has been released."""
        command, result = answer.command, answer.result
        if isinstance(command, SendBack) and isinstance(result, Sent) and not result.refused:
            self.certain.add(self._asked[command.position][2])
        elif isinstance(command, Receive) and isinstance(result, Received):
            self._held += [_held(command.topic, each) for each in result.messages]

    def stepped(self) -> None:
        """Note a step of the clock: a later start overrates the age of earlier requests."""
        self._held.clear()
        for position, (_, level, copy) in self._asked.items():
            self._asked[position] = (-DEDUP_MS, level, copy)

    def finish(self, *, lost_allowed: bool) -> None:
        """Compare, when every message is handed over."""
        there: Counter[Copy] = Counter()
        dropped = 0
        for topic in _TOPICS:
            if topic in self._broker.shard.topics.by_name:
                there.update(_copy_of(each.layout) for each in self._consume(topic))
                dropped += sum(self._broker.ask(DescribeTopic(topic)).min_offsets)
        asked = {copy for _, _, copy in self._asked.values()}
        for copy, times in there.items():
            if times > 1:
                raise PromiseBroken(f"P3: {copy} is there {times} times")
            if copy not in asked:
                raise PromiseBroken(f"P11: {copy} is there, and nobody sent it back")
        missing = self.certain - there.keys()
        if len(missing) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {sorted(missing)} were sent back and are not there")

    def _consume(self, topic: str) -> list[Delivered]:
        found: list[Delivered] = []
        command = Receive("final", topic, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            found += messages
        return found


def _copy_of(stored: bytes) -> Copy:
    known = properties.decode(layout.topic_and_properties(stored)[1])
    return Copy(
        known[properties.UNIQ_KEY],
        layout.reconsume_times(stored),
        known.get(properties.ORIGIN_MESSAGE_ID, ""),
    )


def _held(topic: str, message: Delivered) -> _Held:
    this, position = _copy_of(message.layout), layout.decode(message.layout).position
    origin_id = this.origin_id or layout.offset_message_id(message.layout)
    to = Copy(this.message_id, this.attempt + 1, origin_id)
    return _Held(topic, message.receipt_handle, position, to)
