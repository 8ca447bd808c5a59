"""The screen: four numbers a message row, from which one aggregation tells all messages that need no closer look.

Rows are grouped by `key`, the 64-bit hash of topic and message id.  `proof` is a hash of (origin, due time, key), the
same for a schedule and for what settles it, so the XOR of a group is 0 when everything in it is settled once.
A hand-over that is early or too late has a proof that fits nothing.  Where keys collide two messages share a group,
and have a closer look: the screen may suspect in vain, but passes nothing over.

=========  ===================================================================================================
column     meaning
=========  ===================================================================================================
key        hash of topic and message id
proof      XOR to 0 if settled once; 0 for what is forgotten: its schedule is not in the log any more
weight     0 for a schedule, 1 for a hand-over, 2³² for a recall or move
due_ms     of a schedule; 2⁶² for what settles it, so that the least one of a group says when it is due
=========  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import LongType, StructField, StructType

from horolog.pipeline.data_files import LogPlan, plan_of
from horolog.pipeline.log_rows import SCHEDULES, LogRows, RowKind
from horolog.pipeline.log_source import PlannedReader, Window, need, window_of
from horolog.pipeline.log_totals import is_early, is_forgotten
from horolog.verify.balance import mixed

SCREEN_SCHEMA = StructType(
    [StructField(name, LongType()) for name in ("key", "proof", "weight", "due_ms")]
)
SETTLED = 1 << 32
NEVER = 1 << 62
_SCREENED = (
    *SCHEDULES,
    RowKind.HANDED,
    RowKind.RECALL,
    RowKind.MOVED,
)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def proofs(rows: LogRows) -> npt.NDArray[np.uint64]:
    """A hash of origin, due time and key."""
    rows_part = mixed(rows.origin_row.astype(np.uint64) * _ODD)
    return mixed(
        mixed(rows.origin.astype(np.uint64) ^ rows_part)
        ^ (rows.due_ms.astype(np.uint64) * _ODD)
        ^ rows.key.view(np.uint64)
    )


class Screen:
    """Makes the columns; `late_ms`: hand-overs that are later have a closer look."""

    def __init__(self, late_ms: int) -> None:
        self._late_ms = late_ms

    def __call__(self, plan: LogPlan, rows: LogRows, names: Sequence[str]) -> dict[str, Any]:
        """Columns of SCREEN_SCHEMA."""
        del names
        forgotten = is_forgotten(plan, rows)
        is_schedule = np.isin(rows.kind, np.array(SCHEDULES, np.uint8))
        handed = rows.kind == RowKind.HANDED
        proof = proofs(rows)
        proof[forgotten] = 0
        bad = is_early(rows) | (handed & (rows.store_ms - rows.due_ms > self._late_ms))
        proof[bad] = mixed(rows.position[bad])
        weight = np.where(handed, 1, np.where(is_schedule, 0, SETTLED))
        weight[forgotten & ~handed] = 0
        return {
            "key": pa.array(rows.key),
            "proof": pa.array(proof.view(np.int64)),
            "weight": pa.array(weight),
            "due_ms": pa.array(np.where(is_schedule, rows.due_ms, NEVER)),
        }


class ScreenSource(DataSource):
    """`format("horolog_log_screen")`, of a plan."""

    @classmethod
    def name(cls) -> str:
        """As in `format(…)`."""
        return "horolog_log_screen"

    def schema(self) -> StructType:
        """Fixed."""
        return SCREEN_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of the plan in the options."""
        window = window_of(self.options)
        wanted = Window(window.from_ms, window.to_ms, tuple(int(kind) for kind in _SCREENED))
        late_ms = int(need(self.options, "late"))
        return PlannedReader(plan_of(need(self.options, "plan")), schema, wanted, Screen(late_ms))


def suspects(screen: DataFrame, horizon_ms: int) -> DataFrame:
    """Keys that need a closer look."""
    groups = screen.groupBy("key").agg(
        f.bit_xor("proof").alias("left"),
        f.sum("weight").alias("weight"),
        f.min("due_ms").alias("due_ms"),
    )
    handed = f.col("weight").bitwiseAND(f.lit(SETTLED - 1))
    unclear = (f.col("weight") > 0) | (f.col("due_ms") <= horizon_ms)
    return groups.where((handed >= 2) | ((f.col("left") != 0) & unclear)).select("key")
