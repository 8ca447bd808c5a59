"""Spark's Python daemon, whose workers have one fault when they write: `spark.python.daemon.module`.

HOROLOG_FAULT   what happens, once, when the first file is half written:
                dies      the executor is killed, and the worker with it
                lingers   the worker continues when driver, executor and daemon are dead; it is
                          the only one, as another would die in the middle of its own file
                late      (one attempt of partition 0) it continues when the other attempt has
                          committed the transaction
                second    as `late`, but after the whole file
HOROLOG_FOLDER  gets the file `happened` at that time
HOROLOG_BROKER  URL of the admin port, for `late` and `second`
HOROLOG_JOB     the transaction's app, for `late` and `second`
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark import TaskContext, daemon

WAIT_S = 90.0
_PAUSE = threading.Event()  # never set
_syncs = 0  # syncs of this process; a run is synced before its footer and after it


def conf_of(fault: str, folder: str, broker: str, job: str) -> dict[str, str]:
    """Return the settings of a session whose workers have the fault; none without a fault."""
    if fault == "none":
        return {}
    fields = {"FAULT": fault, "FOLDER": folder, "BROKER": broker, "JOB": job}
    return {
        "spark.python.daemon.module": "faulty_daemon",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
        **{f"spark.executorEnv.HOROLOG_{name}": text for name, text in fields.items()},
        **({"spark.cores.max": "1"} if fault == "lingers" else {}),
    }


def parent_of(pid: int) -> int:
    """Return the id of the parent process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def happens(fault: str) -> None:
    """Cause the fault, unless it has happened before."""
    marker = Path(os.environ["HOROLOG_FOLDER"], "happened")
    if fault == "lingers":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the daemon sends it to its workers
    try:
        marker.open("x").close()  # only one worker gets here
    except FileExistsError:
        return
    if fault == "dies":
        os.kill(parent_of(os.getppid()), signal.SIGKILL)  # worker ← daemon ← executor
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "lingers":
        started_by = os.getppid()
        wait(lambda: os.getppid() != started_by)
    else:
        wait(is_committed)


def is_committed() -> bool:
    """Return whether the broker has committed the transaction."""
    from horolog.admin.client import AdminClient

    broker, job = os.environ["HOROLOG_BROKER"], os.environ["HOROLOG_JOB"]
    return int(AdminClient(broker).get("/v1/adoptions", {"app": job})["version"]) >= 0


def wait(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds; kill the worker if it does not in time."""
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            os.kill(os.getpid(), signal.SIGKILL)
        _PAUSE.wait(0.05)


def install(fault: str) -> None:
    """Hook the fault into the writing of Parquet files and runs."""
    write_batch, fdatasync = pq.ParquetWriter.write_batch, os.fdatasync

    def write(self: Any, *given: Any, **named: Any) -> None:
        write_batch(self, *given, **named)
        happens(fault)

    def sync(fd: int) -> None:
        global _syncs  # noqa: PLW0603 - one worker is one process
        fdatasync(fd)
        _syncs += 1
        if fault not in ("late", "second"):
            happens(fault)
            return
        context = TaskContext.get()
        is_meant = context is not None and context.partitionId() == 0
        if is_meant and _syncs % 2 == (fault == "late"):
            happens(fault)  # the attempt that comes here first; speculation may have begun it

    pq.ParquetWriter.write_batch = write
    os.fdatasync = sync


if __name__ == "__main__":
    install(os.environ["HOROLOG_FAULT"])
    daemon.manager()
