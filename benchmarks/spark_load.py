"""Bulk load of many messages, a year of due times, half of one hour of them due in one millisecond.

    python -m benchmarks.spark_load --rows 10000000 --master 'local[2]'

Prints one JSON object: rows and seconds from DataFrame to adopted, rows a second, bytes and files.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from horolog.limits import DAY_MS, HOUR_MS
from horolog.spark import bulk_load, make_session
from horolog.testing.broker import BrokerProcess

BODY_BYTES = 200
_ID_DIGITS = 12
_FILLER = "x" * (BODY_BYTES - _ID_DIGITS)  # joined, as Spark pads by one byte after another
_HOT_SHARE = 10  # one row in so many is due in the hot hour
_TOPIC = "load"


def frame(session: Any, rows: int, start_ms: int) -> Any:
    """Rows spread over a year; every tenth lies in one hour, and half of those in one millisecond of it."""
    hot = start_ms + 30 * DAY_MS
    return session.range(rows).selectExpr(
        f"cast(concat(lpad(cast(id as string), {_ID_DIGITS}, '0'), '{_FILLER}') as binary) as body",
        f"""case when id % {2 * _HOT_SHARE} = 0 then {hot} + {HOUR_MS // 2}
                 when id % {2 * _HOT_SHARE} = 1 then {hot} + pmod(xxhash64(id), {HOUR_MS})
                 else {start_ms} + {DAY_MS} + pmod(xxhash64(id), {364 * DAY_MS}) end as deliver_at""",
    )


def measure(rows: int, master: str, staging: str) -> dict[str, object]:
    """Load once, on a broker and a Spark of its own that has run a small query before."""
    session = make_session("spark_load", master=master, conf={"spark.driver.memory": "3g"})
    with BrokerProcess(arguments=["--log-level=warning"]) as broker:
        broker.create_topic(_TOPIC, queues=8)
        df = frame(session, rows, broker.now_ms())
        bulk_load(df.limit(1_000), broker=broker.admin_url, topic=_TOPIC)  # starts the workers
        cpu = time.process_time()
        result = bulk_load(
            df, broker=broker.admin_url, topic=_TOPIC, staging=staging, show_progress=True
        )
        assert result.rows == rows
        assert broker.pending(_TOPIC) == rows + 1_000
        return {
            "rows": rows,
            "master": master,
            "seconds": round(result.seconds, 2),
            "rows_per_s": round(rows / result.seconds),
            "files": result.files,
            "bytes": result.bytes,
            "driver_cpu_s": round(time.process_time() - cpu, 2),
        }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--staging", default="auto")
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.rows, chosen.master, chosen.staging)))


if __name__ == "__main__":
    main()
