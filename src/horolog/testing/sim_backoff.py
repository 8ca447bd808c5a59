"""Groups with a retry back-off of their own, in a simulation: when a message comes again.

One group has a list of pauses, the other an exponential policy; both allow a few attempts. Their
consumers fail ("again as the group says"), let leases end, and seldom acknowledge. For each message
of each group, `Known` says what the broker may know, and after a kill without the record of a lease
also what it may have forgotten. A lease must follow from one of these states: one attempt more, and
not before its time. A receive with room to spare is late if it leaves out a message whose pause is
known to be over. At the end each message is a dead letter once, or was acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.clock import SimulatedClock
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    CreateTopic,
    DescribeTopic,
    Receive,
    Received,
    SendMessages,
    Sent,
    TopicType,
)
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.rocketmq import layout, properties, retry
from horolog.protocol.rocketmq.backoff import Backoff, Exponential, Pauses
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

TOPIC = "patient"
ATTEMPTS = 4
LEASE_MS = 10_000
LIST_MS = (100, 200, 3_000, 7_000, 15_000)
INITIAL_MS, MULTIPLIER, LONGEST_MS = 2_000, 3, 12_000
BY_LIST, BY_POWER = "by-list", "by-power"
_BACKOFF: dict[str, Backoff] = {
    BY_LIST: Pauses(LIST_MS),
    BY_POWER: Exponential(INITIAL_MS, LONGEST_MS, MULTIPLIER),
}
_ROOM = 32
_NEVER = 1 << 62  # log position of a record that a kill may lose


def pause_ms(group: str, failures: int) -> int:
    """Return the pause that the guide documents, computed independently of the broker."""
    if group == BY_LIST:
        return (*LIST_MS[2:], LIST_MS[-1])[min(failures - 1, 3)]
    return int(min(INITIAL_MS * MULTIPLIER ** (failures - 1), LONGEST_MS))


class Known(NamedTuple):
    """What a broker may know of a message: lease count, last lease, `log_end` of its record."""

    attempt: int = 0
    granted_ms: int = 0  # wall
    duration_ms: int = 0
    ends_at: int = 0  # monotonic
    log_end: int = 0


class _Place(NamedTuple):
    group: str
    queue: int
    offset: int


@dataclass
class _Row:
    """A message of a group.

    known    states in the order of the log: after a kill the log, and the broker, may end with any
    current  states that may hold now
    """

    message_id: str
    known: list[Known] = field(default_factory=lambda: [Known()])
    current: list[Known] = field(default_factory=lambda: [Known()])
    handle: str = ""
    is_acked: bool = False  # an ack was asked for

    def learn(self, state: Known) -> None:
        """Note that only this state can hold now."""
        if state not in self.known:
            self.known.append(state)
        self.current = [state]


class BackOffs(Actor):
    """The consumers with a back-off in one simulation."""

    def __init__(
        self, seed: int, broker: SimBroker, clock: SimulatedClock, *, may_rot: bool
    ) -> None:
        super().__init__(seed, [0, 0.1, 0.3, 0.5])
        self._broker = broker
        self._clock = clock
        self._may_rot = may_rot  # rot may lose any record: then only dead letters are counted
        self._made: set[str] = set()  # topic and groups that exist for certain
        self._rows: dict[_Place, _Row] = {}
        self._sent = 0
        self.certain: set[str] = set()  # message ids that are stored
        self._acked: set[_Place] = set()  # whose ack was confirmed
        self._is_tight = False  # no space for dead letters: then there may be one lease more
        self.steps_back = False  # the clock has stepped back: old handles seem young

    def squeezed(self) -> None:
        """Note that the disk has little space."""
        self._is_tight = True

    # --- commands ---------------------------------------------------------------------------------

    def turn(self, topics: Sequence[str], wall_ms: int, mono_ms: int) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        del topics
        if missing := {TOPIC, *_BACKOFF} - self._made:
            return [Answer(_make(name)) for name in sorted(missing)], f"make {sorted(missing)}"
        roll = self._random.random()
        held = sorted(place for place, row in self._rows.items() if row.handle)
        if roll < 0.15 or not self._sent:
            return [self._send()], f"send to {TOPIC}"
        if roll < 0.5 or not held:
            group = self._random.choice([BY_LIST, BY_POWER])
            return [Answer(receive_of(group))], f"{group} receives"
        place = self._random.choice(held)
        row = self._rows[place]
        handle, row.handle = row.handle, ""
        if roll < 0.55:
            row.is_acked = True
            command = Ack(place.group, TOPIC, [handle])
            return [Answer(command, notes={"place": place})], f"{place} is acknowledged"
        attempt = row.known[-1].attempt
        pause = pause_ms(place.group, attempt)
        failed = Known(attempt, wall_ms, pause, mono_ms + pause, _NEVER)
        row.known.append(failed)
        row.current = [*row.current, failed]
        change = ChangeInvisible(place.group, TOPIC, handle, LEASE_MS, by_group=True)
        notes = {"place": place, "failed": failed}
        return [Answer(change, notes=notes)], f"{place} has failed {attempt} times"

    def _send(self) -> Answer:
        ids = [f"B{self._sent + i}" for i in range(self._random.randint(1, 4))]
        self._sent += len(ids)
        made = [encode(topic=TOPIC, body=name.encode(), message_id=name) for name in ids]
        return Answer(SendMessages(TOPIC, made), notes={"ids": ids})

    # --- answers ----------------------------------------------------------------------------------

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of these consumers."""
        command = answer.command
        if isinstance(command, CreateTopic | PutGroup):
            return command.name in (TOPIC, *_BACKOFF)
        return getattr(command, "topic", "") == TOPIC

    def noted(self, answer: Answer) -> None:
        """Note an answer that has been released; answers to receives come at once."""
        command, result = answer.command, answer.result
        if isinstance(command, ChangeInvisible):
            self._changed(answer)
        elif isinstance(result, Exception):
            return
        elif isinstance(command, CreateTopic | PutGroup):
            self._made.add(command.name)
        elif isinstance(command, SendMessages) and isinstance(result, Sent):
            ids = answer.notes["ids"]
            self.certain |= {name for i, name in enumerate(ids) if i not in result.refused}
        elif isinstance(command, Ack) and isinstance(result, Acked):
            if result.refused == [None]:
                self._acked.add(answer.notes["place"])
            else:
                self._rows[answer.notes["place"]].is_acked = False
        elif isinstance(command, Receive) and isinstance(result, Received):
            self._received(command.group, result)

    def _changed(self, answer: Answer) -> None:
        row, failed = self._rows[answer.notes["place"]], answer.notes["failed"]
        if isinstance(answer.result, Changed):
            if failed in row.current:  # else it was leased again before this answer
                row.handle = answer.result.receipt_handle
                row.current = [failed]
            committed = failed._replace(log_end=0)
            row.known = [committed if state == failed else state for state in row.known]
            row.current = [committed if state == failed else state for state in row.current]
        elif row.known[-1] == failed:
            row.known.remove(failed)
            row.current = [state for state in row.current if state != failed] or [row.known[-1]]

    def _received(self, group: str, result: Received) -> None:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        given: set[_Place] = set()
        for each in result.messages:
            place = _Place(group, each.queue_id, each.queue_offset)
            row = self._rows.setdefault(place, _Row(_id_of(each.layout)))
            given.add(place)
            if not self._may_rot:
                self._check_lease(place, row, each.attempt, now_ms)
            lease = Known(each.attempt, wall_ms, LEASE_MS, now_ms + LEASE_MS, self._broker.end)
            row.learn(lease)
            row.handle = each.receipt_handle
        if len(result.messages) < _ROOM and not self._may_rot:
            self._check_none_is_late(group, given, now_ms)

    def _check_lease(self, place: _Place, row: _Row, attempt: int, now_ms: int) -> None:
        if place in self._acked:
            raise PromiseBroken(f"P3: {place} was acknowledged, and is attempt {attempt} now")
        if attempt > ATTEMPTS and not self._is_tight:
            raise PromiseBroken(f"{place} is leased for the {attempt}. time")
        follows = [state for state in row.current if state.attempt + 1 == attempt]
        if not follows:
            raise PromiseBroken(f"{place} is attempt {attempt}, after {row.current}")
        if all(state.ends_at > now_ms for state in follows):
            raise PromiseBroken(f"{place} comes at {now_ms}, before {follows} is over")

    def _check_none_is_late(self, group: str, given: set[_Place], now_ms: int) -> None:
        queues = self._broker.shard.topics.by_name[TOPIC].queues
        for place, row in self._rows.items():
            if place.group != group or place in given or row.is_acked:
                continue
            is_over = all(0 < s.attempt < ATTEMPTS and s.ends_at <= now_ms for s in row.current)
            if is_over and place.offset >= queues[place.queue].first:
                raise PromiseBroken(f"{place} does not come at {now_ms}, after {row.current}")

    # --- lives of the broker ----------------------------------------------------------------------

    def lost(self, answers: Sequence[Answer]) -> None:
        """Note that the broker has died with these answers in flight; some had been given."""
        for answer in answers:
            if self.owns(answer) and answer.done:
                self.noted(answer)
        committed = self._broker.committed
        for row in self._rows.values():
            certain = [i for i, state in enumerate(row.known) if state.log_end <= committed]
            first, *rest = row.known[certain[-1] :]
            row.known = [first, *(state._replace(log_end=_NEVER) for state in rest)]
            row.current = list(row.known)

    def opened(self) -> None:
        """Note that a life begins: the rest of each lease goes by the wall clock."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()

        def again(state: Known) -> Known:
            left = state.granted_ms + state.duration_ms - wall_ms
            return state._replace(ends_at=now_ms + min(max(left, 0), state.duration_ms))

        for row in self._rows.values():
            row.known = [again(state) for state in row.known]
            row.current = [again(state) for state in row.current]

    # --- the end ----------------------------------------------------------------------------------

    def finish(self, crash: Callable[[], None], *, lost_allowed: bool) -> None:
        """Use up all attempts; then each message is a dead letter once, or was acknowledged.

        crash  kills and starts the broker: a message that is a dead letter stays one
        """
        if {TOPIC, *_BACKOFF} - self._made:
            return
        self._is_tight = False  # there has been room since the last start
        for _ in range(ATTEMPTS + 2):
            self._broker.settle()  # a checkpoint that is due is older than the dead letters
            for group in _BACKOFF:
                self._receive_all(group)
            crash()
            self._clock.advance(self._rest_ms())
        for group in _BACKOFF:
            self._check_letters(group, lost_allowed=lost_allowed)

    def _rest_ms(self) -> int:
        """Return the time until the last lease is over: a lease that lasts longer is then late."""
        if self._may_rot:
            # The broker may have lost what is known here
            return LEASE_MS + max(LONGEST_MS, *LIST_MS)
        ends = (state.ends_at for row in self._rows.values() for state in row.current)
        return max(0, max(ends, default=0) - self._clock.monotonic_ms())

    def _receive_all(self, group: str) -> None:
        found = self._broker.ask(receive_of(group))
        self._received(group, found)
        while len(found.messages) == _ROOM:
            found = self._broker.ask(receive_of(group))
            self._received(group, found)

    def _check_letters(self, group: str, *, lost_allowed: bool) -> None:
        letters: Counter[str] = Counter()
        dead, dropped = retry.dead_letter_topic(group), 0
        if dead in self._broker.shard.topics.by_name:
            command = Receive("final", dead, -1, "*", _ROOM, 600_000, False, 0, "final")
            while messages := self._broker.ask(command).messages:
                letters.update(_id_of(each.layout) for each in messages)
            dropped = sum(self._broker.ask(DescribeTopic(dead)).min_offsets)
        dropped += sum(self._broker.ask(DescribeTopic(TOPIC)).min_offsets)
        if twice := sorted(name for name, times in letters.items() if times > 1):
            raise PromiseBroken(f"P3: {twice} are dead letters of {group} twice")
        rows = [row for place, row in self._rows.items() if place.group == group]
        acked = {self._rows[place].message_id for place in self._acked if place.group == group}
        if (both := acked & letters.keys()) and not (self.steps_back or lost_allowed):
            raise PromiseBroken(f"P3: {sorted(both)} were acknowledged by {group}, and are dead")
        asked = {row.message_id for row in rows if row.is_acked}
        lost = sorted(self.certain - letters.keys() - asked)
        if len(lost) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {lost} are no dead letters of {group}, nor acknowledged")


def _make(name: str) -> CreateTopic | PutGroup:
    if name == TOPIC:
        return CreateTopic(TOPIC, TopicType.MIXED, 2)
    return PutGroup(name, GroupSettings(retry_max=ATTEMPTS - 1, backoff=_BACKOFF[name]))


def receive_of(group: str) -> Receive:
    """Return a receive for a group; the broker gives messages up after the last attempt."""
    return Receive(group, TOPIC, -1, "*", _ROOM, LEASE_MS, False, 0, group, gives_up=True)


def _id_of(stored: bytes) -> str:
    return properties.decode(layout.topic_and_properties(stored)[1])[properties.UNIQ_KEY]
