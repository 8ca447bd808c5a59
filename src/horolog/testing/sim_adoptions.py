"""Adoptions in a simulation: what `server.adoptions` does around the core, without threads.

transaction = Transaction("load", 1, "t", token, log_id, messages…)
transaction.stage(disk, …)       # what Spark does
command = transaction.prepare()  # what the broker does in a thread; the Adopt is then submitted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from horolog.broker.adopt import staged_files, staging
from horolog.broker.adopt.staging import Begun, ShardFiles
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import Adopt, Adopted, FileRow
from horolog.protocol.commands import MessageType, NewMessage
from horolog.protocol.rocketmq.message import encode
from horolog.testing.adopted_runs import write_adopted
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History

_INLINE_BYTES_MAX = 16_384  # half of a simulated segment, in which one frame must fit
_FAR_MS = (25 * HOUR_MS, 26 * HOUR_MS, 3 * DAY_MS, 40 * DAY_MS)


class Transaction:
    """One attempt at a transaction: its staging directory and its files."""

    def __init__(self, place: ShardFiles, begun: Begun, number: int, queues: int) -> None:
        self.place = place
        self.begun = begun
        self.claims: list[FileRow] = []
        self._topic = number
        self._queues = queues

    def begin(self) -> None:
        """Make the staging directory."""
        staging.begin(self.place, self.begun)

    def stage(self, parts: Sequence[Sequence[NewMessage]]) -> None:
        """Write one file for each part."""
        self.claims = [
            write_adopted(
                self.place.storage,
                self.place.staging(self.begun.token),
                f"part-{number}",
                part,
                log_id=self.place.log_id,
                topic=self._topic,
                queues=self._queues,
            )
            for number, part in enumerate(parts)
        ]

    @property
    def is_small(self) -> bool:
        """Whether its messages fit into one frame of a simulated segment."""
        return sum(claim.bytes for claim in self.claims) <= _INLINE_BYTES_MAX

    def prepare(self, now_ms: int, *, inline: bool = False) -> Adopt:
        """Check the files, then read or move them; return the command that commits them."""
        begun, number = staging.find(self.place, self.begun.token), self._topic
        checked = staged_files.check(self.place, begun, self.claims, number, self._queues, now_ms)
        command = Adopt(begun.app, begun.version, begun.topic, topic_id=number)
        if inline:
            records = staged_files.read_records(self.place, self.claims, checked, self._queues)
            return replace(command, records=records)
        staged_files.move(self.place, self.claims, checked)
        return replace(command, files=checked.files, soon_bytes=checked.soon_bytes)

    def end(self) -> None:
        """Remove the staging directory of a committed transaction."""
        staging.end(self.place, self.begun.token)

    def undo(self) -> None:
        """Remove the files of an attempt that was aborted, or that another attempt has replaced."""
        staging.undo(self.place, self.begun)


@dataclass(eq=False)
class Load:
    """Rows to be scheduled once: every attempt to commit them has the same version."""

    version: int
    topic: str
    parts: list[list[NewMessage]]
    inline: bool
    transaction: Transaction | None = None
    in_flight: bool = False

    @property
    def messages(self) -> list[NewMessage]:
        """All messages, in the order of the rows of their adoption."""
        return [message for part in self.parts for message in sorted(part, key=_due)]


def _due(message: NewMessage) -> int:
    return message.due_ms


class Loads:
    """The loads of one simulation: begun, staged, and tried again until they are committed.

    The history claims nothing of a load's messages before its commit. After it all of them must
    come, once; messages of a load that is never committed must not come.
    """

    def __init__(self, seed: int, broker: SimBroker, place: ShardFiles, history: History) -> None:
        self._random = Random(seed)  # of its own: it does not change the story of a seed
        self._broker = broker
        self._place = place
        self._history = history
        self._open: list[Load] = []
        self._versions = 0
        self._tokens = 0

    def wants_turn(self) -> bool:
        """Return whether the loads act in this turn."""
        return self._random.random() < 0.06

    def next(self, topics: Sequence[str], now_ms: int) -> Answer | None:
        """Return a commit to ask for, of a new or an open load; None if the attempt failed."""
        waiting = [load for load in self._open if not load.in_flight]
        if waiting and self._random.random() < 0.6:
            load = self._random.choice(waiting)
        else:
            load = self._new(self._random.choice(topics), now_ms)
        try:
            return self._attempt(load, now_ms)
        except HorologError as error:
            if error.code is ErrorCode.DISK_FAILED:
                raise
            load.transaction = None  # no space, or the staged files were lost with the power
            return None

    def _new(self, topic: str, now_ms: int) -> Load:
        chance = self._random
        parts = []
        tie = now_ms + chance.choice([2_000, 4_000_000, 3 * DAY_MS])
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            part = []
            for _ in range(chance.choice([1, 3, 12, 40])):
                delay = chance.choice([-90_000, -1, 0, 1, 900, 3_000, 20_000, 4_000_000, *_FAR_MS])
                due = now_ms + delay + chance.choice([0, 0, chance.randrange(2_000)])
                part.append(self._message(topic, tie if chance.random() < 0.3 else due, now_ms))
            parts.append(part)
        load = Load(self._versions, topic, parts, chance.random() < 0.4)
        self._versions += 1
        self._open.append(load)
        return load

    def _message(self, topic: str, due_ms: int, now_ms: int) -> NewMessage:
        self._tokens += 1
        name = f"a{self._tokens}"
        self._history.sent(name, topic, due_ms, now_ms)
        return encode(
            topic=topic,
            body=bytes(self._random.choice([1, 10, 200])),
            message_id=name,
            type=MessageType.DELAY,
            due_ms=due_ms,
        )

    def _attempt(self, load: Load, now_ms: int) -> Answer | None:
        topic = self._broker.shard.topics.get(load.topic)
        if load.version <= self._broker.shard.adoptions.get(_app(load), -1):
            self._known(load, None)
            return None
        if load.transaction is None or self._random.random() < 0.3:
            self._tokens += 1
            token = f"{self._random.randrange(1 << 32):08x}{self._tokens:08x}"
            begun = Begun(token, _app(load), load.version, load.topic, now_ms)
            made = Transaction(self._place, begun, topic.id, len(topic.queues))
            made.begin()
            made.stage(load.parts)
            load.transaction = made
        command = load.transaction.prepare(now_ms, inline=load.inline and load.transaction.is_small)
        for message in load.messages:
            row = self._history.messages[message.message_id]
            row["wall_ms"] = max(row["wall_ms"], now_ms)
        answer = Answer(command)
        answer.notes["load"] = load
        load.in_flight = True
        return answer

    def answered(self, answer: Answer) -> list[NewMessage]:
        """Note the answer to a commit; return the messages that are scheduled from here on."""
        load: Load = answer.notes["load"]
        load.in_flight = False
        if not isinstance(answer.result, Adopted):
            return []
        self._known(load, answer.result)
        return load.messages

    def _known(self, load: Load, result: Adopted | None) -> None:
        """Note that a load is committed; `result` is None if nothing more is known."""
        self._open.remove(load)
        for number, message in enumerate(load.messages):
            row = self._history.messages[message.message_id]
            row["stored"] = True
            if result is not None and not result.already:
                row["origin"] = result.position + number * 1e-6
        if load.transaction is not None:
            load.transaction.end()  # last: it can be killed, and the notes above are made by then

    def lost(self) -> None:
        """Note that the broker has died, so that no commit in flight is answered."""
        for load in self._open:
            load.in_flight = False

    def finish(self) -> None:
        """Settle each load after the last start: one that is not committed by now never was."""
        for load in list(self._open):
            if load.version <= self._broker.shard.adoptions.get(_app(load), -1):
                self._known(load, None)
                continue
            for message in load.messages:
                self._history.messages[message.message_id]["stored"] = False


def _app(load: Load) -> str:
    return f"load-{load.version}"  # versions of one app would have to be committed in order
