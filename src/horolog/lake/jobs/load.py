"""Counts of the messages in the lake at the end of the log, by hour and topic.

Without the table no more is known of them.
"""

from __future__ import annotations

from horolog.delay.far.adopted import Adoption
from horolog.lake.core.stages import Stage
from horolog.lake.core.state import Lake, Offload, restore_lake
from horolog.lake.core.steps import step_of
from horolog.limits import HOUR_MS
from horolog.log.checkpoint import Checkpoint
from horolog.log.record import Kind
from horolog.pipeline.data_files import LogPlan, files_of
from horolog.pipeline.log_walk import controls_of, walk_log
from horolog.pipeline.pending_rows import damaged
from horolog.storage.meta import SHARD


def lake_rows(plan: LogPlan, checkpoint: Checkpoint | None) -> list[tuple[int, int, int]]:
    """Return (topic, first second of the hour, messages), to be added to files' and log's counts.

    Messages that an offload has taken after the checkpoint still count among the runs that the
    checkpoint names.  Messages promoted since then count as adopted, and so are subtracted here.
    """
    lake = Lake()
    if checkpoint is not None:
        row = checkpoint.registry.get("far", {}).get("lake", {})
        for bad in restore_lake(lake, files_of(plan.root), f"{SHARD}/runs", row):
            raise damaged(bad.label, bad.why)
    rows = [
        (topic, hour * HOUR_MS // 1000, n)
        for _, hour, topic, n in lake.counts_before((1 << 62) // HOUR_MS)
    ]
    for stretch in walk_log(plan, start=max(plan.start, plan.checkpoint), check=False):
        for _, control in controls_of(stretch, Kind.OFFLOAD):
            step = step_of(*control.content)
            if len(step.counts):
                offload_id = step.fields["number"]
                lake.offloads.setdefault(offload_id, Offload(offload_id, "", 0)).stage = Stage.LAKE
                lake.add_waiting(offload_id, step.counts)
        for _, control in controls_of(stretch, Kind.ADOPT):
            adoption = Adoption.of(control.position, control.content)
            if adoption.promotion is not None:
                offload_id, hour, topic = adoption.promotion
                waited = lake.apply_promotion(offload_id, hour, topic)
                rows.append((topic, hour * HOUR_MS // 1000, -waited))
    return rows
