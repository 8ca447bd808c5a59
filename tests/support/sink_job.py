"""A driver for the fault tests: it writes 400 rows in four partitions, with one fault meanwhile.

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


# Stands in `faulty_daemon` too: executors get the functions of a script, and no module beside it.
def parent_of(pid: int) -> int:
    """Return the id of the parent process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def faulty(fault: str, folder: str, broker: str, job_id: str) -> Any:
    """Return a function that passes batches on, and causes the fault once, within partition 0."""

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
                wait_for_commit(broker, job_id)  # the other attempt commits
            yield batch.slice(half)

    return work


def wait_for_commit(broker: str, job_id: str) -> None:
    """Wait until the transaction is committed, and a little longer.

    This attempt has lost then, and continues all the same.
    """
    until = time.monotonic() + 60
    client = AdminClient(broker)
    pause = threading.Event()  # never set
    while client.get("/v1/adoptions", {"app": job_id})["version"] < 0:
        if time.monotonic() > until:
            return
        pause.wait(0.1)


def main() -> None:
    """Run one job."""
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
