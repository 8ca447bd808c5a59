"""Bulk load of many messages, a year of due times, half of one hour of them due in one millisecond.

    python -m benchmarks.spark_load --rows 10000000 --master 'local[2]'

Prints one JSON object: rows and seconds from DataFrame to adopted, rows a second, bytes and files.  `--hand-over` then
moves the broker's clock over the year, and reads the topic back: every row once, none early, each queue in
the order of due times.  `--sends N` sends so many messages like these with the official client, 16 at a time, for
the ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from horolog.limits import DAY_MS, HOUR_MS
from horolog.spark import bulk_load, make_session
from horolog.testing.broker import BrokerProcess

BODY_BYTES = 200
_ID_DIGITS = 12
_FILLER = "x" * (BODY_BYTES - _ID_DIGITS)  # joined, as Spark pads by one byte after another
_HOT_SHARE = 10  # one row in so many is due in the hot hour
_TOPIC = "load"
_WARM_ROWS = 1_000
_YEAR_D = 366
_STEPS = 2
_THREADS = 16
_ROOT = Path(__file__).resolve().parents[1]
_CLIENT_PYTHON = _ROOT / ".venv-client" / "bin" / "python"


def frame(session: Any, rows: int, start_ms: int) -> Any:
    """Rows spread over a year; every tenth lies in one hour, and half of those in one millisecond of it."""
    hot = start_ms + 30 * DAY_MS
    return session.range(rows).selectExpr(
        f"cast(concat(lpad(cast(id as string), {_ID_DIGITS}, '0'), '{_FILLER}') as binary) as body",
        f"""case when id % {2 * _HOT_SHARE} = 0 then {hot} + {HOUR_MS // 2}
                 when id % {2 * _HOT_SHARE} = 1 then {hot} + pmod(xxhash64(id), {HOUR_MS})
                 else {start_ms} + {DAY_MS} + pmod(xxhash64(id), {364 * DAY_MS}) end as deliver_at""",
    )


def hand_over(session: Any, broker: BrokerProcess, rows: int) -> dict[str, object]:
    """Let the year pass; AssertionError unless all came once, none early, in order."""
    started = time.monotonic()
    # In steps, because one call takes 10 minutes at most; a step stops at 20 000 moments.
    for _ in range(_STEPS):
        broker.advance(f"{_YEAR_D // _STEPS + 1}d")
    seconds = time.monotonic() - started
    assert broker.pending(_TOPIC) == 0
    source = session.read.format("horolog").option("broker", broker.admin_url)
    table = (
        source.option("topic", _TOPIC)
        .option("path", str(broker.data_dir))
        .load()
        .selectExpr(
            "queue_id",
            "queue_offset",
            "unix_millis(deliver_at) AS due",
            "unix_millis(stored_at) AS stored",
            f"CAST(CAST(substring(body, 1, {_ID_DIGITS}) AS string) AS bigint) AS number",
        )
        .toArrow()
    )
    queue, offset, due, stored, number = (column.to_numpy() for column in table.columns)
    times = np.bincount(number, minlength=rows)
    # The rows that started the workers are the first 1 000 once more.
    assert len(number) == rows + _WARM_ROWS
    assert (times[:_WARM_ROWS] == 2).all()
    assert (times[_WARM_ROWS:] == 1).all()
    assert (stored >= due).all()
    order = np.lexsort((offset, queue))
    rises = np.diff(due[order]) >= 0
    assert (rises | (np.diff(queue[order]) != 0)).all()
    return {"hand_over_s": round(seconds, 1), "handed_over_per_s": round(rows / seconds)}


def sends_per_s(broker: BrokerProcess, count: int) -> float:
    """How many messages a second the official client schedules, with 16 threads."""
    broker.create_topic("sent", queues=8)
    due_s = broker.now_ms() // 1000 + 30 * 86_400
    given = [broker.grpc_endpoint, "sent", due_s, count, _THREADS, BODY_BYTES]
    output = subprocess.run(
        [_CLIENT_PYTHON, _ROOT / "benchmarks" / "client_sends.py", *map(str, given)],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert broker.pending("sent") == count + 1
    return count / float(output.stdout.splitlines()[-1])


def measure(
    rows: int, master: str, staging: str, *, sends: int, is_handed_over: bool
) -> dict[str, object]:
    """Load once, on a broker and a Spark of its own that has run a small query before."""
    conf = {"spark.driver.memory": "3g", "spark.driver.maxResultSize": "0"}
    session = make_session("spark_load", master=master, conf=conf)
    arguments = ["--log-level=warning", f"--retention={2 * _YEAR_D}d"]
    with BrokerProcess(arguments=arguments) as broker:  # its clock is simulated
        broker.create_topic(_TOPIC, queues=8)
        df = frame(session, rows, broker.now_ms())
        unit = {"deliver_at_unit": "ms"}
        bulk_load(  # starts the workers
            df.limit(_WARM_ROWS), broker=broker.admin_url, topic=_TOPIC, **unit
        )
        cpu = time.process_time()
        result = bulk_load(
            df, broker=broker.admin_url, topic=_TOPIC, staging=staging, show_progress=True, **unit
        )
        assert result.rows == rows
        assert broker.pending(_TOPIC) == rows + _WARM_ROWS
        cpu = time.process_time() - cpu
        speed = rows / result.seconds
        more: dict[str, object] = {}
        if sends:
            of_client = sends_per_s(broker, sends)
            more |= {"sends_per_s": round(of_client), "times_sends": round(speed / of_client, 1)}
        if is_handed_over:
            more |= hand_over(session, broker, rows)
        return {
            "rows": rows,
            "master": master,
            "seconds": round(result.seconds, 2),
            "rows_per_s": round(speed),
            "files": result.files,
            "bytes": result.bytes,
            "driver_cpu_s": round(cpu, 2),
            **more,
        }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--staging", default="auto")
    parser.add_argument("--hand-over", action="store_true")
    parser.add_argument("--sends", type=int, default=0)
    chosen = parser.parse_args()
    found = measure(
        chosen.rows,
        chosen.master,
        chosen.staging,
        sends=chosen.sends,
        is_handed_over=chosen.hand_over,
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
