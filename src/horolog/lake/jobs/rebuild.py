"""The rebuild of the lake's state from the log: its offloads, and which messages it has.

Steps are applied in log order by the broker's own `Lake`.  The messages that an offload took need
no list: all that were filed in the far store, or adopted, before its `begin`, are due at or after
`from_ms`, and waited when it was committed.

An offload that is under way at the end of the log cannot continue, because the runs that it froze
are rebuilt.  It becomes `broken`: it must be aborted, which changes nothing, and begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.delay.far.adopted import Adoption
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.stages import Event
from horolog.lake.core.state import Lake
from horolog.lake.core.steps import LakeStep, step_of
from horolog.limits import HOUR_MS, NEAR_HOURS
from horolog.log.controls import content_of
from horolog.log.record import ENVELOPE_BYTES, Kind
from horolog.pipeline.rebuild_tasks import Batches, Task, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEVER_MS = 1 << 62
_RECALLED = "number long, topic int, origin long, origin_row long, due_ms long"


class PlacedStep(NamedTuple):
    """A step, and where its record is in the log."""

    position: int
    end: int
    step: LakeStep


class Cut(NamedTuple):
    """A committed offload, with the log positions of its steps."""

    offload_id: int
    from_ms: int
    begun: int
    frozen: int
    committed: int


def read_steps(spark: SparkSession, plan: str) -> list[PlacedStep]:
    """Read all steps in log order; `plan` is the plan of the log as text."""
    source = spark.read.format("horolog_log_controls").option("plan", plan)
    rows = source.option("kinds", Kind.OFFLOAD.name).load().select("position", "payload")
    found = []
    for position, payload in sorted(rows.collect()):
        content = bytes(payload)
        end = position + ENVELOPE_BYTES + len(content)  # end of the frame, for a commit
        found.append(PlacedStep(position, end, step_of(*content_of(Kind.OFFLOAD, content))))
    return found


def cuts_of(steps: Sequence[PlacedStep]) -> list[Cut]:
    """Return the committed offloads, in order; no two overlap."""
    begun: dict[int, PlacedStep] = {}
    frozen: dict[int, int] = {}
    cuts = []
    for placed in steps:
        fields = placed.step.fields
        offload_id = fields.get("number", 0)
        match fields["step"]:
            case "begin":
                begun[offload_id] = placed
            case "frozen":
                frozen[offload_id] = placed.position
            case "commit":
                first = begun[offload_id]
                from_ms = int(first.step.fields["from_ms"])
                at = first.position, frozen[offload_id], placed.position
                cuts.append(Cut(offload_id, from_ms, *at))
    return cuts


def recall_positions(steps: Sequence[PlacedStep]) -> list[int]:
    """Return the log positions of recalls of messages in the lake: they change no file on disk."""
    return [placed.position for placed in steps if placed.step.fields["step"] == "recalled"]


def rows_taken(steps: Sequence[PlacedStep]) -> dict[str, int]:
    """Return how many rows of each adopted file went to the lake, by its name."""
    found: dict[str, int] = {}
    for placed in steps:
        for name, n in placed.step.fields.get("adopted", {}).items():
            found[name] = found.get(name, 0) + n
    return found


def lake_of(
    steps: Sequence[PlacedStep], adoptions: Sequence[Adoption], recalled: npt.NDArray[Any]
) -> Lake:
    """Build the state of the lake at the end of the log.

    recalled  LAKE_ROW rows: messages of committed offloads that were recalled while frozen
              (`recalled_frozen`)
    """
    lake = Lake()
    events: list[tuple[int, PlacedStep | Adoption]] = [(step.position, step) for step in steps]
    events += [(adoption.position, adoption) for adoption in adoptions]
    for _, event in sorted(events, key=itemgetter(0)):
        if isinstance(event, PlacedStep):
            _apply(lake, event, recalled)
        elif event.promotion is not None:
            lake.apply_promotion(*event.promotion)
    if lake.open is not None:
        lake.happened(lake.open.offload_id, Event.REBUILT)
    return lake


def _apply(lake: Lake, placed: PlacedStep, recalled: npt.NDArray[Any]) -> None:
    fields = placed.step.fields
    offload_id = fields.get("number", 0)
    match fields["step"]:
        case "begin":
            lake.begin(offload_id, fields["app"], fields["from_ms"])
        case "frozen":
            lake.happened(offload_id, Event.FREEZE)
        case "commit":
            lake.remember_recalled(recalled[recalled["number"] == offload_id])
            lake.commit(offload_id, fields, placed.end, placed.step.counts)
        case "abort":
            lake.abort(offload_id)
        case "recalled":
            lake.recall(placed.step.recalled)


def keep_untaken(cuts: Sequence[Cut]) -> Task:
    """Make a task that keeps the SCHEDULED rows that no offload has taken."""
    begun = np.array([cut.begun for cut in cuts], np.int64)
    from_ms = np.array([*(cut.from_ms for cut in cuts), _NEVER_MS], np.int64)
    lowest_ms = np.minimum.accumulate(from_ms[::-1])[::-1]  # of a cut and of all later ones

    def left(batches: Batches) -> Batches:
        for batch in batches:
            position, due_ms, append_ms = columns_of(batch, "position", "due_ms", "append_ms")
            bound_ms = lowest_ms[np.searchsorted(begun, position, side="right")]
            stays = ~_is_far(due_ms, append_ms) | (due_ms < bound_ms)
            yield batch.filter(pa.array(stays))

    return left


def _is_far(due_ms: npt.NDArray[Any], append_ms: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages filed in the far store, by the append time of their frame."""
    far: npt.NDArray[np.bool_] = due_ms // HOUR_MS > append_ms // HOUR_MS + NEAR_HOURS
    return far


