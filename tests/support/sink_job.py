"""A driver for the fault tests: writes 400 rows in four partitions, with one fault on the way.

python sink_job.py MASTER BROKER JOB_ID NOW_MS FOLDER none|executor|speculative [batch|load]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import CONF, SPECULATION
from stepped import SHORT_LIFE

from horolog.admin.client import AdminClient
from horolog.spark import bulk_load, make_session

ROWS, PARTS = 400, 4


def parent_of(pid: int) -> int:
    """The process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def faulty(fault: str, folder: str, broker: str, job_id: str) -> Any:
    """Passes batches on; on the way of partition 0 the fault happens, once."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mine = context.partitionId() == 0
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            marker = Path(folder, "happened")
            if mine and fault == "executor" and not marker.exists():
                marker.touch()
                os.kill(parent_of(os.getppid()), signal.SIGKILL)  # worker ← daemon ← executor
            if mine and fault == "speculative" and context.attemptNumber() == 0:
                marker.touch()
                wait_for_commit(broker, job_id)  # by the other attempt
            yield batch.slice(half)

    return work


def wait_for_commit(broker: str, job_id: str) -> None:
    """Until the transaction is committed, and a moment more: this attempt has lost and goes on all the same."""
    until = time.monotonic() + 60
    client = AdminClient(broker)
    pause = threading.Event()  # never set
    while client.get("/v1/adoptions", {"app": job_id})["version"] < 0:
        if time.monotonic() > until:
            return
        pause.wait(0.1)


def main() -> None:
    """One job."""
    master, broker, job_id, now, folder, fault, way = sys.argv[1:8]
    conf = SHORT_LIFE | CONF | {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    if fault == "speculative":
        conf |= SPECULATION
    session = make_session("sink job", master=master, conf=conf)
    rows = session.range(0, ROWS, 1, PARTS).selectExpr(
        "concat('m', id) as body", f"{now} + 3600000 + id as deliver_at"
    )
    df = rows.mapInArrow(faulty(fault, folder, broker, job_id), rows.schema)
    print("begun", flush=True)
    if way == "load":
        bulk_load(df, broker=broker, topic="t", job_id=job_id, deliver_at_unit="ms")
    else:
        chosen = {"broker": broker, "topic": "t", "jobId": job_id, "rowsPerFile": "10"}
        chosen["deliverAtUnit"] = "ms"
        df.write.format("horolog").options(**chosen).mode("append").save()
    print("written", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
