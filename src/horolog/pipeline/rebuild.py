"""Rebuild of a data directory from its commit log, in parallel.

    copy the log and adopted runs · write consume queues, hours and runs in tasks · write one
    checkpoint that names all of them

A pending message goes where the broker would file it now: into an hour when it is due soon, else
into a run; a message that was handed over or recalled needs no row.  Adopted runs keep their files,
with new states (`rebuild_adopted`); messages in the lake are left out, and counted as in the lake
(`lake.jobs.rebuild`).  The checkpoint (`rebuild_checkpoint`) describes the end of the log, so a
broker serves at once; only the key index is rebuilt at its first start.  The log must begin at 0:
dropped records cannot be rebuilt.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from horolog.delay.far.adopted import Adoption
from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.state import Lake
from horolog.lake.jobs.rebuild import (
    PlacedStep,
    cuts_of,
    keep_untaken,
    lake_of,
    read_steps,
    recall_positions,
    recalled_frozen,
    rows_taken,
    scheduled_rows,
)
from horolog.limits import HOUR_MS, NEAR_HOURS
from horolog.log.record import Kind
from horolog.pipeline.audit_faults import SuspectSource
from horolog.pipeline.audit_tables import Sums
from horolog.pipeline.data_files import FIELD, LogPlan, must_see, plan_log, plan_text
from horolog.pipeline.log_totals import TotalsSource
from horolog.pipeline.progress import Stages, quiet
from horolog.pipeline.rebuild_adopted import File, find_adopted_files, first_lost, write_adopted
from horolog.pipeline.rebuild_checkpoint import RebuiltParts, commit
from horolog.pipeline.rebuild_controls import ControlSource, progress_rows
from horolog.pipeline.rebuild_names import named, without_deleted
from horolog.pipeline.rebuild_tasks import (
    RESULT,
    Target,
    copy_segments,
    write_hours,
    write_queues,
    write_runs,
)
from horolog.places import local_place
from horolog.spark.shared_place import prove_shared
from horolog.storage.meta import SHARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_ROWS = 500_000  # about the rows of one run
_PENDING = "pending.parquet"
_PARTS = ("log", "queues", "hours", "runs", "keys", "checkpoint")
_READ = (
    "kind string, position long, origin long, origin_row long, topic int, due_ms long, append_ms "
    "long, queue int, queue_offset long, size int"
)


@dataclass
class Rebuilt:
    """What a rebuild has made."""

    out: str
    position: int  # log position of the checkpoint: the end of the log
    queues: int
    units: int  # in all consume queues
    hours: int
    runs: int
    adopted: int  # adopted runs that are kept
    pending: int
    in_lake: int  # pending messages that are in the lake
    rotten: int  # pending messages of adopted runs that do not verify; copied as they are


def rebuild(spark: SparkSession, data_dir: Path, out: Path, *, report: Stages = quiet) -> Rebuilt:
    """Rebuild a data directory in `out`, which must not exist or be empty.

    On a cluster, both directories must be shared by all machines.
    Errors: FORBIDDEN names `--out`; DAMAGED says why the log cannot be rebuilt from.
    """
    data_dir = Path(local_place(data_dir, FIELD))
    out = Path(local_place(out, "--out"))
    for source in (TotalsSource, SuspectSource, ControlSource):
        spark.dataSource.register(source)
    report("reading the end of the log")
    plan = plan_log(data_dir)
    check_new_directory(out)
    is_new = not out.exists()
    try:
        prove_shared(spark, str(out.absolute()), "--out", must_see(plan.root))
    finally:
        if is_new:
            with suppress(OSError):
                out.rmdir()
    job = _Rebuild(spark, plan, out, report)
    job.check()
    return job.run()


def check_new_directory(out: Path) -> None:
    """Raise FORBIDDEN unless `out` does not exist or is an empty directory."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    why = "exists and is not an empty directory"
    if out.is_dir() and {path.name for path in out.iterdir()} <= {SHARD, _PENDING}:
        why = (
            "is what a rebuild has left that was stopped on the way, and no broker takes it; "
            "remove it first"
        )
    raise refused("--out", f"{out} {why}", code=ErrorCode.FORBIDDEN)


