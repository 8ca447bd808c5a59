"""Memory, start-up and cost by what is pending: `python -m benchmarks.scale --pending 10000 1000000`.

For each number of pending messages, spread over a year from two days ahead:

fill      written through the core's own run writer (bodies of 16 bytes), as runs of at most 128 MiB, and named
          by a checkpoint; so that 10⁸ take minutes, not hours
ready     seconds from the start of `horolog serve` to its ready line, after `kill -9`
memory    anonymous memory of that process (RssAnon), and above that of a broker with nothing pending
schedule  microseconds for one more scheduled message, batches of 32 through the core
recall    microseconds for one recall by id and due time, each through the core
files     open file descriptors and mapped files

Results go to docs/benchmarks/scale.json, the plot to docs/benchmarks/scale.png.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.load import TOPIC, send_all
from benchmarks.memory import memory_mb
from horolog.delay.entry import ENTRY, record_crcs
from horolog.delay.far.run import FarRun
from horolog.delay.run.writer import RunWriter
from horolog.limits import DAY_MS
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.protocol.commands import CreateTopic, MessageType, Recall, TopicType
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "benchmarks"
WORK = ROOT / "build" / "scale"
RUN_ROWS = 1_250_000  # in one file
YEAR_MS = 365 * DAY_MS
Result = dict[str, Any]


def message_id(number: int) -> str:
    """As official clients make them: 34 characters."""
    return f"01AABBCCDDEEFF{number:020X}"


def due_of(start_ms: int, number: int) -> int:
    """Spread over a year, in no order."""
    return start_ms + number * 7_919_000_003 % YEAR_MS


class Rows:
    """Records and entries of many messages, made from one by patching what differs."""

    def __init__(self, start_ms: int, topic: int) -> None:
        self.start_ms = start_ms
        self.topic = topic
        made = encode(
            topic=TOPIC,
            body=b"b" * 16,
            message_id=message_id(0),
            type=MessageType.DELAY,
            due_ms=start_ms,
            born_ms=start_ms,
        )
        self.template = np.frombuffer(made.record, np.uint8).copy()
        self.id_at = made.record.index(message_id(0).encode())
        self.due_at = made.record.index(str(start_ms).encode())
        self.size = len(made.record)

    def make(self, numbers: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
        """ENTRY rows sorted by (due time, origin), and their records."""
        due = self.start_ms + numbers * 7_919_000_003 % YEAR_MS
        order = np.lexsort((numbers, due))
        numbers, due = numbers[order], due[order]
        ids = np.array([message_id(n) for n in numbers.tolist()], "S34")
        digits = due.astype("S13")
        keys = np.array([key_hash(TOPIC, x.decode()) for x in ids.tolist()], np.uint64)
        raw = np.tile(self.template, (len(numbers), 1))
        raw[:, self.id_at : self.id_at + 34] = ids.view(np.uint8).reshape(-1, 34)
        raw[:, self.due_at : self.due_at + 13] = digits.view(np.uint8).reshape(-1, 13)
        heads = np.zeros(len(numbers), HEAD)
        heads["size"], heads["kind"], heads["due_ms"] = self.size, Kind.SCHEDULED, due
        heads["topic"], heads["key"] = self.topic, keys
        raw[:, :HEAD_BYTES] = heads.view(np.uint8).reshape(-1, HEAD_BYTES)
        content = raw.tobytes()
        records = [content[at : at + self.size] for at in range(0, len(content), self.size)]
        entries = np.zeros(len(numbers), ENTRY)
        entries["size"], entries["due_ms"], entries["topic"] = self.size, due, self.topic
        entries["origin"], entries["key"] = numbers.astype(np.uint64), keys
        entries["crc"] = record_crcs(records, entries["origin"])
        return entries, records


async def fill(directory: Path, pending: int) -> Result:
    """Make a data directory with that many far messages; their origins are made up, below the log's end."""
    shutil.rmtree(directory, ignore_errors=True)
    engine = await open_engine(directory)
    await engine.submit(CreateTopic(TOPIC, TopicType.DELAY, 4))
    shard = engine.broker.shard
    far = shard.delay.far
    start_ms = engine.clock.wall_ms() + 2 * DAY_MS
    rows = Rows(start_ms, shard.topics.by_name[TOPIC].id)
    began = time.perf_counter()
    # as merges leave them: stretches of time, each with up to 4 runs that overlap
    runs = max(1, -(-pending // RUN_ROWS))
    overlap = min(4, runs)  # so that none of the months is so crowded that it would be merged now
    runs -= runs % overlap
    every = np.arange(pending, dtype=np.int64)
    places = (every * 7_919_000_003 % YEAR_MS) * (runs // overlap) // YEAR_MS * overlap
    places += every % overlap
    order = np.argsort(places, kind="stable")
    cuts = np.searchsorted(places[order], np.arange(runs + 1))
    for number in range(runs):
        mine = order[cuts[number] : cuts[number + 1]]
        if not len(mine):
            continue
        name = f"{far.take_file_id():010d}"
        writer = RunWriter(
            engine.storage, far.directory, name, log_id=shard.log.log_id, rows=len(mine)
        )
        # a slice of time after the other, since the writer wants its rows in order
        entries, records = rows.make(mine)
        for at in range(0, len(mine), 65_536):
            writer.add(entries[at : at + 65_536], records[at : at + 65_536])
        info = writer.finish()
        far.runs[name] = FarRun(info, far.take_source_id(), 1, far.open_run)
    engine.storage.sync_dir(far.directory)
    far.forget_next_waiting()
    took = time.perf_counter() - began
    await engine.checkpoint()
    await engine.stop()
    size = sum(f.stat().st_size for f in (directory / "shard-00" / "runs").iterdir())
    return {"start_ms": start_ms, "fill_s": round(took, 1), "runs": runs, "bytes": size}


def serve(directory: Path) -> tuple[subprocess.Popen[bytes], float]:
    """Start a broker; gives the seconds to its ready line."""
    horolog = Path(sys.executable).with_name("horolog")
    command = [str(horolog), "serve", "--data-dir", str(directory), "--grpc-port", "0"]
    began = time.perf_counter()
    broker = subprocess.Popen(
        [*command, "--admin-port", "0", "--no-remoting"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert broker.stdout is not None
    broker.stdout.readline()
    return broker, time.perf_counter() - began


def status_of(pid: int) -> Result:
    """Anonymous memory in MB, open descriptors and mapped files."""
    maps = Path(f"/proc/{pid}/maps").read_text().count(".run")
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"anon_mb": round(memory_mb(pid), 1), "descriptors": descriptors, "mapped_runs": maps}


def ready(directory: Path) -> Result:
    """Start, kill -9, and start again: what the second start takes, and what it holds."""
    broker, _ = serve(directory)
    broker.kill()
    broker.wait()
    broker, took = serve(directory)
    found = status_of(broker.pid)
    broker.kill()
    broker.wait()
    return {"ready_s": round(took, 2), **found}


async def cost(directory: Path, pending: int, start_ms: int) -> Result:
    """Microseconds of scheduling and of recalling one message, in process."""
    engine = await open_engine(directory)
    n = 20_000
    began = time.perf_counter()
    await send_all(engine, n, lambda i: start_ms + i * 7_919_003 % YEAR_MS)
    schedule_us = (time.perf_counter() - began) / n * 1e6
    rng = np.random.default_rng(7)
    chosen = rng.choice(pending, min(2_000, pending // 2), replace=False).tolist()
    recall_us = await _recalls(engine, chosen, start_ms)
    first_us, rest_us = recall_us
    await engine.stop()
    return {
        "schedule_us": round(schedule_us, 1),
        "recall_us": round(rest_us, 1),
        "recall_first_us": round(first_us, 1),
    }


async def _recalls(engine: Engine, numbers: list[int], start_ms: int) -> tuple[float, float]:
    """(first half, second half): in the first one the files are still to be mapped and checked."""
    half = len(numbers) // 2
    figures = []
    for part in (numbers[:half], numbers[half:]):
        began = time.perf_counter()
        asked = [engine.submit(Recall(TOPIC, message_id(n), due_of(start_ms, n))) for n in part]
        answers = await asyncio.gather(*asked)
        figures.append((time.perf_counter() - began) / len(part) * 1e6)
        assert all(answer.status.value == "CANCELLED" for answer in answers)
    return figures[0], figures[1]


def plot(rows: list[Result]) -> None:
    """Memory, start-up and costs over what is pending."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    pending = [row["pending"] for row in rows]
    left.plot(pending, [row["anon_mb"] for row in rows], "o-", label="horolog")
    left.axhspan(3_300, 5_000, color="#a0aec0", alpha=0.4, label="RocketMQ 5.5.0, 10⁶ pending")
    left.set_yscale("log")
    left.set_title("anonymous memory, MB")
    middle.plot(pending, [row["ready_s"] for row in rows], "o-", label="horolog")
    middle.axhline(7.6, color="#a0aec0", label="RocketMQ 5.5.0, 10⁶ pending")
    middle.set_ylim(0, 9)
    middle.set_title("ready after kill −9, seconds")
    right.plot(pending, [row["schedule_us"] for row in rows], "o-", label="schedule one")
    right.plot(pending, [row["recall_us"] for row in rows], "o-", label="recall one")
    right.set_ylim(0)
    right.set_title("cost, microseconds")
    for axis in (left, middle, right):
        axis.set_xscale("log")
        axis.set_xlabel("pending messages")
        axis.legend()
    figure.tight_layout()
    figure.savefig(OUT / "scale.png", dpi=110)


def main() -> int:
    """Measure each number of pending messages, then plot."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--pending", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    rows = []
    for pending in options.pending:
        directory = WORK / str(pending)
        filled = uvloop.run(fill(directory, pending))
        row = {"pending": pending, **filled, **ready(directory)}
        row |= uvloop.run(cost(directory, pending, filled["start_ms"]))
        shutil.rmtree(directory, ignore_errors=True)
        print(json.dumps(row), flush=True)
        rows.append(row)
    if not options.no_plot:
        (OUT / "scale.json").write_text(json.dumps(rows, indent=2) + "\n")
        plot(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
