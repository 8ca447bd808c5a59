"""The simulated story of one seed: clients, Spark jobs, disk faults, kills and clock steps."""

from __future__ import annotations

from pathlib import Path
from random import Random

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import Adopt
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    Recall,
    RecallMany,
    Reschedule,
    TopicSettings,
    TopicType,
)
from horolog.testing import sim_end
from horolog.testing.disk import FaultyDisk, Killed
from horolog.testing.plain_disk import PlainDisk
from horolog.testing.sim_adoptions import Loads
from horolog.testing.sim_backoff import BackOffs
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History
from horolog.testing.sim_clients import START_MS, TOPICS, Clients
from horolog.testing.sim_dead_letters import GivingUp
from horolog.testing.sim_lake import LakeJobs
from horolog.testing.sim_late import Perishables
from horolog.testing.sim_levels import Levels
from horolog.testing.sim_moves import Movers
from horolog.testing.sim_order import InOrder
from horolog.testing.sim_polls import QUIET, Polls
from horolog.testing.sim_readers import Readers
from horolog.testing.sim_retries import Retries
from horolog.testing.sim_rot import Rot
from horolog.testing.sim_schedules import Schedules
from horolog.testing.sim_transactions import Traders


class Simulation:
    """The simulation of one seed."""

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
        keep = Random(seed + 1)  # of its own: it does not change the story
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
        self.late = Perishables(seed + 13, self.broker)
        self.levels = Levels(seed + 8)
        world = self.random, self.broker, self.clock, self.history
        self.clients = Clients(*world, self.levels, self.tell)
        self.readers = Readers(seed + 9, self.broker, self.history)
        self.schedules = Schedules(seed + 17, self.broker)
        self.movers = Movers(seed + 18, self.broker)
        self.back_offs = BackOffs(seed + 19, self.broker, self.clock, may_rot=rot)
        self.rot: Rot | None = None
        if rot and isinstance(self.disk, FaultyDisk):
            self.rot = Rot(seed + 6, self.broker, self.history, self.disk)
            self.lake.share = 0  # nothing else checks the bytes that it reads
        rotten = () if self.rot is None else self.rot.keys
        self.traders = Traders(seed + 14, self.broker, rotten)
        self.answers: list[Answer] = []
        self.topics = TOPICS
        self._story = story
        self._countdown = -1

    def tell(self, what: str) -> None:
        """Print a line of the story, if it was asked for."""
        if self._story:
            print(f"{self.clock.wall_ms() - START_MS:>9} {what}")

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run everything, from an empty disk to the final comparison; raise the first fault."""
        self.disk.on_effect = self._effect
        self._reopen()
        several = TopicSettings(multi_tag=True)  # for every other topic
        for i, topic in enumerate(TOPICS):
            queues, settings = self.random.randint(1, 3), several if i % 2 else None
            self.broker.ask(CreateTopic(topic, TopicType.MIXED, queues, settings))
        self.broker.ask(CreateTopic(QUIET, TopicType.MIXED, 2))
        self.schedules.begin()
        for _ in range(self.random.randint(30, 120)):
            if self._countdown < 0 and self.random.random() < 0.05:
                self._countdown = self.random.randrange(40)
            if isinstance(self.disk, PlainDisk) and self.random.random() < 0.05:
                self._crash()  # it has no effects at which to kill
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
        """Note that the broker has died, so that the outcome of these commands is unknown."""
        for command in [answer.command for answer in self.answers]:
            if isinstance(command, Recall) and command.message_id in self.history.messages:
                self.history.messages[command.message_id]["recall_unknown"] = True
            elif isinstance(command, RecallMany):
                self.history.bulk_lost(command)
        self.back_offs.lost(self.answers)
        self.answers.clear()
        self.loads.lost()
        self.polls.lost()

    def _reopen(self) -> None:
        if self.broker.lives and self.random.random() < 0.2:
            self._countdown = self.random.randrange(30)
        self.open()

    def open(self) -> None:
        """Start, also after kills in recovery; make room and restore rotten bytes if need be."""
        while True:
            try:
                self.broker.open()
                self.back_offs.opened()
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
        """Let at most one of the other clients act; return whether one did."""
        others = (
            self.polls,
            self.retries,
            self.giving_up,
            self.in_order,
            self.traders,
            self.late,
            self.movers,
            self.back_offs,
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
        if self.rot is not None and self.rot.wants_turn():
            self.tell(self.rot.turn())
        elif self.loads.wants_turn():
            commit = self.loads.next(TOPICS, self.clock.wall_ms())
            if commit is not None:
                self.tell(f"commit load {commit.notes['load'].version}")
                self._ask(commit)
        elif self.lake.wants_turn():
            self._work_on_lake()
        else:
            return False
        return True

    def _work_on_lake(self) -> None:
        change, event = self.lake.turn(self.clock.wall_ms())
        self.tell(f"lake: {event}")
        if change is not None:
            self.clients.touched |= change.notes["ids"]
            if isinstance(command := change.command, Reschedule):
                moved = command.topic, command.message_id, command.new_due_ms
                self.clients.recallable.append(moved)
            self._ask(change)

    def _act(self) -> None:
        if self._let_others_act():
            return
        roll = self.random.random()
        if roll < 0.29 or not self.clients.recallable:
            self._ask(self.clients.send())
        elif roll < 0.38:
            self._ask(self.clients.recall())
        elif roll < 0.42:
            self._ask(self.clients.reschedule())
        elif roll < 0.435:
            self._ask(self.clients.recall_many())
        elif roll < 0.57:
            self._ask(self.clients.receive())
        elif roll < 0.67:
            if (acknowledged := self.clients.ack()) is not None:
                self._ask(acknowledged)
        elif roll < 0.88:
            self._pass_time()
        elif roll < 0.91:
            self._step_clock()
        elif roll < 0.94:
            self.broker.request_checkpoint()
            self.broker.step([])
        elif roll < 0.955:
            self._squeeze()
        elif roll < 0.97:
            self.disk.fail_next(self.random.choice(["write", "sync"]))
            self._ask(self.clients.send())
        else:
            self._ask(Answer(CountPending()))

    def _ask(self, *answers: Answer) -> None:
        self.answers += answers
        self.broker.step(list(answers))

    # --- time and disk ---------------------------------------------------------------------------

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
        """Leave little space on the disk, or free all of it again."""
        room = self.random.choice([None, 0, 2_000, 20_000, 200_000])
        self.disk.capacity_bytes = None
        if room is not None:
            self.back_offs.squeezed()
            self.disk.capacity_bytes = self.disk.used_bytes() + room
        self.tell(f"space left: {room}")
        self.broker.step([])

    def _step_clock(self) -> None:
        by = self.random.choice([3_600_000, -7_200_000, -1_000, -1, 1_000])
        self.tell(f"clock steps by {by}")
        if by > 0:
            self.clients.stepped()
            self.retries.stepped()
            self.in_order.stepped()
            self.traders.stepped()
        self.late.steps_back |= by < 0
        self.back_offs.steps_back |= by < 0
        self.clock.step_wall(by)
        self.broker.step([])

    # --- answers --------------------------------------------------------------------------------

    def _collect(self) -> None:
        self.polls.looked(self.clock.monotonic_ms())
        done = [answer for answer in self.answers if answer.done]
        waiting = [answer for answer in self.answers if not answer.done]
        self.answers = [answer for answer in waiting if not self.polls.is_given_up(answer)]
        try:
            while done:
                self._take_answer(done.pop(0))
        finally:
            self.answers += done  # a load was killed at its end: these are not noted yet

    def _take_answer(self, answer: Answer) -> None:
        """Pass an answer to the client that has asked; each notes what it knows from then on."""
        if self.schedules.owns(answer):
            self.schedules.noted(answer, self.history.latest_ms)
        elif self.movers.owns(answer):
            self.movers.noted(answer, self.history.latest_ms)
        elif self.in_order.owns(answer):
            self.in_order.noted(answer, self.clock.monotonic_ms())
        else:
            others = (self.retries, self.giving_up, self.traders, self.late, self.back_offs)
            other = next((each for each in others if each.owns(answer)), None)
            if other is not None:
                other.noted(answer)
            elif not self.readers.answered(answer):
                self._noted(answer)

    def _noted(self, answer: Answer) -> None:
        command = answer.command
        if isinstance(command, Adopt):
            self.tell(f"  {answer.result}")
            for message in self.loads.answered(answer):
                row = command.topic, message.message_id, message.due_ms
                self.clients.recallable.append(row)
        else:
            self.clients.noted(answer)