class _Rebuild:
    def __init__(self, spark: SparkSession, plan: LogPlan, out: Path, report: Stages) -> None:
        self._spark = spark
        self._plan = plan
        self._out = out
        self._report = report
        self._target = Target(plan_text(plan), str(out.resolve()))
        self._sums = Sums.empty()
        self._adoptions: list[Adoption] = []
        self._files: list[File] = []  # adopted files that are there
        self._steps: list[PlacedStep] = []  # of offloads

    def check(self) -> None:
        """Refuse a log that cannot be rebuilt, before anything is written."""
        plan = self._plan
        if plan.start or plan.holes:
            raise _refused(
                f"its commit log begins at log position {plan.start}"
                f"{' and has holes' if plan.holes else ''}; what lay there cannot be rebuilt,"
                " restore a backup"
            )
        self._report("adding up the log")
        reader = self._spark.read.format("horolog_log_totals").option("plan", plan_text(plan))
        groups = reader.load().groupBy("metric", "topic", "hour", "a", "b", "text")
        self._sums = Sums(groups.agg({"n": "sum", "top": "max"}).toArrow())
        gaps = [(row["a"], row["b"]) for row in self._sums.rows_of_metric("gap")]
        if gaps or plan.damaged:
            first, stop = gaps[0] if gaps else (plan.end, plan.end)
            raise _refused(
                f"its commit log is damaged, or was salvaged, at log positions {first} to {stop}, "
                "and a rebuild needs all of it: start a broker on it, which serves the rest "
                "(`horolog salvage`, if it refuses), or restore a backup"
            )
        self._check_adopted()

    def _check_adopted(self) -> None:
        """Find adopted files and steps of offloads.

        Errors: DAMAGED if pending messages are in a file that is gone.
        """
        text = plan_text(self._plan)
        rows = sorted(self._sums.rows_of_metric("adopt"), key=lambda row: int(row["a"]))
        self._adoptions = [Adoption.of(row["a"], orjson.loads(row["text"])) for row in rows]
        if any(row["a"] == Kind.OFFLOAD for row in self._sums.rows_of_metric("kind")):
            self._steps = read_steps(self._spark, text)
        self._files, missing = find_adopted_files(self._plan, self._adoptions)
        if missing:
            others, taken = recall_positions(self._steps), rows_taken(self._steps)
            why = first_lost(self._every(), missing, others, taken)
            if why:
                raise _refused(f"{why}; bring the file back, or let a broker serve the rest")

    def _every(self) -> DataFrame:
        """Return the log's rows about every message."""
        rows = self._spark.read.format("horolog_log_suspects").schema(_READ)
        return rows.option("plan", plan_text(self._plan)).option("all", "true").load()

    def run(self) -> Rebuilt:
        """Write everything; the checkpoint comes last, and makes `out` a data directory."""
        plan, spark = self._plan, self._spark
        for part in _PARTS:
            (self._out / SHARD / part).mkdir(parents=True)
        self._report("copying the log")
        copy_segments(spark, plan, self._target)
        self._report("writing consume queues")
        every = self._every()
        queues = self._queues(every)
        self._report("finding what waits")
        at = str(self._out / _PENDING)
        self._waiting(every).write.parquet(at)
        waiting = spark.read.parquet(at)
        near = plan.newest_ms // HOUR_MS + NEAR_HOURS
        self._report("writing hours and runs")
        hours = self._hours(waiting.where(f"due_ms < {(near + 1) * HOUR_MS}"))
        runs = self._runs(waiting.where(f"due_ms >= {(near + 1) * HOUR_MS}"))
        adopted, lake, rotten = self._adopted(every)
        self._report("adding up acknowledgements")
        controls = spark.read.format("horolog_log_controls").option("plan", plan_text(plan)).load()
        sums = self._sums
        living = named(sums, "group"), named(sums, "topic")
        columns = without_deleted(progress_rows(controls), *living)
        shutil.rmtree(at)
        made = RebuiltParts(queues, hours, runs, adopted, lake, columns)
        commit(spark, plan, self._out, self._sums, self._adoptions, made)
        return Rebuilt(
            str(self._out),
            plan.end,
            len(queues),
            sum(queues.values()),
            len(hours),
            len(runs),
            len(adopted),
            sum(row["waiting"] for row in [*hours, *runs, *adopted]) + lake.waiting,
            lake.waiting,
            rotten,
        )

    def _waiting(self, every: DataFrame) -> DataFrame:
        """Return the SCHEDULED messages that neither the log settles nor the lake holds."""
        settled = every.where("kind in ('HANDED', 'RECALL', 'MOVED', 'EXPIRED')").select("origin")
        waiting = (
            scheduled_rows(every)
            .join(settled, "origin", "left_anti")
            .select("topic", "position", "size", "due_ms", "append_ms")
        )
        cuts = cuts_of(self._steps)
        return waiting.mapInArrow(keep_untaken(cuts), waiting.schema) if cuts else waiting

    def _adopted(self, every: DataFrame) -> tuple[list[dict[str, Any]], Lake, int]:
        """Write the adopted runs; return their registry rows, the state of the lake, the rotten."""
        if self._adoptions or self._steps:
            self._report("keeping adopted runs")
        cuts, others = cuts_of(self._steps), recall_positions(self._steps)
        rows, rotten = write_adopted(self._spark, every, self._files, self._target, cuts, others)
        gone = recalled_frozen(every, cuts, others) if cuts else np.empty(0, LAKE_ROW)
        return rows, lake_of(self._steps, self._adoptions, gone), rotten

    def _queues(self, every: DataFrame) -> dict[tuple[int, int], int]:
        """Write the consume queues; return (topic, queue) → length.

        Errors: DAMAGED if the queue offsets of a queue have a gap.
        """
        from pyspark.sql import functions as f

        from horolog.limits import QUEUE_FILE_UNITS

        living = list(named(self._sums, "topic").rows)
        visible = every.where("kind in ('MESSAGE', 'HANDED')").where(f.col("topic").isin(living))
        visible = visible.select(
            "topic",
            "queue",
            f.floor(f.col("queue_offset") / QUEUE_FILE_UNITS).alias("file"),
            "queue_offset",
            "position",
            "size",
        )
        parts = visible.repartition("topic", "queue", "file").sortWithinPartitions(
            "topic", "queue", "file", "queue_offset"
        )
        found: dict[tuple[int, int], dict[int, int]] = {}
        for row in parts.mapInArrow(write_queues(self._target), RESULT).collect():
            fields = orjson.loads(row["result"])
            found.setdefault((fields["topic"], fields["queue"]), {})[fields["first"]] = fields[
                "count"
            ]
        lengths = {}
        for queue, files in found.items():
            at = 0
            for first, count in sorted(files.items()):
                if first != at:
                    raise _refused(f"queue {queue[1]} of topic {queue[0]} lacks queue offset {at}")
                at += count
            lengths[queue] = at
        return lengths

    def _hours(self, near: DataFrame) -> list[dict[str, Any]]:
        from pyspark.sql import functions as f

        hour = f.floor(f.col("due_ms") / HOUR_MS).alias("hour")
        rows = near.select(hour, "position", "size").repartition("hour")
        made = rows.sortWithinPartitions("hour", "position")
        written = made.mapInArrow(write_hours(self._target), RESULT).collect()
        return sorted((orjson.loads(row["result"]) for row in written), key=lambda row: row["hour"])

    def _runs(self, far: DataFrame) -> list[dict[str, Any]]:
        count = far.count()
        if not count:
            return []
        rows = far.select("due_ms", "position", "size")
        parts = rows.repartitionByRange(max(1, -(-count // RUN_ROWS)), "due_ms", "position")
        made = parts.sortWithinPartitions("due_ms", "position")
        written = made.mapInArrow(write_runs(self._target), RESULT).collect()
        return sorted((orjson.loads(row["result"]) for row in written), key=lambda row: row["name"])


def _refused(why: str) -> HorologError:
    return refused(FIELD, why, code=ErrorCode.DAMAGED)
