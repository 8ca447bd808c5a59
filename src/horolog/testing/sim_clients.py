"""Clients of ordinary topics in a simulation, which send, recall, reschedule, receive and ack.

They draw from the random numbers of the simulation itself, so their actions are part of the story
of its seed. The answers that they get go into the history, which is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from horolog.clock import SimulatedClock
from horolog.limits import DAY_MS, DEDUP_MS, HOUR_MS
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    MessageType,
    NewMessage,
    Recall,
    Recalled,
    RecallMany,
    Receive,
    Received,
    Reschedule,
    SendMessages,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History
from horolog.testing.sim_levels import Levels, leveled

START_MS = 1_700_000_000_000
TOPICS = ("orders", "gifts")
FAR_MS = (25 * HOUR_MS, 26 * HOUR_MS, 3 * DAY_MS, 40 * DAY_MS, 400 * DAY_MS)


class Clients:
    """The clients of the ordinary topics of one simulation.

    recallable  topic, message id and due time of scheduled messages, of every client
    touched     ids of messages that some client has tried to recall or move
    """

    def __init__(
        self,
        random: Random,
        broker: SimBroker,
        clock: SimulatedClock,
        history: History,
        levels: Levels,
        tell: Callable[[str], None],
    ) -> None:
        self._random = random
        self._broker = broker
        self._clock = clock
        self._history = history
        self._levels = levels
        self._tell = tell
        self._handles: list[tuple[str, str, tuple[str, int, int]]] = []
        self.recallable: list[tuple[str, str, int]] = []
        self.touched: set[str] = set()
        self._again: list[tuple[int, str, list[NewMessage]]] = []  # (monotonic ms, topic, messages)
        self._n = 0

    def stepped(self) -> None:
        """Note a forward step of the clock: a later start overrates the age of earlier sends."""
        self._again.clear()

    def send(self) -> Answer:
        """Send some messages, most of them scheduled, or repeat an earlier send."""
        if self._random.random() < 0.15 and (again := self._send_again()):
            return again
        topic = self._random.choice(TOPICS)
        now = self._clock.wall_ms()
        messages, ids = [], []
        for _ in range(self._random.choice([1, 1, 2, 8, 40])):
            self._n += 1
            message_id = f"m{self._n}"
            due = 0
            if self._random.random() < 0.8:
                due = (
                    now
                    + self._random.choice([1, 500, 1_000, 3_000, 3_000, 20_000, 4_000_000, *FAR_MS])
                    + self._random.choice([0, 0, self._random.randrange(2_000)])
                )
            body = bytes(self._random.choice([1, 10, 200, 3_000]))
            level = self._levels.draw(self._broker.shard, now)
            due = level.due_ms if level is not None else due
            made = encode(
                topic=topic,
                body=body,
                message_id=message_id,
                type=MessageType.DELAY if due else MessageType.NORMAL,
                due_ms=due,
                tag=self._random.choice([None, "TagA", "TagC,TagB"]),
            )
            messages.append(made if level is None else leveled(made, level))
            ids.append(message_id)
            tag = properties.decode(layout.topic_and_properties(messages[-1].record[32:])[1])
            self._history.sent(message_id, topic, due, now, tag.get(properties.TAGS))
            if due:
                self.recallable.append((topic, message_id, due))
        if self._random.random() < 0.05:  # one message twice in a request
            messages.append(messages[0])
            ids.append(ids[0])
            self._history.sent_again(ids[0], now)
        self._again.append((self._clock.monotonic_ms(), topic, messages))
        self._tell(f"send {topic} {ids[0]}…{ids[-1]}")
        answer = Answer(SendMessages(topic, messages))
        answer.notes["ids"] = ids
        return answer

    def _send_again(self) -> Answer | None:
        """Repeat an earlier send while the dedup window surely lasts; None if there is none.

        Messages that may have been answered NOT_FOUND are left out.
        """
        since = self._clock.monotonic_ms() - DEDUP_MS + 5_000
        self._again = [each for each in self._again if each[0] > since][-20:]
        if not self._again:
            return None
        _, topic, candidates = self._random.choice(self._again)
        sends, now = self._history.messages, self._clock.wall_ms()
        messages = [
            message
            for message in candidates
            if sends[message.message_id]["stored"] or message.message_id not in self.touched
            if not (self._history.lost_keys or message.message_id in self._history.excused)
            if message.due_ms >= 0  # with a level it would be due later, if the first send was lost
        ]
        ids = [message.message_id for message in messages]
        for message_id in ids:
            self._history.sent_again(message_id, now)
        if not ids:
            return None
        self._tell(f"send again {topic} {ids[0]}…{ids[-1]}")
        answer = Answer(SendMessages(topic, messages))
        answer.notes["ids"] = ids
        return answer

    def recall(self) -> Answer:
        """Recall one of the latest messages, or one that no client has sent."""
        topic, message_id, due = "orders", "nobody", START_MS
        if self.recallable and self._random.random() < 0.95:
            topic, message_id, due = self._random.choice(self.recallable[-60:])
        answer = Answer(Recall(topic, message_id, due))
        answer.notes["seen"] = message_id in self._history.places
        self.touched.add(message_id)
        self._tell(f"recall {message_id}")
        return answer

    def reschedule(self) -> Answer:
        """Move one of the latest messages to another time, or to now; there must be one."""
        topic, message_id, due = self._random.choice(self.recallable[-60:])
        now = self._clock.wall_ms()
        new = now + self._random.choice([-1_000, 0, 1, 3_000, 20_000, 4_000_000, *FAR_MS])
        while new in self._history.messages[message_id]["dues"]:
            new += 1
        at_once = self._random.random() < 0.2
        command = Reschedule(topic, message_id, due, 0 if at_once else new, now=at_once)
        answer = Answer(command)
        answer.notes["seen"] = message_id in self._history.places
        self._history.reschedule_asked(message_id, None if at_once else new)
        self.touched.add(message_id)
        if not at_once:
            self.recallable.append((topic, message_id, new))
        self._tell(f"reschedule {message_id}")
        return answer

    def recall_many(self) -> Answer:
        """Recall all messages that are due in a window, or count them."""
        now = self._clock.wall_ms()
        from_ms = now + self._random.choice([-10_000, 0, 2_000, HOUR_MS, 2 * DAY_MS, 30 * DAY_MS])
        to_ms = from_ms + self._random.choice([1_000, 10_000, HOUR_MS, 5 * DAY_MS, 400 * DAY_MS])
        tag, dry_run = self._random.choice(["", "", "TagA"]), self._random.random() < 0.4
        command = RecallMany(self._random.choice(TOPICS), from_ms, to_ms, tag, dry_run)
        answer = Answer(command)
        self.touched |= set(self._history.messages)
        answer.notes["certain"] = self._history.certain(command)
        self._tell(f"recall many, {len(answer.notes['certain'])} at least, dry run {dry_run}")
        return answer

    def receive(self) -> Answer:
        """Receive as the group that takes everything, or as the one with a tag filter."""
        tags = self._random.choice(["*", "*", "*", "TagA"])
        group = "all" if tags == "*" else "some"
        command = Receive(
            group,
            self._random.choice(TOPICS),
            -1,
            tags,
            self._random.choice([1, 8, 32]),
            self._random.choice([10_000, 60_000]),
            self._random.random() < 0.2,
            self._random.choice([0, 5_000]),
            "client",
        )
        return Answer(command)

    def ack(self) -> Answer | None:
        """Acknowledge a received message, or change its invisible time; None if there is none."""
        if not self._handles:
            return None
        group, handle, place = self._handles.pop(self._random.randrange(len(self._handles)))
        if self._random.random() < 0.8:
            answer = Answer(Ack(group, place[0], [handle]))
        else:
            wait = self._random.choice([0, 1_000, 30_000])
            answer = Answer(ChangeInvisible(group, place[0], handle, wait))
        answer.notes["place"] = place
        return answer

    def noted(self, answer: Answer) -> None:
        """Note the answer to a command of these clients."""
        command, result = answer.command, answer.result
        if isinstance(command, SendMessages):
            self._history.send_answered(answer.notes["ids"], result)
        elif isinstance(command, Reschedule):
            self._tell(f"  reschedule of {command.message_id}: {result}")
            self._history.reschedule_answered(command, result, answer.notes["seen"])
        elif isinstance(command, RecallMany):
            self._tell(f"  {result}")
            self._history.bulk_answered(command, result, answer.notes["certain"])
        elif isinstance(result, Recalled):
            self._tell(f"  recall of {result.message_id}: {result.status}")
            self._history.recall_answered(result.message_id, result, answer.notes["seen"])
        elif isinstance(command, Receive) and isinstance(result, Received):
            self._take(command.group, command.topic, result)
        elif isinstance(command, Ack) and isinstance(result, Acked) and result.refused[0] is None:
            self._history.acked.add((command.group, *answer.notes["place"]))
        elif isinstance(command, ChangeInvisible) and isinstance(result, Changed):
            self._handles.append((command.group, result.receipt_handle, answer.notes["place"]))

    def _take(self, group: str, topic: str, result: Received) -> None:
        for message in result.messages:
            stored = layout.decode(message.layout)
            decoded = properties.decode(stored.properties)
            message_id = decoded[properties.UNIQ_KEY]
            due = decoded.get(properties.TIMER_DELIVER_MS, "0")
            place = (topic, message.queue_id, message.queue_offset)
            self._history.intact(message_id, stored.body)
            self._history.received(group, place, message_id, stored.store_ms, int(due))
            self._handles.append((group, message.receipt_handle, place))
