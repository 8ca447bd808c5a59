"""Measure the spine and draw it: `make bench`, or `python -m benchmarks --only lateness --n 100000`.

schedule   scheduled messages a second through the core, batches of 32, each answered after its fsync
year       the same over a year, 12 times as many, until runs are written and merged
hand_over  messages a second when all are due in the same second
lateness   store time − due at 5 000 and 50 000 due a second, while sends go on
wire       what clients see over gRPC and remoting, and CPU time of the broker a message (`benchmarks.wire`)
filters    messages that filters of consumers look at a second (`benchmarks.filters`)
ready      seconds from the start of `horolog serve` to its ready line after kill −9, 10⁶ pending

Everything with bodies of 200 bytes and flush sync.  Results go to docs/benchmarks/results.json and spine.png.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.filters import filters
from benchmarks.load import (
    WORK,
    Lateness,
    message,
    running,
    schedule,
    send_all,
    until_handed_over,
)
from benchmarks.memory import memory_mb
from benchmarks.plot import plot
from benchmarks.wire import wire
from horolog.limits import DAY_MS
from horolog.protocol.commands import DescribeBroker, SendMessages

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "benchmarks"
WIRE_PART = 5  # messages over the wire are so many times fewer
Result = dict[str, Any]


async def year(n: int) -> Result:
    """Throughput of scheduling over a year, until every run is written and merged, and the memory it takes."""
    async with running(WORK / "year") as engine:
        start = engine.clock.wall_ms() + 2 * DAY_MS
        began = time.perf_counter()
        await send_all(engine, n, lambda i: start + i * 7_919_000_003 % (365 * DAY_MS))
        sent = time.perf_counter() - began
        far = engine.broker.shard.delay.far
        while far.compaction.job is not None or far.compaction.wants_flush:
            await asyncio.sleep(0.05)
        took = time.perf_counter() - began
        merged = sum(run.level for run in far.runs.values())
        view = await engine.submit(DescribeBroker())
        anon = int(memory_mb(os.getpid()))
    return {
        "messages": n,
        "per_second": round(n / took),
        "seconds_until_sent": round(sent, 1),
        "seconds_until_merged": round(took, 1),
        "runs_from_merges": merged,
        "pending": view.pending,
        "anonymous_mb": anon,
    }


async def hand_over(n: int) -> Result:
    """Throughput of hand-over: n messages due in one second."""
    async with running(WORK / "hand-over") as engine:
        due = (engine.clock.wall_ms() // 1000 + 12 + n // 60_000) * 1000
        with Lateness(engine) as lateness:
            await send_all(engine, n, lambda i: due + i % 1000)
            await until_handed_over(engine, n)
            took = engine.clock.wall_ms() - due
        late = np.concatenate(lateness.columns)
    return {
        "messages": n,
        "per_second": round(n / took * 1000),
        "seconds_from_due_to_last_commit": took / 1000,
        "early": int((late < 0).sum()),
    }


async def lateness(rate: int, seconds: int) -> Result:
    """Lateness at a steady rate of due messages, sends of the same rate going on all the time."""
    async with running(WORK / "lateness") as engine:
        n = rate * seconds
        begin = engine.clock.wall_ms() + 3_000
        with Lateness(engine) as collected:
            sent = 0
            while sent < n:
                batch = [
                    message(i, begin + i * 1000 // rate) for i in range(sent, min(sent + 32, n))
                ]
                engine.submit(SendMessages("bench", batch))
                sent += len(batch)
                ahead = sent * 1000 / rate - (engine.clock.wall_ms() - begin + 2_500)
                if ahead > 0:
                    await asyncio.sleep(ahead / 1000)
                elif sent % (32 * 32) == 0:
                    await asyncio.sleep(0)
            too_late = await until_handed_over(engine, n)
        late = np.concatenate(collected.columns)
    p50, p99, top = np.percentile(late, [50, 99, 100]).tolist()
    return {
        "due_per_second": rate,
        "messages": n,
        "sent_too_late": too_late,
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": top,
        "early": int((late < 0).sum()),
        "histogram": np.bincount(np.clip(late, 0, 50), minlength=51).tolist(),
    }


def ready(n: int) -> Result:
    """Kill a broker that holds n pending messages, start `horolog serve`, and time its ready line."""
    directory = WORK / "ready"
    shutil.rmtree(directory, ignore_errors=True)
    code = (
        "import asyncio, sys, uvloop\n"
        "from pathlib import Path\n"
        "from benchmarks.load import running, send_all\n"
        "async def main():\n"
        f"    async with running(Path({str(directory)!r})) as engine:\n"
        "        due = engine.clock.wall_ms() + 3_600_000\n"
        f"        await send_all(engine, {n}, lambda i: due + i % 36_000_000)\n"
        "        print('sent', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "uvloop.run(main())\n"
    )
    filler = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert filler.stdout is not None
    filler.stdout.readline()
    filler.send_signal(signal.SIGKILL)
    filler.wait()
    began = time.perf_counter()
    horolog = Path(sys.executable).with_name("horolog")
    command = [
        str(horolog),
        "serve",
        "--data-dir",
        str(directory),
        "--grpc-port",
        "0",
        "--admin-port",
        "0",
        "--no-remoting",
    ]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert broker.stdout is not None
    broker.stdout.readline()
    took = time.perf_counter() - began
    rss = int(memory_mb(broker.pid, "VmRSS"))
    broker.kill()
    broker.wait()
    shutil.rmtree(directory, ignore_errors=True)
    return {"pending": n, "seconds": round(took, 2), "rss_mb": rss}


def main() -> int:
    """Run what was asked for; without --only everything, and then the plot."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.partition("\n")[0]
    )
    parts_known = ["schedule", "year", "hand_over", "lateness", "wire", "filters", "ready"]
    parser.add_argument("--only", choices=parts_known)
    parser.add_argument("--n", type=int, default=1_000_000, help="messages")
    parser.add_argument("--seconds", type=int, default=10, help="of each rate of lateness")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)

    def shown(result: Result) -> Result:
        print(json.dumps(result), flush=True)
        return result

    def run(made: Coroutine[Any, Any, Result]) -> Result:
        result: Result = uvloop.run(made)
        shown = {k: v for k, v in result.items() if k != "histogram"}
        print(json.dumps(shown), flush=True)
        return result

    results: Result = {}

    def scheduled() -> int:
        """What the core schedules a second in this run."""
        part = results.get("schedule") or run(schedule(options.n // WIRE_PART))
        return int(part["per_second_over_20_hours"])

    parts: dict[str, Callable[[], Any]] = {
        "schedule": lambda: run(schedule(options.n)),
        "year": lambda: run(year(12 * options.n)),
        "hand_over": lambda: run(hand_over(options.n)),
        "lateness": lambda: [run(lateness(rate, options.seconds)) for rate in (5_000, 50_000)],
        "wire": lambda: wire(options.n // WIRE_PART, scheduled()),
        "filters": lambda: shown(filters(options.n)),
        "ready": lambda: ready(options.n),
    }
    if options.only:
        result = parts[options.only]()
        if options.only == "ready":
            print(json.dumps(result))
        return 0
    for name, part in parts.items():
        results[name] = part()
    print(json.dumps(results["ready"]))
    results["machine"] = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(results, OUT / "spine.png")
    print(f"written to {OUT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
