"""The deterministic simulator: clients, faults of the disk, kills at any effect and clock steps, all by seed.

    python -m horolog.testing.simulator --seeds 10000
    python -m horolog.testing.simulator --seed 4711            # replay one, with its story

Every seed runs a whole shard (core, log, recovery) on `FaultyDisk` and checks P1, P2, P3, P7 and P8 by
`sim_checks`.  A failure prints the seed and the command that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    Recalled,
    Receive,
    Received,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk, Killed, PlainDisk
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History

START_MS = 1_700_000_000_000
TOPICS = ("orders", "gifts")


class Simulation:
    """One seed."""

    def __init__(self, seed: int, *, story: bool = False, root: Path | None = None) -> None:
        self.random = Random(seed)
        self.clock = SimulatedClock(START_MS + self.random.randrange(3_600_000))
        self.flush = self.random.choice(["sync", "sync", "sync", "interval", "os"])
        disk_seed = self.random.randrange(1 << 30)
        self.disk: FaultyDisk | PlainDisk = (
            FaultyDisk(disk_seed) if root is None else PlainDisk(root)
        )
        segment = self.random.choice([32_768, 65_536, 262_144])
        self.broker = SimBroker(self.random, self.disk, self.clock, self.flush, segment)
        self.history = History()
        self.answers: list[Answer] = []
        self.handles: list[tuple[str, str, tuple[str, int, int]]] = []
        self.recallable: list[tuple[str, str, int]] = []
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
        for topic in TOPICS:
            self.broker.ask(CreateTopic(topic, TopicType.MIXED, self.random.randint(1, 3)))
        for _ in range(self.random.randint(30, 120)):
            if self._countdown < 0 and self.random.random() < 0.05:
                self._countdown = self.random.randrange(40)
            if isinstance(self.disk, PlainDisk) and self.random.random() < 0.05:
                self._crash()  # it has no effects to be killed at
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
        self._drain()

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
        for answer in self.answers:
            if isinstance(answer.command, Recall):
                row = self.history.sends.get(answer.command.message_id)
                if row is not None:
                    row["recall_unknown"] = True
        self.answers.clear()
        if self.random.random() < 0.3:
            self.clock.advance(self.random.randrange(120_000))
        self._reopen()

    def _reopen(self) -> None:
        if self.broker.lives and self.random.random() < 0.2:
            self._countdown = self.random.randrange(30)
        while True:
            try:
                self.broker.open()
                return
            except Killed:
                power = self.flush == "sync" and self.random.random() < 0.6
                self.tell(f"killed in recovery, {'power cut' if power else 'kill -9'}")
                self.disk.crash(power_cut=power)
            except HorologError as error:
                if error.code is not ErrorCode.DISK_FULL:
                    raise
                self.tell("no space to start: somebody makes room")
                self.disk.capacity_bytes = None
                self.disk.crash(power_cut=False)

    def _act(self) -> None:
        roll = self.random.random()
        if roll < 0.30:
            self._send()
        elif roll < 0.42:
            self._recall()
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
                    + self.random.choice([1, 500, 1_000, 3_000, 3_000, 20_000, 4_000_000])
                    + self.random.choice([0, 0, self.random.randrange(2_000)])
                )
            body = bytes(self.random.choice([1, 10, 200, 3_000]))
            messages.append(
                encode(
                    topic=topic,
                    body=body,
                    message_id=message_id,
                    type=MessageType.DELAY if due else MessageType.NORMAL,
                    due_ms=due,
                    tag=self.random.choice([None, "TagA", "TagB"]),
                )
            )
            ids.append(message_id)
            self.history.sent(message_id, topic, due, now)
            if due:
                self.recallable.append((topic, message_id, due))
        self.tell(f"send {topic} {ids[0]}…{ids[-1]}")
        answer = Answer(SendMessages(topic, messages), now)
        answer.notes["ids"] = ids
        self._ask(answer)

    def _recall(self) -> None:
        topic, message_id, due = "orders", "nobody", START_MS
        if self.recallable and self.random.random() < 0.95:
            topic, message_id, due = self.random.choice(self.recallable[-60:])
        answer = Answer(Recall(topic, message_id, due), self.clock.wall_ms())
        answer.notes["seen"] = message_id in self.history.places
        self.tell(f"recall {message_id}")
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
            self.clock.advance(self.random.choice([1, 50, 1_000, 10_000, 90_000]))
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
        self.clock.step_wall(by)
        self.broker.step([])

    # --- answers --------------------------------------------------------------------------------

    def _collect(self) -> None:
        done = [answer for answer in self.answers if answer.done]
        self.answers = [answer for answer in self.answers if not answer.done]
        for answer in done:
            self._note(answer)

    def _note(self, answer: Answer) -> None:
        command, result = answer.command, answer.result
        if isinstance(command, SendMessages):
            self.history.send_answered(answer.notes["ids"], result)
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
            message_id = properties.decode(stored.properties)[properties.UNIQ_KEY]
            place = (topic, message.queue_id, message.queue_offset)
            self.history.received(group, place, message_id, stored.store_ms, self.clock.wall_ms())
            self.handles.append((group, message.receipt_handle, place))

    # --- the end --------------------------------------------------------------------------------

    def _drain(self) -> None:
        """A last crash, then let all time pass, consume everything and compare."""
        self._countdown = -1
        self.disk.on_effect = None
        self.disk.clear_faults()
        self.disk.capacity_bytes = None
        self._crash_at_end()
        latest = max((row["due_ms"] for row in self.history.sends.values()), default=0)
        self.clock.advance(max(0, latest - self.clock.wall_ms()) + 20_000)
        self.broker.settle(2_000)
        delivered: dict[tuple[str, int, int], str] = {}
        for topic in TOPICS:
            while messages := self.broker.ask(
                Receive("final", topic, -1, "*", 32, 600_000, False, 0, "final")
            ).messages:
                for message in messages:
                    stored = layout.decode(message.layout)
                    message_id = properties.decode(stored.properties)[properties.UNIQ_KEY]
                    place = (topic, message.queue_id, message.queue_offset)
                    self.history.received(
                        "final", place, message_id, stored.store_ms, self.clock.wall_ms()
                    )
                    delivered[place] = message_id
        view = self.broker.ask(DescribeBroker())
        if view.pending or view.problems:
            raise AssertionError(f"at the end {view.pending} pending, problems {view.problems}")
        self.history.final(delivered, lost_allowed=False)

    def _crash_at_end(self) -> None:
        self.disk.crash(power_cut=self.flush == "sync")
        for answer in self.answers:
            if isinstance(answer.command, Recall):
                row = self.history.sends.get(answer.command.message_id)
                if row is not None:
                    row["recall_unknown"] = True
        self.answers.clear()
        self.broker.open()


def run_seed(seed: int, *, story: bool = False, root: Path | None = None) -> str:
    """Run one seed: "" if all promises held, else the traceback.

    With `root`, an empty directory, it runs on the real disk: kills between turns, but no faults of the disk.
    """
    try:
        Simulation(seed, story=story, root=root).run()
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        return traceback.format_exc()
    return ""


def main(argv: list[str] | None = None) -> int:
    """Run seeds on all cores; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m horolog.testing.simulator", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="replay one seed and tell its story")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args(argv)
    if options.seed is not None:
        failure = run_seed(options.seed, story=True)
        print(failure or f"seed {options.seed}: all promises held")
        return 1 if failure else 0
    began = time.monotonic()
    failed = 0
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for seed, failure in zip(seeds, pool.map(run_seed, seeds, chunksize=8), strict=True):
            if failure:
                failed += 1
                print(f"seed {seed} failed\n{failure}")
                print(f"replay: python -m horolog.testing.simulator --seed {seed}\n", flush=True)
            if failed == 10:
                break
    took = time.monotonic() - began
    print(f"{options.seeds} seeds, {failed} failed, {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
