"""The end of a rebuild: a checkpoint that names everything, and `meta`.

Without `meta` the directory is not a data directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from horolog.broker.adopt.adoptions import note
from horolog.delay.far.adopted import Adoption
from horolog.delay.tier import state_name
from horolog.lake.core.state import Lake
from horolog.lake.core.state_file import NAME
from horolog.log.checkpoint import (
    COLUMNS,
    LEASE,
    PROGRESS,
    QUEUE,
    Checkpoint,
    acked_columns,
    checkpoint_name,
    encode_checkpoint,
    held_columns,
)
from horolog.log.frame import FrameHeader
from horolog.pipeline.audit_tables import Sums
from horolog.pipeline.data_files import LogPlan, files_of, plan_text
from horolog.pipeline.log_walk import last_frame
from horolog.pipeline.rebuild_halves import open_halves
from horolog.pipeline.rebuild_names import named
from horolog.storage.api import replace_file
from horolog.storage.disk import Disk
from horolog.storage.meta import META, SHARD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCK = "clock"  # file with the time of a simulated clock


class RebuiltParts(NamedTuple):
    """What a rebuild has made: lengths of queues by (topic, queue), registry rows, lake, progress.

    The registry rows and the columns, which hold the progress of groups, go into the checkpoint.
    """

    queues: dict[tuple[int, int], int]
    hours: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    adopted: list[dict[str, Any]]
    lake: Lake
    columns: dict[str, list[tuple[Any, ...]]]

    def far(self) -> dict[str, Any]:
        """Return the registry of the far store."""
        following = max([0, *(int(run["name"]) for run in self.runs)]) + 1
        runs = [*self.adopted, *self.runs]
        return {"next": following, "buffers": [], "runs": runs, NAME: self.lake.registry()}


def commit(
    spark: SparkSession,
    plan: LogPlan,
    out: Path,
    sums: Sums,
    adoptions: Sequence[Adoption],
    made: RebuiltParts,
) -> None:
    """Sync directories, write the checkpoint that names everything, then write `meta`."""
    disk = Disk(out)
    names = named(sums, "topic").rows
    lengths = [
        (number, queue, made.queues.get((number, queue), 0))
        for number, topic in names.items()
        for queue in range(topic["queues"])
    ]
    for number, queue, _ in lengths:
        disk.make_dir(f"{SHARD}/queues/{number:05d}-{queue:05d}")
    if (state := made.lake.capture()) is not None:
        replace_file(disk, f"{SHARD}/runs", state_name(NAME, made.lake.version), state)
    for part in ("log", "queues", "hours", "runs"):
        disk.sync_dir(f"{SHARD}/{part}")
    last = last_frame(plan)
    if last is None:
        return  # an empty log: a checkpoint has nothing to describe
    checkpoint = _checkpoint(plan, sums, adoptions, list(names.values()), made, last)
    halves, half_columns = open_halves(spark, plan_text(plan), sums, set(names))
    checkpoint.registry |= halves
    checkpoint.columns |= {
        "queues": np.array(lengths, QUEUE),
        "progress": np.array(made.columns["progress"], PROGRESS),
        **acked_columns(made.columns["acked"]),
        "leases": np.array(made.columns["leases"], LEASE),
        **held_columns(made.columns["held"]),
        **half_columns,
    }
    meta = files_of(plan.root).path(META).read_bytes()
    content = encode_checkpoint(checkpoint)
    replace_file(disk, f"{SHARD}/checkpoint", checkpoint_name(plan.end), content)
    clock = files_of(plan.root).path(_CLOCK)
    if clock.is_file():
        replace_file(disk, "", _CLOCK, clock.read_bytes())
    replace_file(disk, "", META, meta)
    disk.sync_dir(SHARD)
    disk.sync_dir("")


def _checkpoint(
    plan: LogPlan,
    sums: Sums,
    adopted: Sequence[Adoption],
    topics: list[dict[str, Any]],
    made: RebuiltParts,
    last: FrameHeader,
) -> Checkpoint:
    counts = {
        name: sum(row["n"] for row in sums.rows_of_metric(name))
        for name in ("HANDED", "RECALL", "MOVED", "EXPIRED")
    }
    groups, of_topics = named(sums, "group"), named(sums, "topic")
    newest = sorted((row["a"], row["top"]) for row in sums.rows_of_metric("segment"))
    adoptions: dict[str, int] = {}
    fingerprints: dict[str, str] = {}
    for adoption in adopted:
        note(adoptions, fingerprints, adoption)
    registry: dict[str, Any] = {
        "topics": topics,
        "groups": list(groups.rows.values()),
        "last_topic": of_topics.last,
        "dropped_topics": of_topics.dropped,
        "last_group": groups.last,
        "adoptions": list(adoptions.items()),
        "fingerprints": fingerprints,
        "wall_ms": plan.newest_ms,
        "hours": made.hours,
        "far": made.far(),
        "appended": [],
        "handed_over": counts["HANDED"],
        "recalled": counts["RECALL"] + counts["MOVED"],
        "expired": counts["EXPIRED"],
        "log": {"start": 0, "newest_ms": newest},
    }
    store_ms = max([plan.newest_ms, *(row["top"] for row in sums.rows_of_metric("store"))])
    return Checkpoint(
        shard=last.shard,
        epoch=last.epoch,
        log_id=plan.log_id,
        position=plan.end,
        last_frame=last.base,
        durable=plan.end,
        store_ms=store_ms,
        registry=registry,
        columns={name: np.empty(0, dtype) for name, dtype in COLUMNS.items()},
    )
