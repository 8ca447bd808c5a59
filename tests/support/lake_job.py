"""A driver for the fault tests of a cluster; after every line it prints, it waits for one on stdin.

python lake_job.py offload|promote|load MASTER BROKER LAKE FOLDER FAULT

A job that fails is run again with its next line, as a person would do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from cluster import CONF, SPECULATION
from faulty_daemon import conf_of
from stepped import SHORT_LIFE

from horolog.admin.client import AdminClient
from horolog.admin.status import UnreachableError
from horolog.errors import HorologError
from horolog.lake.jobs import broker as lake_broker
from horolog.pipeline.offload import offload
from horolog.pipeline.promote import promote_hour
from horolog.protocol.tier_commands import TierHour
from horolog.spark import bulk_load, load_plan, make_session
from horolog.units import TIME_MAX_MS

BEYOND_MS = 48 * 3_600_000
JOB, ROWS, PARTS = "job", 400, 4


def say(line: str) -> None:
    """Print a line, and wait for the test's answer."""
    print(line, flush=True)
    assert sys.stdin.readline(), "the test is gone"


def run_offload(session: Any, broker: str, uri: str) -> int:
    """Offload everything beyond two days, in a task for each day."""
    admin = AdminClient(broker)
    from_ms = int(admin.get("/v1/clock")["wall_ms"]) + BEYOND_MS
    return offload(admin, uri, from_ms, spark=session, note=say).rows


def run_promote(session: Any, broker: str, uri: str) -> int:
    """Promote everything that waits, in a task for each offload and topic, whose hours are in order."""
    _, waiting = lake_broker.hours(AdminClient(broker), TIME_MAX_MS)
    waiting.sort(key=lambda hour: (hour.offload_id, hour.topic, hour.hour))
    parts = [
        list(hours) for _, hours in groupby(waiting, lambda hour: (hour.offload_id, hour.topic))
    ]

    def promote(mine: Iterable[list[TierHour]]) -> Iterable[int]:
        for hours in mine:
            for hour in hours:
                yield promote_hour(broker, uri, hour)

    tasks = session.sparkContext.parallelize(parts, len(parts))
    return int(tasks.mapPartitions(promote).sum())


def run_load(session: Any, broker: str, uri: str) -> int:
    """Load rows of one hour, in four slices."""
    del uri
    load_plan.SLICE_ROWS_MIN = ROWS // PARTS
    now = int(AdminClient(broker).get("/v1/clock")["wall_ms"])
    rows = session.range(0, ROWS, 1, PARTS).selectExpr(
        "concat('m', id) as body", f"{now} + 3600000 + id as deliver_at"
    )
    return bulk_load(rows, broker=broker, topic="t", job_id=JOB, deliver_at_unit="ms").rows


def main() -> None:
    """Run one job, as often as it takes."""
    kind, master, broker, uri, folder, fault = sys.argv[1:7]
    conf = (
        SHORT_LIFE
        | CONF
        | conf_of(fault, folder, broker, JOB)
        | (SPECULATION if kind == "load" else {})
    )
    work = {"offload": run_offload, "promote": run_promote, "load": run_load}[kind]
    session = make_session("lake job", master=master, conf=conf)
    say("begun")
    while True:
        try:
            rows = work(session, broker, uri)
        except (HorologError, UnreachableError) as error:
            say(f"failed: {error}")
        else:
            break
    say(f"done: {rows}")
    session.stop()


if __name__ == "__main__":
    main()
