"""A consumer group in order, in a simulation: consumers fail, lose answers, die with the broker.

Whatever happens, no consumer gets a message of a message group while an earlier one is not done,
and none gets a message that another consumer still has, or whose ack was answered well. This is
checked at the end: the deliveries and earlier acks against the queues as they are then. The group consumes all messages in the end, so
no message group is stuck.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from horolog.clock import SimulatedClock
from horolog.limits import AUTO_RENEW_MS, SECOND_MS
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    ClientGone,
    CreateTopic,
    DescribeTopic,
    MessageType,
    NewMessage,
    ReadQueue,
    Receive,
    Received,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import layout, properties, retry
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker, properties_of
from horolog.testing.sim_checks import PromiseBroken

GROUP = "in-order"
TOPIC = "steps"
RETRY_MAX = 2
_DEAD = retry.dead_letter_topic(GROUP)
_LEASE_MS = 10 * SECOND_MS


class _Place(NamedTuple):
    queue: int
    offset: int


class _Given(NamedTuple):
    """One answer to a receive: the messages that were delivered together, and when."""

    at: int  # which event this is, counted from the first
    places: list[_Place]


def _receive_of(command: Receive) -> str:
    """Return the name of a receive that may be repeated, "" for one that may not."""
    return f"{command.client_id} {command.attempt_id}" if command.attempt_id else ""


class InOrder(Actor):
    """The producers and consumers of some message groups."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0.05, 0.15, 0.3])
        self._broker = broker
        self._sent = 0
        self._events = 0
        self._given: list[_Given] = []
        # The event, counted likewise, at which a consumer may first have been done with the message
        self._done: dict[_Place, int] = {}
        self._acked: set[_Place] = set()  # the answer to an ack said so
        self._held: dict[_Place, str] = {}  # the newest receipt handle
        # Until which monotonic ms, and which receive surely has the message
        self._until: dict[_Place, tuple[int, str]] = {}
        self._steps = 0  # how often leases may have become shorter than asked for
        self._keys: dict[_Place, str] = {}  # message group of each place
        self._breaches: list[str] = []
        self._last: Receive | None = None  # a receive that may be repeated
        self._asked: Counter[str] = Counter()  # how often each of these receives was asked for
        self.latest_ms = 0  # the latest due time that was asked for

    def turn(
        self, _topics: tuple[str, ...], wall_ms: int, mono_ms: int
    ) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        self._events += 1
        roll = self._random.random()
        if not self._sent or roll < 0.35:
            return self._send(wall_ms)
        if roll < 0.65 or not self._held:
            command = self._receive()
            notes = {"mono_ms": mono_ms, "steps": self._steps, "asked": self._ask_for(command)}
            return [Answer(command, notes=notes)], "receive in order"
        if roll < 0.67:
            self.stepped()  # its leases end, also those whose answer it does not have yet
            return [Answer(ClientGone("first"))], "a consumer in order leaves"
        place = self._random.choice(sorted(self._held))
        handle = self._held.pop(place)
        if roll < 0.9:
            self._done.setdefault(place, self._events)
            ack = Answer(Ack(GROUP, TOPIC, [handle]), notes={"place": place})
            return [ack], f"in order: ack {place}"
        if roll < 0.93:
            self._done.setdefault(place, self._events)
            return [Answer(ForwardToDeadLetters(GROUP, TOPIC, handle))], f"give up {place}"
        wait_ms = self._random.choice([0, 1_000, 30_000])
        self._until.pop(place, None)
        change = Answer(ChangeInvisible(GROUP, TOPIC, handle, wait_ms))
        change.notes.update(place=place, until=mono_ms + wait_ms, steps=self._steps)
        return [change], f"in order: {place} again in {wait_ms} ms"

    def _send(self, wall_ms: int) -> tuple[list[Answer], str]:
        messages: list[NewMessage] = []
        for _ in range(self._random.choice([1, 3, 10])):
            self._sent += 1
            delay_ms = self._random.choice([0, 0, 0, 1, 700, 5_000])
            due_ms = wall_ms + delay_ms if delay_ms else 0
            self.latest_ms = max(self.latest_ms, due_ms)
            made = encode(
                topic=TOPIC,
                body=b"step",
                message_id=f"s{self._sent}",
                type=MessageType.FIFO,
                due_ms=due_ms,
                message_group=self._random.choice(["a", "a", "b", "c", "d"]),
            )
            messages.append(made)
        asked = [
            Answer(CreateTopic(TOPIC, TopicType.FIFO, 2)),
            Answer(PutGroup(GROUP, GroupSettings(orderly=True, retry_max=RETRY_MAX))),
            Answer(SendMessages(TOPIC, messages)),
        ]
        return asked, f"send {len(messages)} steps"

    def _receive(self) -> Receive:
        if self._last is not None and self._random.random() < 0.2:
            return self._last
        draw = self._random
        client = draw.choice(["first", "second"])
        attempt = draw.choice(["", f"attempt-{self._events}"])
        renew = draw.random() < 0.2
        command = Receive(
            GROUP, TOPIC, -1, "*", draw.choice([1, 3, 32]), _LEASE_MS, renew, 0, client, attempt,
            gives_up=True,
        )  # fmt: skip
        self._last = command if attempt else None
        return command

    def _ask_for(self, command: Receive) -> int:
        """Count a receive, and return how often it was asked for by now.

        Messages that the last answer had and the next one leaves out are leased to no consumer from
        here on, even if no answer comes.
        """
        receive = _receive_of(command)
        if receive:
            self._asked[receive] += 1
            for place in [place for place, (_, who) in self._until.items() if who == receive]:
                del self._until[place]
        return self._asked[receive]

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of these clients."""
        command = answer.command
        if isinstance(command, PutGroup | CreateTopic):
            return command.name in (GROUP, TOPIC)
        if isinstance(command, ClientGone):
            return command.client_id in ("first", "second")
        return getattr(command, "topic", "") == TOPIC

    def noted(self, answer: Answer, mono_ms: int) -> None:
        """Note an answer that has been released."""
        command, result = answer.command, answer.result
        self._events += 1
        is_certain = answer.notes.get("steps") == self._steps
        if isinstance(command, Receive) and isinstance(result, Received) and result.messages:
            is_newest = answer.notes["asked"] == self._asked[_receive_of(command)]
            until_ms = answer.notes["mono_ms"] + _LEASE_MS if is_certain and is_newest else 0
            self._take(command, result, until_ms, mono_ms)
        elif isinstance(command, Ack) and isinstance(result, Acked) and result.refused == [None]:
            self._acked.add(answer.notes["place"])
        elif isinstance(command, ChangeInvisible) and isinstance(result, Changed):
            place = answer.notes["place"]
            self._held[place] = result.receipt_handle
            self._until[place] = answer.notes["until"] if is_certain else 0, ""

    def _take(self, command: Receive, result: Received, until_ms: int, mono_ms: int) -> None:
        places = [_Place(each.queue_id, each.queue_offset) for each in result.messages]
        self._give(places)
        first: dict[str, _Place] = {}
        receive = _receive_of(command)
        for place, each in zip(places, result.messages, strict=True):
            known = properties_of(each)
            key = self._keys[place] = known[properties.SHARDING_KEY]
            if first.setdefault(key, place) == place:
                until, who = self._until.get(place, (0, ""))
                is_had = until > mono_ms and not (who and who == receive)
                if is_had and not self._one_failed_before(place, key, mono_ms):
                    self._breaches.append(f"{place} was given out, and somebody had it")
                self._revoke_after(place, key)
            self._held[place] = each.receipt_handle
            self._until[place] = until_ms, receive

    def _give(self, places: list[_Place]) -> None:
        """Note messages that a consumer was given together."""
        self._given.append(_Given(self._events, places))
        again = self._acked.intersection(places)
        self._breaches += [f"{place} was acknowledged, and given out again" for place in again]

    def _one_failed_before(self, place: _Place, key: str, mono_ms: int) -> bool:
        """Return whether an earlier message of the group is neither leased nor done.

        A receive that finds such a message takes this one back. The earlier one need not be
        delivered itself: after its last attempt it goes to the dead letters.
        """
        return any(
            at.queue == place.queue
            and at.offset < place.offset
            and name == key
            and at not in self._done
            and self._until.get(at, (0, ""))[0] <= mono_ms
            for at, name in self._keys.items()
        )

    def _revoke_after(self, first: _Place, key: str) -> None:
        """Note that a message was delivered: later ones of its group have no lease now."""
        for place in list(self._until):
            is_later = place.queue == first.queue and place.offset > first.offset
            if is_later and self._keys.get(place) == key:
                del self._until[place]

    def stepped(self) -> None:
        """Note that the clock has gone on by itself: a later start overrates the age of leases.

        This is also true of leases that were asked for before the step and are answered after it.
        """
        self._steps += 1
        self._until.clear()

    # --- the end ----------------------------------------------------------------------------------

    def finish(self, clock: SimulatedClock, *, lost_allowed: bool) -> None:
        """After all time has passed, consume the rest in order, and check all deliveries."""
        if TOPIC not in self._broker.shard.topics.by_name:
            return
        for client in ("first", "second"):
            self._broker.ask(ClientGone(client))
        clock.advance(AUTO_RENEW_MS)  # until the last lease is over
        self._broker.settle(2_000)
        self._broker.ask(PutGroup(GROUP, GroupSettings(orderly=True, retry_max=1_000)))
        while messages := self._broker.ask(self._rest()).messages:
            self._events += 1
            places = [_Place(each.queue_id, each.queue_offset) for each in messages]
            self._give(places)
            self._done.update((place, self._events) for place in places if place not in self._done)
            handles = [each.receipt_handle for each in messages]
            assert not any(self._broker.ask(Ack(GROUP, TOPIC, handles)).refused)
        if self._breaches and not lost_allowed:
            raise PromiseBroken(f"order: {self._breaches[0]}")
        groups = self._groups()
        self._check(groups, lost_allowed=lost_allowed)
        topic = self._broker.shard.topics.by_name[TOPIC]
        group = self._broker.shard.ready.groups.ids[GROUP]
        for queue_id, queue in enumerate(topic.queues):
            found = self._broker.shard.ready.progress_if_any(group, topic.id, queue_id)
            floor = queue.first if found is None else found.floor
            if floor < queue.length and not lost_allowed:
                raise PromiseBroken(
                    f"order: queue {queue_id} is stuck at {floor}, of {queue.length}"
                )

    def _rest(self) -> Receive:
        return Receive(GROUP, TOPIC, -1, "*", 8, 600_000, False, 0, "final")

    def _groups(self) -> dict[int, dict[str, list[tuple[int, str]]]]:
        """Return (queue offset, message id) of each message group of each queue, as far as kept."""
        found: dict[int, dict[str, list[tuple[int, str]]]] = {}
        for queue, first in enumerate(self._broker.ask(DescribeTopic(TOPIC)).min_offsets):
            groups = found.setdefault(queue, {})
            while True:
                read = self._broker.ask(ReadQueue(TOPIC, queue, first, 1_000, 1 << 24))
                for record in read.records:
                    stored = layout.decode(record[RECORD_HEAD_BYTES:])
                    known = properties.decode(stored.properties)
                    place = (stored.queue_offset, known[properties.UNIQ_KEY])
                    groups.setdefault(known[properties.SHARDING_KEY], []).append(place)
                if not read.records:
                    break
                first = read.next_offset
        return found

    def _dead(self) -> set[str]:
        """Return the ids of the group's dead letters, which were done at some time."""
        ids: set[str] = set()
        if _DEAD in self._broker.shard.topics.by_name:
            command = Receive("final", _DEAD, -1, "*", 32, 600_000, False, 0, "final")
            while messages := self._broker.ask(command).messages:
                for each in messages:
                    known = properties_of(each)
                    ids.add(known[properties.UNIQ_KEY])
        return ids

    def _check(
        self, groups: dict[int, dict[str, list[tuple[int, str]]]], *, lost_allowed: bool
    ) -> None:
        dead = self._dead()
        for queue, of_queue in groups.items():
            for name, members in of_queue.items():
                if len({message_id for _, message_id in members}) != len(members):
                    raise PromiseBroken(f"P3: {name} of queue {queue} has a message twice")
                before = [offset for offset, message_id in members if message_id not in dead]
                if lost_allowed:
                    # All that the group ever got is done: any other was a hole when its turn came,
                    # which counts as consumed, and it was restored after that.
                    before = [at for at in before if _Place(queue, at) in self._done]
                for given in self._given:
                    mine = [each.offset for each in given.places if each.queue == queue]
                    self._check_given(given, queue, [at for at in mine if at in before], before)

    def _check_given(self, given: _Given, queue: int, mine: list[int], members: list[int]) -> None:
        if mine != sorted(mine):
            raise PromiseBroken(f"order: {mine} of queue {queue} were given out in this order")
        for offset in mine:
            for earlier in members:
                if earlier >= offset:
                    break
                done = self._done.get(_Place(queue, earlier))
                if earlier not in mine and (done is None or done > given.at):
                    raise PromiseBroken(
                        f"order: {offset} of queue {queue} was given out (event {given.at}), "
                        f"and {earlier} was not done (event {done})"
                    )