def scheduled_rows(every: DataFrame) -> DataFrame:
    """Return the rows of the log that schedule a message."""
    return every.where("kind in ('SCHEDULED', 'PROMOTED')")


def recalled_frozen(every: DataFrame, cuts: Sequence[Cut], others: Sequence[int]) -> Any:
    """Return LAKE_ROW rows of messages recalled or moved between `frozen` and `commit`.

    Only messages that the offload in question took.

    every   rows of the log
    others  positions of recalls to ignore (`recall_positions`)
    """
    recalls = every.where("kind in ('RECALL', 'MOVED', 'EXPIRED')")
    recalls = recalls.mapInArrow(_within(cuts, others), _RECALLED)
    appended = scheduled_rows(every).selectExpr("position as origin", "append_ms")
    rows = recalls.join(appended, "origin", "left").toArrow()
    # Adopted rows have no append time: they are in the far store
    append_ms = rows.column("append_ms").fill_null(0).to_numpy()
    far = _is_far(rows.column("due_ms").to_numpy(), append_ms)
    recalled = np.empty(len(rows), LAKE_ROW)
    for name, column in (("number", "number"), ("topic", "topic"), ("due_ms", "due_ms")):
        recalled[name] = rows.column(column).to_numpy()
    recalled["position"] = rows.column("origin").to_numpy()
    recalled["row"] = rows.column("origin_row").to_numpy()
    recalled = recalled[far]
    return recalled[np.lexsort((recalled["row"], recalled["position"]))]


def _within(cuts: Sequence[Cut], others: Sequence[int]) -> Task:
    table = np.array([*cuts, (0, _NEVER_MS, 0, _NEVER_MS, _NEVER_MS)], np.int64)
    others_at = np.array(others, np.int64)

    def within(batches: Batches) -> Batches:
        for batch in batches:
            position, origin, due_ms = columns_of(batch, "position", "origin", "due_ms")
            cut = table[np.searchsorted(table[:, 4], position, side="left")]
            mine = (position > cut[:, 3]) & (origin < cut[:, 2]) & (due_ms >= cut[:, 1])
            mine &= ~np.isin(position, others_at)
            chosen = batch.filter(pa.array(mine)).select(
                ["topic", "origin", "origin_row", "due_ms"]
            )
            offload_id = pa.array(cut[mine, 0])
            yield pa.RecordBatch.from_arrays(
                [offload_id, *chosen.columns], ["number", *chosen.schema.names]
            )

    return within
