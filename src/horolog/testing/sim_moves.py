"""Workers that shift all pending messages of a topic, in a simulation, until they are answered.

The n-th shift is by 3ⁿ steps, so the due time with which a message is consumed says which shifts
have moved it: in base three it has one digit for each shift, and no digit may be 2. A message that
was stored before a shift, and was not due when the shift was answered, has a 1 there. Sometimes
everything of a window is handed over: then a due time says nothing, but each message still comes
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    MessageType,
    NewMessage,
    Receive,
    SendMessages,
    Sent,
    TopicType,
)
from horolog.protocol.move_commands import MovedMany, MoveMany
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker, properties_of
from horolog.testing.sim_checks import PromiseBroken

TOPIC = "moved"
_STEP_MS = 100
_SHIFTS_MAX = 10  # 3¹⁰ steps are an hour and a half
_EVER = 1 << 42


class Movers(Actor):
    """The client that sends messages and moves them in one simulation."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0.05, 0.15])
        self._hurries = self._random.random() < 0.4  # whether windows are handed over by request
        self._broker = broker
        self._dues: dict[str, int] = {}  # due ms as sent, by message id
        self._certain: set[str] = set()  # ids of stored messages, as answered
        self._asked: dict[int, list[str]] = {}  # message ids, by command
        self._shifts = 0
        self._shift: MoveMany | None = None  # the shift that is not answered yet
        self._lives = -1  # life of the broker in which the shift was asked for
        self._before: set[str] = set()  # ids that were certain at that time
        self._must: dict[str, set[int]] = {}  # shifts that have moved a message, as answered
        self._hurried = False
        self.latest_ms = 0  # the latest due time that is possible

    def turn(self, topics: tuple[str, ...], wall_ms: int, mono_ms: int) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        del topics, mono_ms
        roll = self._random.random()
        is_lost = self._shift is not None and self._lives != self._broker.lives
        if is_lost or (self._shift is None and roll < 0.35 and self._shifts < _SHIFTS_MAX):
            return [self._next_shift()], f"shift {self._shifts}, again: {is_lost}"
        if self._hurries and roll > 0.9:
            self._hurried = True
            from_ms = wall_ms + self._random.choice([0, 20_000, HOUR_MS])
            return [Answer(MoveMany(TOPIC, from_ms, from_ms + HOUR_MS, now=True))], "hurry"
        made = [self._message(wall_ms) for _ in range(self._random.randint(1, 6))]
        send = SendMessages(TOPIC, made)
        self._asked[id(send)] = [message.message_id for message in made]
        create = CreateTopic(TOPIC, TopicType.MIXED, 2)
        return [Answer(create), Answer(send)], f"{len(made)} {TOPIC}"

    def _next_shift(self) -> Answer:
        if self._shift is None:
            by_ms = _STEP_MS * 3**self._shifts
            self._shift = MoveMany(TOPIC, 0, _EVER, shift_ms=by_ms, operation=f"s{self._shifts}")
            self._before = set(self._certain)
            self._shifts += 1
            self.latest_ms += by_ms
        self._lives = self._broker.lives
        return Answer(self._shift)

    def _message(self, wall_ms: int) -> NewMessage:
        message_id = f"M{len(self._dues)}"
        ahead = [500, 3_000, 20_000, 120_000, 2 * HOUR_MS, 50 * HOUR_MS]
        due_ms = self._dues[message_id] = wall_ms + self._random.choice(ahead)
        self.latest_ms = max(self.latest_ms, due_ms + _STEP_MS * 3**_SHIFTS_MAX)
        body, kind = message_id.encode(), MessageType.DELAY
        return encode(topic=TOPIC, body=body, message_id=message_id, type=kind, due_ms=due_ms)

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of this client."""
        return answer.is_about(TOPIC)

    def noted(self, answer: Answer, latest_ms: int) -> None:
        """Note an answer that has been released; `latest_ms`: the latest time of the clock."""
        command, result = answer.command, answer.result
        if isinstance(command, SendMessages) and isinstance(result, Sent) and not result.refused:
            self._certain.update(self._asked.pop(id(command)))
        if command is not self._shift or self._lives != self._broker.lives:
            return
        if not isinstance(result, MovedMany):
            self._lives = -1  # the disk is full, or there is no such topic: ask again
            return
        if result.left or result.moved != result.matched:
            raise PromiseBroken(f"P8: {result} of {command}")
        self._shift = None
        for message_id in self._before:
            if self._dues[message_id] > latest_ms:
                self._must.setdefault(message_id, set()).add(self._shifts - 1)

    def finish(self, *, lost_allowed: bool, rotten: Collection[int] = ()) -> None:
        """Compare, when every message is handed over.

        rotten  key hashes of messages that a shift may have missed, because their bytes had flipped
        """
        if TOPIC not in self._broker.shard.topics.by_name:
            return
        there: Counter[str] = Counter()
        command = Receive("final", TOPIC, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            for message in messages:
                known = properties_of(message)
                message_id = known[properties.UNIQ_KEY]
                there[message_id] += 1
                if key_hash(TOPIC, message_id) in rotten:
                    self._must.pop(message_id, None)
                self._check_shifts(message_id, int(known[properties.TIMER_DELIVER_MS]))
        if twice := sorted(name for name, times in there.items() if times > 1):
            raise PromiseBroken(f"P3: {twice} were handed over twice")
        dropped = sum(self._broker.ask(DescribeTopic(TOPIC)).min_offsets)
        lost = sorted(self._certain - there.keys())
        if len(lost) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {lost} were moved away")

    def _check_shifts(self, message_id: str, due_ms: int) -> None:
        steps, rest = divmod(due_ms - self._dues[message_id], _STEP_MS)
        shifts = set()
        for shift in range(self._shifts):
            steps, digit = divmod(steps, 3)
            if digit:
                shifts.add(shift)
            rest += digit == 2
        if rest or steps:
            if not self._hurried:
                raise PromiseBroken(
                    f"P8: {message_id} is due {due_ms}: shifted twice, or by nobody"
                )
            return
        if not self._must.get(message_id, set()) <= shifts and not self._hurried:
            missing = sorted(self._must[message_id] - shifts)
            raise PromiseBroken(f"P8: {message_id} was not moved by the shifts {missing}")
