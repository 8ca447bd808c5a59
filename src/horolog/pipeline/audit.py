"""The audit of schedules against hand-overs, from the files alone.

    totals → lateness, funnel          (one pass; numpy sums, Spark adds)
    screen → suspects → findings       (one aggregation by key; only suspects get a closer look)

Spark does all work except the small tables at the end, so an audit scales with the cluster; on two
cores ten million schedules and their hand-overs take well under a minute
(docs/benchmarks/README.md).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from horolog.pipeline.adopted_files import files_named, with_adopted
from horolog.pipeline.audit_faults import (
    FAULTS,
    OVERDUE,
    SuspectSource,
    faults_of_messages,
    per_message,
    settle_missing,
    suspect_rows,
    with_ids,
)
from horolog.pipeline.audit_tables import (
    FINDING_FIELDS,
    Sums,
    funnel_table,
    lateness_table,
    totals_table,
)
from horolog.pipeline.data_files import (
    FIELD,
    LogPlan,
    files_of,
    must_see,
    need_checkpoint,
    plan_log,
    plan_text,
)
from horolog.pipeline.file_damage import DamagedFile, damaged_files
from horolog.pipeline.log_screen import ScreenSource, suspects
from horolog.pipeline.log_totals import TotalsSource
from horolog.pipeline.pending_source import PENDING_SCHEMA, PendingSource
from horolog.pipeline.progress import Stages, quiet
from horolog.places import local_place
from horolog.protocol.rocketmq.retry import RETRY_PREFIX
from horolog.spark.shared_place import prove_shared
from horolog.spark.work_directory import work_directory
from horolog.units import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATE_MS = 60_000
FINDINGS_KEPT = 1_000


@dataclass
class AuditResult:
    """Result of an audit; tables are Arrow's."""

    data_dir: str
    log_start: int
    log_end: int
    horizon_ms: int
    late_ms: int
    # topic, scheduled, adopted, handed_over, recalled, moved, expired, visible_at_once, early
    totals: Any
    lateness: Any  # topic, hour_ms, hand_overs, p50_ms, p95_ms, p99_ms, max_ms
    funnel: Any  # group, topic, attempt, messages; attempt 0: acknowledged
    findings: Any  # the first FINDINGS_KEPT
    counts: dict[str, int] = field(default_factory=dict)  # fault → findings
    damaged: list[tuple[int, int]] = field(default_factory=list)  # log positions
    files: list[DamagedFile] = field(default_factory=list)  # of pending messages
    forgotten: int = 0  # hand-overs and recalls whose schedule is no longer in the log
    overdue: int = 0
    records: int = 0
    histogram: Any = None  # late_ms, hand_overs: over all topics

    @property
    def faults(self) -> int:
        """Number of findings that are faults, of damaged stretches of the log, and of files."""
        return sum(self.counts.values()) + len(self.damaged) + len(self.files)

    def total(self, name: str, topic: str = "") -> int:
        """Return the sum of a column of `totals`, for one topic or for all."""
        rows = self.totals.to_pylist()
        return sum(row[name] for row in rows if topic in ("", row["topic"]))


def audit(
    spark: SparkSession,
    data_dir: Path,
    *,
    out: Path | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    late_ms: int = LATE_MS,
    report: Stages = quiet,
) -> AuditResult:
    """Audit the complete frames of a data directory, a copy of one, or a backup.

    out             directory for findings, lateness, funnel and totals as Parquet; driver and
                    executors exchange intermediate files in it, or in the temporary directory:
                    CONFIG unless they share it
    from_ms, to_ms  check only messages that are due in [from, to)
    late_ms         hand-overs that are later than this are findings
    """
    data_dir = Path(local_place(data_dir, FIELD))
    if out is not None:
        out = Path(local_place(out, "--out"))
        out.mkdir(parents=True, exist_ok=True)
    for source in (TotalsSource, ScreenSource, SuspectSource, PendingSource):
        spark.dataSource.register(source)
    options = {"late": str(late_ms)}
    if from_ms is not None:
        options["from"] = str(from_ms)
    if to_ms is not None:
        options["to"] = str(to_ms)
    report("reading the end of the log")
    found = plan_log(data_dir)
    need_checkpoint(found)
    plan = with_adopted(found)
    horizon_ms = plan.newest_ms if to_ms is None else min(plan.newest_ms, to_ms)
    with work_directory("audit", out) as work:
        prove_shared(spark, str(work), "--out", must_see(plan.root))
        job = _Audit(spark, plan, options, horizon_ms, late_ms, out or work, report)
        return job.run(str(data_dir), work)


