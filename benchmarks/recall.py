"""Measure recalls: `python -m benchmarks.recall --sizes 10000 100000 1000000`.

Through the whole core (`Broker.step`) on the disk that holds build/, without syncs; files are in the page cache.
Time is CPU time of the one thread that does it all.  Messages of 200 bytes, a tenth of them with the tag "x", due within three hours ("near")
or over two weeks ("far": far buffer and runs, made before anything is measured).

schedule  µs for one message, of 320 that come in one turn
recall    µs for one recall by id and due time, of 100 in one turn; and of one that has a turn of its own
bulk      messages a second of a dry run, of a bulk recall by tag, and of one of all the rest, until it is applied;
          and the longest turn in ms
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import load
from benchmarks.load import TOPIC
from horolog.broker.broker import Input
from horolog.broker.life.opening import ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.limits import DAY_MS, HOUR_MS, SEGMENT_BYTES
from horolog.protocol.commands import (
    Command,
    CreateTopic,
    NewMessage,
    Recall,
    RecallMany,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.storage.disk import Disk

WORK = Path(__file__).resolve().parents[1] / "build" / "bench" / "recall"
NOW_MS = 1_772_964_000_000
EVER_MS = 1 << 52
SPANS = {"near": (HOUR_MS, 3 * HOUR_MS), "far": (2 * DAY_MS, 14 * DAY_MS)}


class Core:
    """A shard whose turns, writes and jobs are done one after the other."""

    def __init__(self, dedup_ms: int = 0) -> None:
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir(parents=True)
        self.disk = Disk(WORK)
        self.opened = open_shard(
            self.disk,
            "shard-00",
            ShardMeta(7, 0, SEGMENT_BYTES),
            ShardSettings(dedup_ms=dedup_ms),
            wall_ms=NOW_MS,
            mono_ms=0,
        )
        self.mono_ms = 0
        self.longest_ms = 0.0

    def turn(self, commands: list[Command], tokens: list[Any] | None = None) -> list[Any]:
        """One turn and its writes; the results of these and earlier commands that are ready."""
        tokens = tokens or [object() for _ in commands]
        log = self.opened.broker.shard.log
        self.mono_ms += 1
        began = time.thread_time()
        effects = self.opened.broker.step(
            [Input(*each) for each in zip(tokens, commands, strict=True)],
            wall_ms=NOW_MS,
            mono_ms=self.mono_ms,
            commit=log.end,
            durable=log.end,
        )
        self.longest_ms = max(self.longest_ms, (time.thread_time() - began) * 1_000)
        self.opened.writer.write(effects.writes)
        if self.opened.writer.wants_next:
            self.opened.writer.prepare_next()
        if effects.checkpoint is not None:
            effects.checkpoint.carry_out(self.disk)
            self.opened.broker.checkpoints.done(effects.checkpoint.checkpoint.position)
        if effects.job is not None:
            effects.job.carry_out(self.disk)
            self.opened.broker.job_done()
        return [reply.result for reply in [*effects.prompt, *effects.replies]]

    def ask(self, command: Command) -> Any:
        """The result of one command that may need many turns."""
        results = self.turn([command])
        while not results:
            results = self.turn([])
        self.turn([])
        return results[0]

    def rest_of_turns(self) -> None:
        """A few turns without commands, in which nothing is new."""
        for _ in range(5):
            self.turn([])

    def rest(self) -> None:
        """Make a checkpoint and all runs that are due, so that nothing of it falls into a measurement."""
        for turns in range(12):
            self.mono_ms += 2_000
            if turns < 6:
                self.opened.broker.checkpoints.request()
            self.turn([])


def message(number: int, due_ms: int) -> NewMessage:
    """Every tenth one has a tag."""
    return load.message(number, due_ms, None if number % 10 else "x")


def measure(where: str, n: int) -> dict[str, Any]:
    """All figures with n messages pending."""
    core, random = Core(), Random(n)
    core.ask(CreateTopic(TOPIC, TopicType.DELAY, 4))
    first, span = SPANS[where]
    dues = [NOW_MS + first + random.randrange(span) for _ in range(n)]
    for at in range(0, n, 640):
        messages = [message(i, dues[i]) for i in range(at, min(n, at + 640))]
        core.turn([SendMessages(TOPIC, messages)])
    core.rest()
    result: dict[str, Any] = {"where": where, "pending": n, "schedule_us": _schedule(core, n, dues)}
    for together in (100, 1):
        names = [random.randrange(n) for _ in range(1_000)]
        recalls = [Recall(TOPIC, message(i, dues[i]).message_id, dues[i]) for i in names]
        result[f"recall_us_{together}_a_turn"] = _recall(core, recalls, together)
    core.rest()
    for name, command in (
        ("dry_run", RecallMany(TOPIC, 0, EVER_MS, dry_run=True)),
        ("by_tag", RecallMany(TOPIC, 0, EVER_MS, tag="x")),
        ("all", RecallMany(TOPIC, 0, EVER_MS)),
    ):
        core.longest_ms = 0
        began = time.thread_time()
        done = core.ask(command)
        took = time.thread_time() - began
        result[f"bulk_{name}"] = {
            "messages": done.matched,
            "a_second": round(done.matched / took),
            "longest_turn_ms": round(core.longest_ms, 1),
        }
    assert core.opened.broker.shard.delay.waiting == 0
    core.opened.broker.shard.close()
    shutil.rmtree(WORK)
    return result


def _schedule(core: Core, n: int, dues: list[int]) -> float:
    turns = [
        [
            SendMessages(TOPIC, [message(n + at + i, dues[at + i]) for i in range(j, j + 32)])
            for j in range(0, 320, 32)
        ]
        for at in range(0, 6_400, 320)
    ]
    began = time.thread_time()
    for commands in turns:
        core.turn(list(commands))
    core.turn([])
    return round((time.thread_time() - began) * 1e6 / 6_400, 2)


def _recall(core: Core, recalls: list[Recall], together: int) -> float:
    began = time.thread_time()
    results = []
    for at in range(0, len(recalls), together):
        results += core.turn(list(recalls[at : at + together]))
    core.turn([])
    took = time.thread_time() - began
    assert sum(each.status is RecallStatus.CANCELLED for each in results) > len(recalls) // 2
    return round(took * 1e6 / len(recalls), 1)


def main() -> None:
    """One line of JSON for each place and size."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    for n in parser.parse_args().sizes:
        for where in SPANS:
            print(json.dumps(measure(where, n)), flush=True)


if __name__ == "__main__":
    main()
