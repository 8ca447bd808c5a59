"""Measure the due source: Spark as the delivery engine, on this machine.

`python -m benchmarks.spark_due` writes run files whose rows are due at a steady rate from some seconds ahead on, lets
a stream append them to a Delta table, and says how late they were: from a row's due time to the end of the Delta
commit that holds it.  Then the table is compared with the files: none early, none lost, none twice.

`--restarts 10` kills the driver with SIGKILL that many times on the way; lateness then has the restarts in it.
`--backlog` makes everything due before the query begins: how fast it catches up.  `--rows messages` carries the
messages through Spark, as a query that looks at them must; otherwise it carries pieces, which the sink reads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from horolog.delay.run.reader import Run
from horolog.storage.disk import Disk

WORK = Path(__file__).resolve().parents[1] / "build" / "bench" / "spark_due"
MASTER = "local[2]"
FILES = 8
WARM_S = 10  # due at the same rate before the measured rows: a query that has run for a while is what is measured
WARM_GAP_MS = 5_000  # between them
# What a delivery needs; maps and arrays cost Spark as much as all the rest.
COLUMNS = "deliver_at timestamp, topic string, message_id string, tag string, body binary"


def make_runs(place: Path, rate: int, seconds: int, begin_ms: int, body_bytes: int) -> int:
    """Rows due at a steady rate, spread over all files by chance, and a few before; gives how many."""
    from horolog.testing.due_files import write_run

    total, warm_rows = rate * seconds, rate * WARM_S
    warm = begin_ms - WARM_GAP_MS - WARM_S * 1_000 + np.arange(warm_rows) * 1_000 // rate
    write_run(place, "warm", warm, first=total, body_bytes=body_bytes)
    due = begin_ms + np.arange(total, dtype=np.int64) * 1_000 // rate
    of_file = np.random.default_rng(7).integers(0, FILES, total)
    first = 0
    for file in range(FILES):
        mine = due[of_file == file]
        write_run(place, f"r{file}", mine, first=first, body_bytes=body_bytes)
        first += len(mine)
    return total + warm_rows


def deliver(place: Path, total: int, rows: str, limit: int) -> None:
    """Run the stream until the table has all rows; one line of JSON for each commit goes to `commits`."""
    from deltalake import DeltaTable

    from horolog.spark.delta_append import DeltaAppend
    from horolog.spark.due_pieces import DueMessages
    from horolog.spark.session import make_session

    spark = make_session("due", master=MASTER, conf={"spark.driver.memory": "2g"})
    pieces = rows == "pieces"
    sink = DeltaAppend(str(place / "table"), unpack=DueMessages(COLUMNS) if pieces else None)
    commits = open(place / "commits", "a", buffering=1)  # noqa: SIM115 - for all of this process

    def append(frame: Any, batch: int) -> None:
        sink(frame, batch)
        commits.write(json.dumps([batch, time.time_ns() // 1_000_000]) + "\n")

    due = spark.readStream.format("horolog").option("mode", "due").option("rows", rows)
    query = (
        (due if pieces else due.schema(COLUMNS))
        .option("maxRowsPerTrigger", limit)
        .load(str(place / "runs"))
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", str(place / "checkpoint"))
        .start()
    )
    done = 0
    while done < total:
        query.awaitTermination(1)
        if DeltaTable.is_deltatable(str(place / "table")):
            actions = DeltaTable(place / "table").get_add_actions(flatten=True)
            done = sum(rows for rows in actions.column("num_records").to_pylist())
    query.stop()
    spark.stop()


def offsets(place: Path) -> dict[int, int]:
    """The due time at which each batch ends, from Spark's own log of offsets."""
    found = {}
    for path in (place / "checkpoint" / "offsets").iterdir():
        if path.name.isdigit():
            found[int(path.name)] = json.loads(path.read_text().splitlines()[-1])["due_ms"]
    return found


