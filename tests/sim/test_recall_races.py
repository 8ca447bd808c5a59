"""Races of recall and hand-over, with retries, reschedules and kills between append, fsync and reply (P8).

Rounds of some twenty messages that fall due within milliseconds, while they are recalled, sent again, moved and
handed over, and the process is killed.  Nothing answered CANCELLED is ever seen; nothing answered NOT_FOUND is
handed over later; what is answered ALREADY_DELIVERED is seen; and what was acknowledged and not recalled too.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from math import inf
from random import Random

import pytest

from horolog.clock import SimulatedClock
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    MessageType,
    Recall,
    RecalledMany,
    RecallMany,
    RecallStatus,
    Receive,
    Reschedule,
    RescheduleStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk, Killed
from horolog.testing.sim_broker import Answer, SimBroker, properties_of

HOUR_MS = 3_600_000


class Message:
    """What the clients know about one message id."""

    def __init__(self, message_id: str, due_ms: int) -> None:
        self.id = message_id
        self.due_ms = due_ms
        self.dues = [due_ms]
        self.acked = False
        self.unknown = False  # an answer that would say what became of it was lost
        self.answers: list[tuple[int, str]] = []  # (due time, status), as answered
        self.asked = False  # somebody wants it recalled or moved
        self.seen: list[int] = []  # due times of the copies that were received


class Races:
    """One world: rounds until it is full."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = SimulatedClock(1_700_000_000_000 + self.random.randrange(HOUR_MS))
        self.disk = FaultyDisk(seed)
        self.flush = self.random.choice(["sync", "sync", "interval", "os"])
        self.broker = SimBroker(self.random, self.disk, self.clock, self.flush, 65_536)
        self.dedup = self.random.random() < 0.6
        self.idempotent = False
        self.broker.settings = self.broker.settings._replace(
            dedup_ms=120_000 if self.dedup else 0, retention_ms=10_000 * 24 * HOUR_MS
        )
        self.messages: dict[str, Message] = {}
        self.answers: list[tuple[Answer, list[Message]]] = []
        self.countdown = -1
        self.counts: Counter[str] = Counter()
        self.disk.on_effect = self._effect
        self.broker.open()
        self.broker.ask(CreateTopic("t", TopicType.MIXED, 2))

    def _effect(self, what: str) -> None:
        if self.countdown >= 0:
            self.countdown -= 1
            if self.countdown < 0:
                raise Killed(what)

    # --- a round --------------------------------------------------------------------------------

    def run(self, rounds: int) -> Counter[str]:
        for number in range(rounds):
            self._round(number)
            self._collect()
            self._check()
            self.messages.clear()
        return self.counts

    def _round(self, number: int) -> None:
        random = self.random
        wait = 26 * HOUR_MS if random.random() < 0.15 else random.choice([20, 3_000])
        self.idempotent = self.dedup and wait < 60_000  # a retry after a recall changes nothing
        due = self.clock.wall_ms() + wait
        for i in range(random.randint(5, 30)):
            name = f"{number}-{i}"
            self.messages[name] = Message(name, due + random.choice([0, 0, 1, 2, 5, 9]))
        every = list(self.messages.values())
        self._do(lambda: self._send(every))
        if random.random() < 0.5:
            self._do(self.broker.settle)
        self.clock.advance(due - 2 - self.clock.wall_ms())
        for _ in range(random.randint(4, 10)):
            if random.random() < 0.08:
                self.countdown = random.randrange(6)
            self._do(self._act)
            if random.random() < 0.03:
                self._crash()
            self.clock.advance(random.choice([0, 1, 1, 2, 3]))
        self.countdown = -1
        latest = max(due for message in every for due in message.dues)
        self.clock.advance(max(0, latest - self.clock.wall_ms()) + 1)
        self.broker.settle(1_000)
        self._receive()

    def _do(self, what) -> None:
        try:
            what()
        except Killed:
            self._crash()
        self._collect()

    def _crash(self) -> None:
        self.counts["kills"] += 1
        self.countdown = -1
        self.disk.crash(power_cut=self.flush == "sync" and self.random.random() < 0.6)
        self._collect()
        for _, about in self.answers:
            for message in about:
                message.unknown = True
        self.answers.clear()
        self.broker.open()

    def _ask(self, *asked: tuple[object, list[Message]]) -> None:
        pairs = [(Answer(command), about) for command, about in asked]
        self.answers += pairs
        self.broker.step([answer for answer, _ in pairs])

    def _send(self, messages: list[Message]) -> None:
        self._ask((self._sending(messages), messages))

    @staticmethod
    def _sending(messages: list[Message]) -> SendMessages:
        batch = [
            encode(
                topic="t",
                body=b"x" * 40,
                message_id=each.id,
                type=MessageType.DELAY,
                due_ms=each.dues[0],
                tag="late" if each.due_ms % 2 else None,
            )
            for each in messages
        ]
        return SendMessages("t", batch)

    def _act(self) -> None:
        """Some recalls, retries and reschedules in one turn, in any order; the turn may hand over too."""
        random = self.random
        every = list(self.messages.values())
        asked: list[tuple[object, list[Message]]] = []
        for each in random.sample(every, min(len(every), random.randint(0, 6))):
            each.asked = True
            if random.random() < 0.12 and each.acked:
                new = each.due_ms + random.choice([1, 3, 20, 500])
                if new not in each.dues:
                    each.dues.append(new)
                    asked.append((Reschedule("t", each.id, each.due_ms, new), [each]))
            else:
                asked.append((Recall("t", each.id, random.choice(each.dues)), [each]))
        again = [each for each in every if each.acked if self.idempotent or not each.asked]
        if again and random.random() < 0.5:
            some = random.sample(again, min(len(again), 4))
            asked.append((self._sending(some), []))
        if random.random() < 0.02:
            for each in every:
                each.asked = True
            command = RecallMany("t", 0, 1 << 50, random.choice(["", "late"]))
            asked.append((command, every))
        random.shuffle(asked)
        self._ask(*asked)

    def _receive(self) -> None:
        while messages := self.broker.ask(
            Receive("g", "t", -1, "*", 32, 600_000, False, 0, "c")
        ).messages:
            for m in messages:
                decoded = properties_of(m)
                # KeyError: a message of a former round came too late
                message = self.messages[decoded["UNIQ_KEY"]]
                message.seen.append(int(decoded["TIMER_DELIVER_MS"]))
            self.broker.ask(Ack("g", "t", [m.receipt_handle for m in messages]))

    # --- what was said --------------------------------------------------------------------------

    def _collect(self) -> None:
        done = [pair for pair in self.answers if pair[0].done]
        self.answers = [pair for pair in self.answers if not pair[0].done]
        for answer, about in done:
            command, result = answer.command, answer.result
            if isinstance(command, SendMessages):
                for message in about:
                    message.acked = True
            elif isinstance(command, RecallMany):
                assert isinstance(result, RecalledMany)
                self.counts["bulk"] += result.cancelled
                for message in about:
                    message.unknown = True
            else:
                self._note(command, result, about[0])

    def _note(self, command: Recall | Reschedule, result, message: Message) -> None:
        status = result.status.value
        self.counts[status] += 1
        message.answers.append((command.due_ms, status))
        if result.status is RescheduleStatus.RESCHEDULED:
            message.due_ms = result.due_ms

    def _check(self) -> None:
        for message in self.messages.values():
            for due, status in message.answers:
                why = f"{message.id} was {status} at {due}, {message.answers}; seen {message.seen}"
                if status == RecallStatus.CANCELLED:
                    assert not message.seen, why
                elif status == RecallStatus.ALREADY_DELIVERED:
                    assert due in message.seen, why
                else:  # not there, or not there any more
                    assert due not in message.seen, why
            cancelled = any(status == RecallStatus.CANCELLED for _, status in message.answers)
            if message.acked and not cancelled and not message.unknown:
                assert message.seen, f"{message.id} was acknowledged and is not seen"
            if self.idempotent:
                assert len(message.seen) <= 1, f"{message.id} was handed over as {message.seen}"


