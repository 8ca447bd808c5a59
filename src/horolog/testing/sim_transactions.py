"""Transactions in a simulation: half messages, ends lost or repeated, producers that are asked.

They have a topic of their own. At the end each message whose commit was answered is there once,
unless retention has dropped it; a message whose rollback was answered, or that was never committed,
is not there; and none is there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from horolog.broker.settings import TransactionSettings
from horolog.clock import SimulatedClock
from horolog.errors import HorologError
from horolog.limits import DEDUP_MS, TRANSACTION_OPEN_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    MessageType,
    NewMessage,
    Receive,
    Sent,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.protocol.transaction_commands import (
    CheckTransactions,
    EndTransaction,
    LookForProducers,
    Resolution,
    SendHalf,
)
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

TOPIC = "trades"
GROUP = "traders"
_LATER_MS = (0, 0, 0, 1_000, 20_000, 4_000_000, 30 * 3_600_000)
_ENDS = (Resolution.COMMIT, Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN)


class Traders(Actor):
    """The producers of one simulation, and what they know of their transactions.

    rotten  key hashes of messages whose bytes have flipped: the broker cannot recognise a repeat of
            such a half message, so the second send begins a transaction of its own
    """

    def __init__(self, seed: int, broker: SimBroker, rotten: Collection[int]) -> None:
        super().__init__(seed, [0, 0.1, 0.2, 0.4])
        self._broker = broker
        self._rotten = rotten
        self._n = 0
        self._sent: list[tuple[int, NewMessage]] = []  # recent sends, with monotonic ms
        self._open: dict[int, str] = {}  # position → message id, as answered
        self._asked: dict[str, set[Resolution]] = {}  # ends that were asked for, by message id
        self._ended: dict[str, Resolution] = {}  # ends by message id, as answered
        self.latest_ms = 0  # the last due time that was asked for
        broker.settings = broker.settings._replace(
            transactions=TransactionSettings(
                timeout_ms=self._random.choice([1_000, 6_000]),
                check_ms=self._random.choice([1_000, 30_000]),
                check_max=self._random.choice([1, 3, 15]),
            )
        )

    def turn(
        self, _topics: tuple[str, ...], wall_ms: int, mono_ms: int
    ) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        roll = self._random.random()
        if roll < 0.3 and self._broker.checks_due:
            due, self._broker.checks_due = self._broker.checks_due, []
            positions = tuple(check.position for check in due)
            return [Answer(CheckTransactions(positions))], f"check {len(positions)}"
        if roll < 0.35:
            return [Answer(LookForProducers(frozenset({GROUP})))], "producers come"
        if roll < 0.7 and self._open:
            return self._end()
        return self._begin(wall_ms, mono_ms)

    def _begin(self, wall_ms: int, mono_ms: int) -> tuple[list[Answer], str]:
        since = mono_ms - DEDUP_MS + 5_000
        self._sent = [each for each in self._sent if each[0] > since][-5:]
        if self._sent and self._random.random() < 0.15:
            # A repeat, as if no answer came in time
            messages = [self._random.choice(self._sent)[1]]
        else:
            messages = [self._half(wall_ms) for _ in range(self._random.choice([1, 1, 3]))]
            self._sent += [(mono_ms, message) for message in messages]
        ids = ", ".join(message.message_id for message in messages)
        topic = Answer(CreateTopic(TOPIC, TopicType.MIXED, 2))
        return [topic, Answer(SendHalf(TOPIC, messages))], f"half {ids}"

    def _half(self, wall_ms: int) -> NewMessage:
        self._n += 1
        later_ms = self._random.choice(_LATER_MS)
        due_ms = wall_ms + later_ms if later_ms else 0
        self.latest_ms = max(self.latest_ms, due_ms)
        known = {properties.PRODUCER_GROUP: GROUP, properties.TRANSACTION: "true"}
        return encode(
            topic=TOPIC,
            body=bytes(self._random.choice([1, 200, 3_000])),
            message_id=f"h{self._n}",
            type=MessageType.TRANSACTION,
            due_ms=due_ms,
            keys=["k"] if self._random.random() < 0.3 else (),
            system_properties=properties.encode(known),
        )

    def _end(self) -> tuple[list[Answer], str]:
        position = self._random.choice(list(self._open))
        message_id = self._open[position]
        wanted = self._random.choice(_ENDS)
        self._asked.setdefault(message_id, set()).add(wanted)
        command = EndTransaction(position, wanted, TOPIC, message_id)
        times = self._random.choice([1, 1, 2])
        return [Answer(command) for _ in range(times)], f"{wanted.value} {message_id}"

    def stepped(self) -> None:
        """Note a forward step of the clock: earlier sends seem older than they are."""
        self._sent.clear()

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of these producers."""
        command = answer.command
        if isinstance(command, CreateTopic):
            return command.name == TOPIC
        return isinstance(command, SendHalf | EndTransaction | CheckTransactions | LookForProducers)

    def noted(self, answer: Answer) -> None:
        """Note an answer that has been released."""
        command, result = answer.command, answer.result
        if isinstance(result, HorologError):
            return
        if isinstance(command, SendHalf) and isinstance(result, Sent):
            for i, message in enumerate(command.messages):
                if i not in result.refused:
                    assert isinstance(message, NewMessage)
                    self._open[result.origins[i]] = message.message_id
        elif isinstance(command, CheckTransactions):
            for check in result:
                self._open[check.position] = _id_of(check.layout)
        elif isinstance(command, EndTransaction) and command.resolution is not Resolution.UNKNOWN:
            assert command.message_id is not None
            self._is_over(command.message_id, command.resolution)

    def _is_over(self, message_id: str, resolution: Resolution) -> None:
        before = self._ended.setdefault(message_id, resolution)
        if before is not resolution and not self._is_rotten(message_id):
            raise PromiseBroken(f"{message_id} ended twice: {before.value}, {resolution.value}")

    def _is_rotten(self, message_id: str) -> bool:
        return key_hash(TOPIC, message_id) in self._rotten

    def finish(self, *, lost_allowed: bool) -> None:
        """Compare, after all time has passed without further ends."""
        if self._broker.shard.halves.open and not lost_allowed:
            raise PromiseBroken(f"{len(self._broker.shard.halves.open)} transactions are open")
        there: Counter[str] = Counter()
        if TOPIC not in self._broker.shard.topics.by_name:
            return
        command = Receive("final", TOPIC, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            for message in messages:
                self._check_time(message.layout)
                there[_id_of(message.layout)] += 1
        dropped = sum(self._broker.ask(DescribeTopic(TOPIC)).min_offsets)
        committed = {i for i, end in self._ended.items() if end is Resolution.COMMIT}
        may_be = {i for i, ends in self._asked.items() if Resolution.COMMIT in ends}
        may_be -= {i for i, end in self._ended.items() if end is Resolution.ROLLBACK}
        twice = [message_id for message_id, times in there.items() if times > 1]
        if twice := [each for each in twice if not self._is_rotten(each)]:
            raise PromiseBroken(f"P3: {twice} were committed once and are there twice")
        if wrong := [each for each in there.keys() - may_be if not self._is_rotten(each)]:
            raise PromiseBroken(f"{sorted(wrong)} are there, and nobody has committed them")
        missing = committed - there.keys()
        if len(missing) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {sorted(missing)} were committed and are not there")

    @staticmethod
    def _check_time(stored: bytes) -> None:
        known = properties.decode(layout.topic_and_properties(stored)[1])
        due_ms = int(known.get(properties.TIMER_DELIVER_MS, "0"))
        if layout.store_ms_of(stored) < due_ms:
            raise PromiseBroken(f"P1: {known[properties.UNIQ_KEY]} came before {due_ms}")

    def all_over(self, clock: SimulatedClock) -> None:
        """Let time pass until each transaction is given up, whatever came before."""
        halves = self._broker.shard.halves.open.values()
        # Perhaps begun, or to be checked, later than now: the clock may have stepped back
        if halves:
            last_ms = max(max(half.begun_ms + TRANSACTION_OPEN_MS, half.next_ms) for half in halves)
            clock.advance(last_ms - clock.wall_ms())
            self._broker.settle(2_000)


def _id_of(stored: bytes) -> str:
    known = properties.decode(layout.topic_and_properties(stored)[1])
    return known[properties.UNIQ_KEY]