def lateness(place: Path, begin_ms: int) -> tuple[np.ndarray, int]:
    """Lateness in ms of every row from `begin_ms` on, and how many of all were early."""
    ends = offsets(place)
    first: dict[int, int] = {}
    for line in (place / "commits").read_text().splitlines():
        batch, at = json.loads(line)
        first.setdefault(batch, at)
    runs = [
        Run.open(Disk(place / "runs"), ".", path.stem, None)
        for path in sorted((place / "runs").glob("*.run"))
    ]
    due = np.sort(np.concatenate([run.slice(0, run.rows)["due_ms"] for run in runs]))
    pieces, begin, early = [], 0, 0
    for batch in sorted(ends):
        stop = int(due.searchsorted(ends[batch]))
        if batch in first:  # the last commit before a kill may not have been noted
            late = first[batch] - due[begin:stop]
            early += int((late < 0).sum())
            pieces.append(late[due[begin:stop] >= begin_ms])
        begin = stop
    return np.concatenate(pieces), early


def check(place: Path, total: int) -> None:
    """The table holds every number once, at its own due time."""
    from deltalake import DeltaTable

    rows = DeltaTable(place / "table").to_pyarrow_table(columns=["body", "deliver_at"])
    numbers = np.array([int(bytes(body)[:16]) for body in rows.column("body").to_pylist()])
    assert len(numbers) == total, f"{len(numbers)} rows instead of {total}"
    assert len(np.unique(numbers)) == total, "rows twice"


def run_killed(place: Path, total: int, rows: str, restarts: int) -> None:
    """The driver as a process of its own, killed at some moment after its first commit."""
    limit = total // (3 * restarts) + 1  # so that something is left for every life of the driver
    command = [sys.executable, "-m", "benchmarks.spark_due"]
    command += ["--child", str(total), "--rows", rows, "--limit", str(limit)]
    chance = random.Random(1)
    commits = place / "commits"
    for kill in [True] * restarts + [False]:
        before = commits.stat().st_size if commits.exists() else 0
        child = subprocess.Popen(command, start_new_session=True)
        try:
            while kill and child.poll() is None:
                time.sleep(0.05)
                if commits.exists() and commits.stat().st_size > before:
                    time.sleep(chance.uniform(0, 3))
                    break
            else:
                child.wait(900)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=300_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument(
        "--ahead", type=int, default=40, help="seconds until the first measured row is due"
    )
    parser.add_argument("--backlog", action="store_true")
    parser.add_argument("--rows", choices=("pieces", "messages"), default="pieces")
    parser.add_argument("--limit", type=int, default=1_000_000, help="rows of a micro-batch")
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        deliver(WORK, given.child, given.rows, given.limit)
        return
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "runs").mkdir(parents=True)
    try:
        measured = given.rate * given.seconds
        written = given.rate * (given.seconds + WARM_S)
        ahead_ms = given.ahead * 1_000 + written // 100  # the files are written meanwhile
        begin_ms = time.time_ns() // 1_000_000 + (-60_000 - measured if given.backlog else ahead_ms)
        total = make_runs(WORK / "runs", given.rate, given.seconds, begin_ms, given.body)
        if given.restarts:
            run_killed(WORK, total, given.rows, given.restarts)
        else:
            deliver(WORK, total, given.rows, given.limit)
        check(WORK, total)
        late, early = lateness(WORK, begin_ms)
        commits = [json.loads(line)[1] for line in (WORK / "commits").read_text().splitlines()]
        figures = {
            "rows": measured,
            "rate": given.rate,
            "carried": given.rows,
            "restarts": given.restarts,
            "batches": len(commits),
            "early": early,
            "p50_ms": int(np.percentile(late, 50)),
            "p99_ms": int(np.percentile(late, 99)),
            "max_ms": int(late.max()),
            "commits_span_s": round((max(commits) - min(commits)) / 1_000, 1),
        }
        print(json.dumps(figures))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    main()