def run_world(seed: int, rounds: int) -> tuple[Counter[str], str]:
    try:
        return Races(seed).run(rounds), ""
    except Exception as error:
        return Counter(), f"seed {seed}: {error!r}"


def races(wanted: int, rounds: int, seconds: float = inf, at_least: int = 0) -> Counter[str]:
    """So many races, or those of so many seconds; `at_least` is how many those must be."""
    total: Counter[str] = Counter()
    end_s = time.monotonic() + seconds
    with ProcessPoolExecutor(2) as pool:
        seed = done = 0
        while done < wanted and (done < at_least or time.monotonic() < end_s):
            for counts, failure in pool.map(run_world, range(seed, seed + 4), [rounds] * 4):
                assert not failure, failure
                total += counts
            seed += 4
            done = sum(total[status] for status in RecallStatus)
    return total


def test_a_thousand_races() -> None:
    counts = races(1_000, 16)
    assert all(counts[status] > 50 for status in RecallStatus), counts
    assert counts["kills"] > 10


@pytest.mark.slow
def test_races_for_two_minutes(record_property) -> None:
    """The first of the 100 000 below, at least 25 000."""
    counts = races(100_000, 100, seconds=120, at_least=25_000)
    record_property("figures", str(dict(counts)))
    assert all(counts[status] > 1_250 for status in RecallStatus), counts


@pytest.mark.full
@pytest.mark.timeout(0)
def test_a_hundred_thousand_races(record_property) -> None:
    counts = races(100_000, 100)
    record_property("figures", str(dict(counts)))
    assert all(counts[status] > 5_000 for status in RecallStatus), counts