class _Audit:
    def __init__(
        self,
        spark: SparkSession,
        plan: LogPlan,
        options: dict[str, str],
        horizon_ms: int,
        late_ms: int,
        out: Path,
        report: Stages,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._options = options
        self._horizon_ms = horizon_ms
        self._late_ms = late_ms
        self._out = out
        self._report = report

    def run(self, data_dir: str, work: Path) -> AuditResult:
        self._report("adding up the log")
        sums = self._sums()
        self._plan = replace(self._plan, forgotten=self._forgotten(sums))
        if self._plan.forgotten:
            sums = self._sums()  # with the forgotten files in the plan, their rows are counted
        sums.add_names(self._plan.registry)
        self._report("comparing schedules with hand-overs")
        damaged = self._damaged(sums)
        counts = self._find(work, sums, damaged)
        overdue = counts.pop(OVERDUE, 0)
        self._report("writing tables")
        lateness, histogram = lateness_table(sums)
        result = AuditResult(
            data_dir=data_dir,
            log_start=self._plan.start,
            log_end=self._plan.end,
            horizon_ms=self._horizon_ms,
            late_ms=self._late_ms,
            totals=totals_table(sums, self._adopted_and_gone(sums)),
            lateness=lateness,
            funnel=funnel_table(sums),
            findings=self._named(sums),
            counts={fault: counts[fault] for fault in FAULTS if counts.get(fault)},
            damaged=damaged,
            files=damaged_files(files_of(self._plan.root), self._plan.log_id, self._plan.forgotten),
            forgotten=sum(row["n"] for row in sums.rows_of_metric("forgotten") if row["a"] < 0),
            overdue=overdue,
            records=sum(row["a"] for row in sums.rows_of_metric("frames")),
            histogram=histogram,
        )
        for name in ("totals", "lateness", "funnel"):
            pq.write_table(getattr(result, name), self._out / f"{name}.parquet")
        return result

    def _sums(self) -> Sums:
        reader = self._spark.read.format("horolog_log_totals").options(**self._options)
        table = reader.option("plan", plan_text(self._plan)).load()
        groups = table.groupBy("metric", "topic", "hour", "a", "b", "text")
        return Sums(groups.agg({"n": "sum", "top": "max"}).toArrow())

    def _forgotten(self, sums: Sums) -> tuple[Any, ...]:
        there = {file.name for file in self._plan.adopted}
        named = []
        for row in sums.rows_of_metric("adopt"):
            try:
                named += files_named(row["a"], row["text"].encode())
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue  # invalid content in an intact frame is not a fault for an audit to report
        return tuple(file for file in named if file.name not in there)

    def _adopted_and_gone(self, sums: Sums) -> list[dict[str, Any]]:
        bounds = [self._options.get(name) for name in ("from", "to")]
        low, high = (None if text is None else int(text) for text in bounds)
        return sums.adopted_and_gone({file.name for file in self._plan.forgotten}, low, high)

    def _damaged(self, sums: Sums) -> list[tuple[int, int]]:
        """Return the log positions that cannot be read, sorted."""
        damaged = [(gap["a"], gap["b"]) for gap in sums.rows_of_metric("gap")] + list(
            self._plan.holes
        )
        if self._plan.damaged:
            stop = max(self._plan.end, self._plan.checkpoint)
            damaged.append((self._plan.end, stop))
        return sorted(damaged)

    def _find(self, work: Path, sums: Sums, damaged: list[tuple[int, int]]) -> dict[str, int]:
        """Write the findings, and count them by fault."""
        spark, plan, found = self._spark, self._plan, self._out / "findings.parquet"
        reader = spark.read.format("horolog_log_screen").options(**self._options)
        reader = reader.option("horizon", str(self._horizon_ms))
        screen = reader.option("plan", plan_text(plan)).load()
        keys_at = str(work / "suspects")
        suspects(screen, plan).write.parquet(keys_at)
        keys = spark.read.parquet(keys_at)
        count = keys.count()
        _clear(found)
        if not count:
            pq.write_table(FINDING_FIELDS.empty_table(), found)
            return {}
        self._report(f"looking at {counted(count, 'message')} more closely")
        rows = suspect_rows(spark, plan, self._options, keys, count)
        faults = faults_of_messages(
            per_message(rows, plan),
            horizon_ms=self._horizon_ms,
            late_ms=self._late_ms,
            promoted=sorted(sums.promoted),
            damaged=damaged,
            retried=sums.topics_of(RETRY_PREFIX),
        )
        faults_at = str(work / "faults")
        faults.write.parquet(faults_at)
        faults = spark.read.parquet(faults_at)
        if faults.where("fault = 'missing'").limit(1).count():
            faults = settle_missing(faults, self._pending(), plan, sums.newest_due_ms, damaged)
        with_ids(faults, plan).write.mode("overwrite").parquet(str(found))
        grouped = spark.read.parquet(str(found)).groupBy("fault").count().collect()
        return {row["fault"]: row["count"] for row in grouped}

    def _pending(self) -> DataFrame:
        """Return the messages that wait in files; none without a checkpoint: a start rebuilds them.

        What is in a damaged file is in none, and the file is a finding itself.
        """
        if self._plan.checkpoint < 0:
            return self._spark.createDataFrame([], PENDING_SCHEMA)
        reader = self._spark.read.format("horolog_pending").option("failOnDataLoss", "false")
        return reader.option("path", self._plan.root).load()

    def _named(self, sums: Sums) -> Any:
        """Return the first findings, with the names of their topics."""
        table = first_findings(self._out / "findings.parquet")
        names = [sums.topic(number) for number in table["topic"].to_pylist()]
        at = table.schema.get_field_index("topic")
        return table.set_column(at, "topic", pa.array(names, pa.string()))


def first_findings(place: Path) -> Any:
    """Return the first FINDINGS_KEPT findings of a file or directory.

    Only so many are read: after a long stop of a broker every message that waits is among them.
    """
    kept: list[pa.RecordBatch] = []
    rows = 0
    for part in sorted(place.glob("*.parquet")) if place.is_dir() else [place]:
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(FINDINGS_KEPT):
                kept.append(batch)
                rows += len(batch)
                if rows >= FINDINGS_KEPT:
                    return pa.Table.from_batches(kept).slice(0, FINDINGS_KEPT)
    return pa.Table.from_batches(kept) if kept else FINDING_FIELDS.empty_table()


def _clear(place: Path) -> None:
    """Remove the findings of an earlier audit: a file if there were none, else a directory."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
