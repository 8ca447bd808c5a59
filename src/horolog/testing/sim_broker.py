"""A whole shard under simulation: core, log writer and recovery on a faulty disk, without threads.

`SimBroker` plays the part of `server.loop`: it performs effects in the stated order, but decides at
random when a write or a sync happens, so several turns may be in flight when the power fails. No
real time passes.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from random import Random
from typing import Any

from horolog.broker import relations
from horolog.broker.adopt.staging import ShardFiles
from horolog.broker.broker import Broker, Input
from horolog.broker.effects import Now, Reply
from horolog.broker.life.checkpoint_job import CheckpointJob
from horolog.broker.life.opening import Opened, ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.broker.shard import Shard
from horolog.calendar.rules import Zones
from horolog.clock import SimulatedClock
from horolog.delay.far.compaction import FarSettings
from horolog.delay.far.jobs import FarJob
from horolog.errors import ErrorCode, HorologError
from horolog.log.segment import SegmentReader, SegmentWriter, Write
from horolog.protocol.commands import Command, Delivered
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.tier_commands import LookElsewhere
from horolog.protocol.topic_commands import CreateTopic
from horolog.protocol.transaction_commands import CheckDue
from horolog.storage.api import Storage
from horolog.testing.sim_watch import HandOverWatch

DIRECTORY = "shard-00"


@dataclass(eq=False)
class Answer:
    """The outcome of one command; `result` is set when the reply was released."""

    command: Command
    _: KW_ONLY
    result: Any = None
    done: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def is_about(self, topic: str) -> bool:
        """Return whether the command makes a topic, or names it."""
        made = self.command.name if isinstance(self.command, CreateTopic) else ""
        return topic in (made, getattr(self.command, "topic", ""))


def properties_of(message: Delivered) -> dict[str, str]:
    """Return the properties of a message that was received."""
    return properties.decode(layout.decode(message.layout).properties)


class SimBroker:
    """A broker on one disk, as one life of the process after another."""

    def __init__(
        self, random: Random, disk: Storage, clock: SimulatedClock, flush: str, segment_bytes: int
    ) -> None:
        self._random = random
        self._disk = disk
        self._clock = clock
        self._flush = flush
        # Identity of the data directory
        self.meta = ShardMeta(0x5EED5EED5EED5EED, 0, segment_bytes)
        # Settings of the next life of the process
        self.settings = ShardSettings(
            turn_bytes=8_192,
            reserve_bytes=4_096,
            far=FarSettings(buffer_bytes=16_384, runs_max=3, part_runs_max=2),
            calendar=Zones(),
        )
        self.watch = HandOverWatch()
        self.place = ShardFiles(disk, DIRECTORY, self.meta.log_id)
        self.lives = 0
        self.reports: list[str] = []
        self.problems: list[str] = []  # problems, as the log of the process would name them
        # Checks of transactions, since the caller last took them
        self.checks_due: list[CheckDue] = []
        self.given_up: list[str] = []  # transactions that were given up
        self._opened: Opened | None = None
        self.checks = Random(segment_bytes)  # of its own: it does not change a story
        self.rows_share = 0.1  # share of the steps after which every message is checked

    @property
    def clock(self) -> SimulatedClock:
        """The clock of this broker."""
        return self._clock

    def twin(self, disk: Storage) -> SimBroker:
        """Return a broker to open on a copy of the disk; its clock begins at this one's time."""
        clock = SimulatedClock(self._clock.wall_ms())
        made = SimBroker(Random(0), disk, clock, "sync", self.meta.segment_bytes)
        made.settings = self.settings
        return made

    def open(self) -> None:
        """Recover; raise what recovery raises, or whatever the disk's hook raises."""
        self._opened = None
        opened = open_shard(
            self._disk,
            DIRECTORY,
            self.meta,
            self.settings,
            wall_ms=self._clock.wall_ms(),
            mono_ms=self._clock.monotonic_ms(),
        )
        self._opened = opened
        self.lives += 1
        self.reports += opened.report
        self._commit = self._durable = opened.broker.shard.log.end
        self._unwritten: list[Write] = []
        self._end = self._commit
        self._held: list[tuple[int, Reply]] = []
        self._job: CheckpointJob | None = None
        self._far_job: FarJob | None = None
        self._next_in: int | None = 0
        self._checked: tuple[int, ...] = ()  # times and positions at the last step that was checked
        self._jobs_done = 0
        # The first frame of this life
        self.watch.new_life(opened.broker.shard.log.last_frame, self._head_at)

    def _head_at(self, position: int) -> bytes:
        reader = SegmentReader(self._disk, f"{DIRECTORY}/log", self.meta.segment_bytes)
        try:
            return reader.bytes_at(position, 16)
        except HorologError:
            return b""  # retention has dropped it
        finally:
            reader.close()

    @property
    def core(self) -> Broker:
        """The core of the present life."""
        assert self._opened is not None
        return self._opened.broker

    @property
    def writer(self) -> SegmentWriter:
        """The log writer of the present life."""
        assert self._opened is not None
        return self._opened.writer

    @property
    def shard(self) -> Shard:
        """The state of the present life."""
        return self.core.shard

    @property
    def durable(self) -> int:
        """Log position below which everything was synced."""
        return self._durable

    @property
    def committed(self) -> int:
        """Log position below which nothing is lost by the faults of this flush policy."""
        return self._commit

    @property
    def end(self) -> int:
        """End of the log as the last step left it."""
        return self._end

    @property
    def pending_next_ms(self) -> int | None:
        """Milliseconds until the core wants a turn; 0: at once; None: never."""
        return self._next_in

    def step(self, answers: list[Answer]) -> None:
        """Run one turn with these commands, then perhaps some of the disk's work."""
        core = self.core
        wall = self._clock.wall_ms()
        now = Now(wall, self._clock.monotonic_ms())
        inputs = [Input(answer, answer.command) for answer in answers]
        effects = core.begin_turn(inputs, now, commit=self._commit, durable=self._durable)
        early = effects.prompt.copy()
        for reply in early:
            self._release(reply)
        self._release_held()
        core.finish_turn(now, effects)
        self.watch.see(effects.writes, wall)
        is_busy = bool(answers or effects.writes or effects.replies or effects.prompt)
        self._check_after(is_busy, (wall, self._commit, self._durable, self._jobs_done))
        self.problems += effects.problems
        self.checks_due += effects.checks
        self.given_up += effects.given_up
        for reply in effects.prompt[len(early) :]:
            self._release(reply)
        self._unwritten += effects.writes
        self._end = effects.end
        self._held += [(effects.end, reply) for reply in effects.replies]
        if effects.checkpoint is not None:
            self._job = effects.checkpoint
        self._release_held()
        waits = [ms for ms in (effects.wake_in_ms, effects.due_in_ms) if ms is not None]
        self._next_in = min(waits) if waits else None
        if self._random.random() < 0.7:
            self.work_disk()
        if self._job is not None and self._random.random() < 0.5:
            self._finish_checkpoint()
        if effects.job is not None:
            self._far_job = effects.job
        if self._far_job is not None and self._random.random() < 0.5:
            self._make_runs()

    def _check_after(self, is_busy: bool, now: tuple[int, ...]) -> None:
        """Check the invariants after a step, but only sometimes after one without any effect.

        now  wall time, commit and durable position, and count of jobs done
        """
        rows = self.checks.random() < self.rows_share
        if rows or is_busy or now != self._checked:
            self.check_invariants(rows=rows)
            self._checked = now

    def check_invariants(self, *, rows: bool) -> None:
        """Check what must hold between two steps; with `rows` also for every message."""
        self.core.check_invariants()
        if rows:
            relations.check_rows(self.shard)

    def work_disk(self) -> None:
        """Write the gathered bytes, sync by the flush policy, then move the commit position."""
        writer, disk = self.writer, self.core.disk
        writes, self._unwritten = self._unwritten, []
        writer.keep_free = disk.keep_free
        end = self._end
        writer.write(writes)
        sync = self._flush == "sync" or (self._flush == "interval" and self._random.random() < 0.2)
        if sync:
            writer.sync()
            self._durable = end
        self._commit = end
        if writer.wants_next and self._random.random() < 0.5:
            writer.prepare_next()
        disk.is_confined = writer.is_confined

    def _finish_checkpoint(self) -> None:
        assert self._job is not None
        job, self._job = self._job, None
        self._next_in = 0  # the end of a job brings a turn
        self._jobs_done += 1
        try:
            job.carry_out(self._disk)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            self.core.checkpoints.failed()
            return
        self.core.checkpoints.done(job.checkpoint.position)

    def _make_runs(self) -> None:
        assert self._far_job is not None
        job, self._far_job = self._far_job, None
        self._next_in = 0
        self._jobs_done += 1
        try:
            job.carry_out(self._disk)
        except HorologError as error:
            if error.fatal:
                raise
            self.core.job_failed()
            return
        self.core.job_done()

    def request_checkpoint(self) -> None:
        """Ask for a checkpoint at the next turn."""
        self.core.checkpoints.request()

    def settle(self, turns: int = 200) -> None:
        """Run turns without commands until nothing is in flight and nothing is due."""
        for _ in range(turns):
            self.step([])
            self.work_disk()
            if self._job is not None:
                self._finish_checkpoint()
            if self._far_job is not None:
                self._make_runs()
            if self._at_rest():
                self.step([])
                if self._at_rest():
                    return
        raise AssertionError(f"the broker does not come to rest: next turn in {self._next_in} ms")

    def _at_rest(self) -> bool:
        # If not, the end of a write brings a turn.
        is_committed = self.shard.log.commit_position == self._end
        return self._next_in != 0 and is_committed and not self._held and self._job is None

    def _release_held(self) -> None:
        while self._held and self._held[0][0] <= self._commit:
            self._release(self._held.pop(0)[1])

    @staticmethod
    def _release(reply: Reply) -> None:
        answer = reply.token
        assert isinstance(answer, Answer)
        result = reply.result  # a simulation reads no tier
        answer.result = result.refusal if isinstance(result, LookElsewhere) else result
        answer.done = True

    def ask(self, command: Command) -> Any:
        """Submit a command, settle everything, and return its result; raise a refusal."""
        answer = Answer(command)
        self.step([answer])
        self.settle()
        assert answer.done, command
        if isinstance(answer.result, HorologError):
            raise answer.result
        return answer.result
