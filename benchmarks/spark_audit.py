"""How long the audit of a log takes: `python -m benchmarks.spark_audit --messages 1000000 10000000`.

For each number a data directory is made with the core (simulated clock, bodies of 100 bytes, due times at 2 000
moments of two hours), everything is handed over, and the directory is audited and forecast on `local[2]`.

make      seconds to send all of it and hand it over through the core
audit     seconds of `audit`, with the session already there
forecast  seconds of `forecast` of the same directory before anything was handed over
session   seconds to start Spark

Results go to docs/benchmarks/spark_audit.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from horolog.pipeline.audit import audit
from horolog.pipeline.forecast import forecast
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    MessageType,
    NewMessage,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.server.open_broker import open_engine
from horolog.spark.session import make_session

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "benchmarks" / "spark_audit.json"
WORK = ROOT / "build" / "spark_audit"
START_MS = 1_772_964_000_000
MOMENTS = 2_000
STEP_MS = 3_600
BATCH = 1_000
TOPIC = "audited"


class Messages:
    """New messages, made from one by patching its id and its due time."""

    def __init__(self) -> None:
        self._one = encode(
            topic=TOPIC,
            body=b"b" * 100,
            message_id=_id(0),
            type=MessageType.DELAY,
            due_ms=START_MS,
            born_ms=START_MS,
        )
        record = self._one.record
        id_at, due_at = record.index(_id(0).encode()), record.index(str(START_MS).encode())
        assert id_at < due_at or due_at < id_at
        self._cuts = sorted([(id_at, 34), (due_at, 13)])
        self._id_first = id_at < due_at

    def make(self, number: int) -> NewMessage:
        """Message `number`."""
        due_ms = START_MS + 60_000 + number * 7_919 % MOMENTS * STEP_MS
        texts = [_id(number).encode(), b"%d" % due_ms]
        (a, n), (b, m) = self._cuts
        first, second = texts if self._id_first else texts[::-1]
        record = self._one.record
        whole = record[:a] + first + record[a + n : b] + second + record[b + m :]
        return self._one._replace(
            record=whole, due_ms=due_ms, key_hash=key_hash(TOPIC, _id(number))
        )


def _id(number: int) -> str:
    return f"01AABBCCDDEEFF{number:020X}"


async def fill(directory: Path, count: int, fill_done: Any) -> tuple[float, float, int]:
    """(seconds to send, seconds to hand over, pending before); `told` is asked in between."""
    shutil.rmtree(directory, ignore_errors=True)
    engine = await open_engine(directory, clock="simulated", flush="os", start_ms=START_MS)
    await engine.submit(CreateTopic(TOPIC, TopicType.DELAY, 4))
    messages = Messages()
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        part = [messages.make(n) for n in range(first, min(count, first + BATCH))]
        await engine.submit(SendMessages(TOPIC, part))
    sent_s = time.perf_counter() - began
    pending = (await engine.submit(CountPending())).total
    await engine.checkpoint()
    await asyncio.get_running_loop().run_in_executor(None, fill_done)
    began = time.perf_counter()
    await engine.advance(MOMENTS * STEP_MS + 120_000)
    handed_s = time.perf_counter() - began
    await engine.stop()
    return sent_s, handed_s, pending


def measure(spark: Any, count: int) -> dict[str, Any]:
    """One row of the results."""
    found: dict[str, Any] = {"messages": count}

    def look_ahead() -> None:
        began = time.perf_counter()
        result = forecast(spark, WORK)
        found["forecast_s"] = round(time.perf_counter() - began, 1)
        found["forecast_total"] = result.total

    sent_s, handed_s, pending = asyncio.run(fill(WORK, count, look_ahead))
    assert found["forecast_total"] == pending == count
    found["make_s"] = round(sent_s + handed_s, 1)
    found["log_bytes"] = sum(f.stat().st_size for f in (WORK / "shard-00" / "log").iterdir())
    began = time.perf_counter()
    result = audit(spark, WORK)
    found["audit_s"] = round(time.perf_counter() - began, 1)
    assert result.faults == 0
    assert result.total("handed_over") == count
    return found


def main() -> None:
    """Measure every number that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    began = time.perf_counter()
    spark = make_session("horolog benchmark", master=arguments.master)
    session_s = time.perf_counter() - began
    rows = []
    for count in arguments.messages:
        rows.append(measure(spark, count))
        print(json.dumps(rows[-1]), flush=True)
    spark.stop()
    shutil.rmtree(WORK, ignore_errors=True)
    result = {
        "session_s": round(session_s, 1),
        "cpus": os.cpu_count(),
        "load": round(float(np.mean(os.getloadavg())), 1),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
