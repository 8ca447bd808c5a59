"""One simulated story of a shard: clients, jobs of Spark, faults of the disk, kills and clock steps, all by a seed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DEDUP_MS
from horolog.protocol.adoption_commands import Adopt
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    CountPending,
    CreateTopic,
    MessageType,
    NewMessage,
    Recall,
    Recalled,
    RecallMany,
    Receive,
    Received,
    Reschedule,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing import sim_end
from horolog.testing.disk import FaultyDisk, Killed, PlainDisk
from horolog.testing.sim_adoptions import Loads
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History
from horolog.testing.sim_dead_letters import GivingUp
from horolog.testing.sim_lake import LakeJobs
from horolog.testing.sim_late import Perishables
from horolog.testing.sim_levels import Levels, leveled
from horolog.testing.sim_moves import Movers
from horolog.testing.sim_order import InOrder
from horolog.testing.sim_polls import QUIET, Polls
from horolog.testing.sim_readers import Readers
from horolog.testing.sim_retries import Retries
from horolog.testing.sim_rot import Rot
from horolog.testing.sim_schedules import Schedules
from horolog.testing.sim_transactions import Traders

START_MS = 1_700_000_000_000
TOPICS = ("orders", "gifts")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FAR_MS = (25 * HOUR_MS, 26 * HOUR_MS, 3 * DAY_MS, 40 * DAY_MS, 400 * DAY_MS)


class Simulation:
    """One seed."""

    def __init__(
        self, seed: int, *, story: bool = False, root: Path | None = None, rot: bool = False
    ) -> None:
        self.random = Random(seed)
        self.clock = SimulatedClock(START_MS + self.random.randrange(3_600_000))
        self.flush = self.random.choice(["sync", "sync", "sync", "interval", "os"])
        disk_seed = self.random.randrange(1 << 30)
        self.disk: FaultyDisk | PlainDisk = (
            FaultyDisk(disk_seed) if root is None else PlainDisk(root)
        )
        segment = self.random.choice([32_768, 65_536, 262_144])
        self.broker = SimBroker(self.random, self.disk, self.clock, self.flush, segment)
        keep = Random(seed + 1)  # of its own: it changes nothing in the story
        self.broker.settings = self.broker.settings._replace(
            retention_ms=keep.choice([60_000, HOUR_MS, 3 * DAY_MS, 1_000 * DAY_MS]),
            retention_bytes=keep.choice([0, 0, 1, 3 * segment]),
        )
        self.broker.checks = Random(seed + 4)
        self.history = History()
        self.loads = Loads(seed + 2, self.broker, self.broker.place, self.history)
        self.lake = LakeJobs(seed + 3, self.broker, self.history)
        self.polls = Polls(seed + 5, self.broker)
        self.retries = Retries(seed + 7, self.broker)
        self.giving_up = GivingUp(seed + 11, self.broker)
        self.in_order = InOrder(seed + 12, self.broker)
        self.traders = Traders(seed + 14, self.broker)
        self.late = Perishables(seed + 13, self.broker)
        self.levels = Levels(seed + 8)
        self.readers = Readers(seed + 9, self.broker, self.history)
        self.schedules = Schedules(seed + 17, self.broker)
        self.movers = Movers(seed + 18, self.broker)
        self.rot: Rot | None = None
        if rot and isinstance(self.disk, FaultyDisk):
            self.rot = Rot(seed + 6, self.broker, self.history, self.disk)
            self.lake.share = 0  # what it reads is not looked at by anybody else
        self.answers: list[Answer] = []
        self.handles: list[tuple[str, str, tuple[str, int, int]]] = []
        self.recallable: list[tuple[str, str, int]] = []
        self._again: list[tuple[int, str, list[NewMessage]]] = []  # (monotonic ms, topic, messages)
        self._touched: set[str] = set()  # messages that somebody has tried to recall or move
        self.topics = TOPICS
        self._n = 0
        self._story = story
        self._countdown = -1

    def tell(self, what: str) -> None:
        """A line of the story, when it is asked for."""
        if self._story:
            print(f"{self.clock.wall_ms() - START_MS:>9} {what}")

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        """Everything, from an empty disk to the final comparison; raises what is wrong."""
        self.disk.on_effect = self._effect
        self._reopen()
        several = TopicSettings(multi_tag=True)  # of every other topic
        for i, topic in enumerate(TOPICS):
            queues, settings = self.random.randint(1, 3), several if i % 2 else None
            self.broker.ask(CreateTopic(topic, TopicType.MIXED, queues, settings))
        self.broker.ask(CreateTopic(QUIET, TopicType.MIXED, 2))
        self.schedules.begin()
        for _ in range(self.random.randint(30, 120)):
            if self._countdown < 0 and self.random.random() < 0.05:
                self._countdown = self.random.randrange(40)
            if isinstance(self.disk, PlainDisk) and self.random.random() < 0.05:
                self._crash()  # it has no effects to be killed at
            self.history.latest_ms = max(self.history.latest_ms, self.clock.wall_ms())
            try:
                self._act()
                self._collect()
            except Killed:
                self._crash()
            except HorologError as error:
                if error.code not in (ErrorCode.DISK_FAILED, ErrorCode.DISK_FULL):
                    raise
                self.tell(f"the disk ends the process: {error}")
                self._crash()
        self._countdown = -1
        self.disk.on_effect = None
        sim_end.drain(self)

    def _effect(self, what: str) -> None:
        if self._countdown >= 0:
            self._countdown -= 1
            if self._countdown < 0:
                self.tell(f"killed at {what}")
                raise Killed(what)

    def _crash(self) -> None:
        power = self.flush == "sync" and self.random.random() < 0.6
        self.tell("power cut" if power else "kill -9")
        self._countdown = -1
        self.disk.crash(power_cut=power)
        self.lose_answers()
        if self.random.random() < 0.3:
            self.clock.advance(self.random.randrange(120_000))
        self._reopen()

    def lose_answers(self) -> None:
        """The broker has died: nobody will ever know what became of these."""
        for command in [answer.command for answer in self.answers]:
            if isinstance(command, Recall) and command.message_id in self.history.sends:
                self.history.sends[command.message_id]["recall_unknown"] = True
            elif isinstance(command, RecallMany):
                self.history.bulk_lost(command)
        self.answers.clear()
        self.loads.lost()
        self.polls.lost()

    def _reopen(self) -> None:
        if self.broker.lives and self.random.random() < 0.2:
            self._countdown = self.random.randrange(30)
        self.open()

    def open(self) -> None:
        """Start, also after kills in the recovery; somebody makes room, and restores what rots."""
        while True:
            try:
                self.broker.open()
                return
            except Killed:
                power = self.flush == "sync" and self.random.random() < 0.6
                self.tell(f"killed in recovery, {'power cut' if power else 'kill -9'}")
                self.disk.crash(power_cut=power)
            except HorologError as error:
                if self.rot is not None and self.rot.restored(error):
                    self.tell(f"refused, so what rots is restored: {error}")
                    self.disk.crash(power_cut=False)
                    continue
                if error.code is not ErrorCode.DISK_FULL:
                    raise
                self.tell("no space to start: somebody makes room")
                self.disk.capacity_bytes = None
                self.disk.crash(power_cut=False)

    def _let_others_act(self) -> bool:
        """Whether this turn was one of the other clients."""
        others = (
            self.polls,
            self.retries,
            self.giving_up,
            self.in_order,
            self.traders,
            self.late,
            self.movers,
            self.schedules,
            self.readers,
        )
        for each in others:
            if each.wants_turn():
                now = self.clock.wall_ms(), self.clock.monotonic_ms()
                asked, event = each.turn(TOPICS, *now)
                self.tell(event)
                self._ask(*asked)
                return True
        return False

    def _act(self) -> None:
        if self._let_others_act():
            return
        if self.rot is not None and self.rot.wants_turn():
            self.tell(self.rot.turn())
            return
        if self.loads.wants_turn():
            commit = self.loads.next(TOPICS, self.clock.wall_ms())
            if commit is not None:
                self.tell(f"commit load {commit.notes['load'].version}")
                self._ask(commit)
            return
        if self.lake.wants_turn():
            change, event = self.lake.turn(self.clock.wall_ms())
            self.tell(f"lake: {event}")
            if change is not None:
                self._touched |= change.notes["ids"]
                if isinstance(command := change.command, Reschedule):
                    moved = command.topic, command.message_id, command.new_due_ms
                    self.recallable.append(moved)
                self._ask(change)
            return
        roll = self.random.random()
        if roll < 0.29 or not self.recallable:
            self._send()
        elif roll < 0.38:
            self._recall()
        elif roll < 0.42:
            self._reschedule()
        elif roll < 0.435:
            self._recall_many()
        elif roll < 0.57:
            self._receive()
        elif roll < 0.67:
            self._ack()
        elif roll < 0.88:
            self._pass_time()
        elif roll < 0.91:
            self._step_clock()
        elif roll < 0.94:
            self.broker.want_checkpoint()
            self.broker.step([])
        elif roll < 0.955:
            self._squeeze()
        elif roll < 0.97:
            self.disk.fail_next(self.random.choice(["write", "sync"]))
            self._send()
        else:
            self._ask(Answer(CountPending(), self.clock.wall_ms()))

    def _ask(self, *answers: Answer) -> None:
        self.answers += answers
        self.broker.step(list(answers))

    # --- clients --------------------------------------------------------------------------------

    def _send(self) -> None:
        if self.random.random() < 0.15 and self._send_again():
            return
        topic = self.random.choice(TOPICS)
        now = self.clock.wall_ms()
        messages, ids = [], []
        for _ in range(self.random.choice([1, 1, 2, 8, 40])):
            self._n += 1
            message_id = f"m{self._n}"
            due = 0
            if self.random.random() < 0.8:
                due = (
                    now
                    + self.random.choice([1, 500, 1_000, 3_000, 3_000, 20_000, 4_000_000, *FAR_MS])
                    + self.random.choice([0, 0, self.random.randrange(2_000)])
                )
            body = bytes(self.random.choice([1, 10, 200, 3_000]))
            level = self.levels.draw(self.broker.shard, now)
            due = level.due_ms if level is not None else due
            made = encode(
                topic=topic,
                body=body,
                message_id=message_id,
                type=MessageType.DELAY if due else MessageType.NORMAL,
                due_ms=due,
                tag=self.random.choice([None, "TagA", "TagC,TagB"]),
            )
            messages.append(made if level is None else leveled(made, level))
            ids.append(message_id)
            tag = properties.decode(layout.topic_and_properties(messages[-1].record[32:])[1])
            self.history.sent(message_id, topic, due, now, tag.get(properties.TAGS))
            if due:
                self.recallable.append((topic, message_id, due))
        if self.random.random() < 0.05:  # the same one twice in a request
            messages.append(messages[0])
            ids.append(ids[0])
            self.history.sent_again(ids[0], now)
        self._again.append((self.clock.monotonic_ms(), topic, messages))
        self.tell(f"send {topic} {ids[0]}…{ids[-1]}")
        answer = Answer(SendMessages(topic, messages), now)
        answer.notes["ids"] = ids
        self._ask(answer)

    def _send_again(self) -> bool:
        """A retry, as long as the window surely lasts; not of what somebody was told is not there."""
        since = self.clock.monotonic_ms() - DEDUP_MS + 5_000
        self._again = [each for each in self._again if each[0] > since][-20:]
        if not self._again:
            return False
        _, topic, candidates = self.random.choice(self._again)
        sends, now = self.history.sends, self.clock.wall_ms()
        messages = [
            message
            for message in candidates
            if sends[message.message_id]["stored"] or message.message_id not in self._touched
            if not (self.history.lost_keys or message.message_id in self.history.excused)
            if message.due_ms >= 0  # a level would be due later, if the first one was lost
        ]
        ids = [message.message_id for message in messages]
        for message_id in ids:
            self.history.sent_again(message_id, now)
        if ids:
            self.tell(f"send again {topic} {ids[0]}…{ids[-1]}")
            answer = Answer(SendMessages(topic, messages), now)
            answer.notes["ids"] = ids
            self._ask(answer)
        return bool(ids)

    def _recall(self) -> None:
        topic, message_id, due = "orders", "nobody", START_MS
        if self.recallable and self.random.random() < 0.95:
            topic, message_id, due = self.random.choice(self.recallable[-60:])
        answer = Answer(Recall(topic, message_id, due), self.clock.wall_ms())
        answer.notes["seen"] = message_id in self.history.places
        self._touched.add(message_id)
        self.tell(f"recall {message_id}")
        self._ask(answer)

    def _reschedule(self) -> None:
        topic, message_id, due = self.random.choice(self.recallable[-60:])
        now = self.clock.wall_ms()
        new = now + self.random.choice([-1_000, 0, 1, 3_000, 20_000, 4_000_000, *FAR_MS])
        while new in self.history.sends[message_id]["dues"]:
            new += 1
        at_once = self.random.random() < 0.2
        command = Reschedule(topic, message_id, due, 0 if at_once else new, now=at_once)
        answer = Answer(command, now)
        answer.notes["seen"] = message_id in self.history.places
        self.history.reschedule_asked(message_id, None if at_once else new)
        self._touched.add(message_id)
        if not at_once:
            self.recallable.append((topic, message_id, new))
        self.tell(f"reschedule {message_id}")
        self._ask(answer)

    def _recall_many(self) -> None:
        now = self.clock.wall_ms()
        from_ms = now + self.random.choice([-10_000, 0, 2_000, HOUR_MS, 2 * DAY_MS, 30 * DAY_MS])
        to_ms = from_ms + self.random.choice([1_000, 10_000, HOUR_MS, 5 * DAY_MS, 400 * DAY_MS])
        tag, dry_run = self.random.choice(["", "", "TagA"]), self.random.random() < 0.4
        command = RecallMany(self.random.choice(TOPICS), from_ms, to_ms, tag, dry_run)
        answer = Answer(command, now)
        self._touched |= set(self.history.sends)
        answer.notes["certain"] = self.history.certain(command)
        self.tell(f"recall many, {len(answer.notes['certain'])} at least, dry run {dry_run}")
        self._ask(answer)

    def _receive(self) -> None:
        tags = self.random.choice(["*", "*", "*", "TagA"])
        group = "all" if tags == "*" else "some"
        command = Receive(
            group,
            self.random.choice(TOPICS),
            -1,
            tags,
            self.random.choice([1, 8, 32]),
            self.random.choice([10_000, 60_000]),
            self.random.random() < 0.2,
            self.random.choice([0, 5_000]),
            "client",
        )
        self._ask(Answer(command, self.clock.wall_ms()))

    def _ack(self) -> None:
        if not self.handles:
            return
        group, handle, place = self.handles.pop(self.random.randrange(len(self.handles)))
        if self.random.random() < 0.8:
            answer = Answer(Ack(group, place[0], [handle]), self.clock.wall_ms())
        else:
            wait = self.random.choice([0, 1_000, 30_000])
            answer = Answer(ChangeInvisible(group, place[0], handle, wait), self.clock.wall_ms())
        answer.notes["place"] = place
        self._ask(answer)

    def _pass_time(self) -> None:
        wait = self.broker.pending_next_ms
        if wait is not None and self.random.random() < 0.7:
            self.clock.advance(min(wait, 5_000))
        else:
            hops = [1, 50, 1_000, 10_000, 90_000, HOUR_MS, 24 * HOUR_MS, 3 * DAY_MS]
            weights = [6, 6, 6, 6, 6, 2, 1, 1]
            self.clock.advance(self.random.choices(hops, weights)[0])
        self.broker.step([])

    def _squeeze(self) -> None:
        """Leave little space, or all of it again."""
        room = self.random.choice([None, 0, 2_000, 20_000, 200_000])
        self.disk.capacity_bytes = None
        if room is not None:
            self.disk.capacity_bytes = self.disk.used_bytes() + room
        self.tell(f"space left: {room}")
        self.broker.step([])

    def _step_clock(self) -> None:
        by = self.random.choice([3_600_000, -7_200_000, -1_000, -1, 1_000])
        self.tell(f"clock steps by {by}")
        if by > 0:
            self._again.clear()  # a start after this takes what was sent before for older than it is
            self.retries.stepped()
            self.in_order.stepped()
            self.traders.stepped()
        self.late.steps_back |= by < 0
        self.clock.step_wall(by)
        self.broker.step([])

    # --- answers --------------------------------------------------------------------------------

    def _collect(self) -> None:
        self.polls.looked(self.clock.monotonic_ms())
        done = [answer for answer in self.answers if answer.done]
        waiting = [answer for answer in self.answers if not answer.done]
        self.answers = [answer for answer in waiting if not self.polls.is_given_up(answer)]
        for answer in done:
            if self.schedules.owns(answer):
                self.schedules.noted(answer, self.history.latest_ms)
            elif self.movers.owns(answer):
                self.movers.noted(answer, self.history.latest_ms)
            elif self.in_order.owns(answer):
                self.in_order.noted(answer, self.clock.monotonic_ms())
            else:
                others = (self.retries, self.giving_up, self.traders, self.late)
                other = next((each for each in others if each.owns(answer)), None)
                if other is None:
                    self._note(answer)
                else:
                    other.noted(answer)

    def _note(self, answer: Answer) -> None:
        command, result = answer.command, answer.result
        if self.readers.answered(answer):
            return
        if isinstance(command, SendMessages):
            self.history.send_answered(answer.notes["ids"], result)
        elif isinstance(command, Adopt):
            self.tell(f"  {result}")
            for message in self.loads.answered(answer):
                self.recallable.append((command.topic, message.message_id, message.due_ms))
        elif isinstance(command, Reschedule):
            self.tell(f"  reschedule of {command.message_id}: {result}")
            self.history.reschedule_answered(command, result, answer.notes["seen"])
        elif isinstance(command, RecallMany):
            self.tell(f"  {result}")
            self.history.bulk_answered(command, result, answer.notes["certain"])
        elif isinstance(result, Recalled):
            self.tell(f"  recall of {result.message_id}: {result.status}")
            self.history.recall_answered(result.message_id, result, answer.notes["seen"])
        elif isinstance(command, Receive) and isinstance(result, Received):
            self._take(command.group, command.topic, result)
        elif isinstance(command, Ack) and isinstance(result, Acked) and result.refused[0] is None:
            self.history.acked.add((command.group, *answer.notes["place"]))
        elif isinstance(command, ChangeInvisible) and isinstance(result, Changed):
            self.handles.append((command.group, result.receipt_handle, answer.notes["place"]))

    def _take(self, group: str, topic: str, result: Received) -> None:
        for message in result.messages:
            stored = layout.decode(message.layout)
            decoded = properties.decode(stored.properties)
            message_id, due = (
                decoded[properties.UNIQ_KEY],
                decoded.get(properties.TIMER_DELIVER_MS, "0"),
            )
            place = (topic, message.queue_id, message.queue_offset)
            self.history.intact(message_id, stored.body)
            self.history.received(group, place, message_id, stored.store_ms, int(due))
            self.handles.append((group, message.receipt_handle, place))
