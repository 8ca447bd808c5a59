"""What a rebuild works out of offloads, without Spark: which messages they took, and the state of the lake."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from audited import message

from horolog.delay.far.adopted import Adoption, Provenance
from horolog.delay.far.run_state import decode_run_state
from horolog.delay.run.reader import RunInfo
from horolog.delay.state import EntryState
from horolog.delay.tier import Promotion
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.stages import Stage
from horolog.lake.core.state import Lake
from horolog.lake.core.state_file import COUNT
from horolog.lake.core.steps import step_of
from horolog.lake.jobs.rebuild import (
    Cut,
    PlacedStep,
    cuts_of,
    keep_untaken,
    lake_of,
    recall_positions,
    rows_taken,
)
from horolog.limits import HOUR_MS, NEAR_HOURS
from horolog.pipeline.data_files import LogPlan, plan_text
from horolog.pipeline.rebuild_adopted import File, rebuild_run_state
from horolog.pipeline.rebuild_checkpoint import RebuiltParts
from horolog.pipeline.rebuild_tasks import Target
from horolog.storage.disk import Disk
from horolog.testing.adopted_runs import write_adopted

NOW = 490_000  # hour
FAR_MS = (NOW + NEAR_HOURS + 1) * HOUR_MS


def placed(position: int, step: str, table: bytes = b"", **fields: object) -> PlacedStep:
    return PlacedStep(position, position + 100, step_of({"step": step, **fields}, table))


def story() -> list[PlacedStep]:
    """One offload that was given up, one in the lake with a recall, one under way."""
    counts = np.array([(2, NOW + 50, 1, 4), (2, NOW + 51, 1, 2)], COUNT)
    gone = np.array([(2, 700, 0, 1, (NOW + 50) * HOUR_MS)], LAKE_ROW)
    return [
        placed(1_000, "begin", number=1, app="a", from_ms=FAR_MS),
        placed(1_100, "frozen", number=1),
        placed(1_200, "abort", number=1),
        placed(2_000, "begin", number=2, app="a", from_ms=FAR_MS + HOUR_MS),
        placed(2_100, "frozen", number=2),
        placed(2_900, "commit", counts.tobytes(), number=2, uri="x", rows=7, adopted={"f": 3}),
        placed(3_000, "recalled", gone.tobytes()),
        placed(4_000, "begin", number=3, app="b", from_ms=FAR_MS),
        placed(4_100, "frozen", number=3),
    ]


def test_steps_say_what_was_taken_and_what_waits() -> None:
    steps = story()
    assert cuts_of(steps) == [Cut(2, FAR_MS + HOUR_MS, 2_000, 2_100, 2_900)]
    assert recall_positions(steps) == [3_000]
    assert rows_taken(steps) == {"f": 3}
    frozen = np.array([(2, 650, 0, 1, (NOW + 51) * HOUR_MS)], LAKE_ROW)
    lake = lake_of(steps, [], frozen)
    assert lake.counts_before(1 << 40) == [(2, NOW + 50, 1, 3), (2, NOW + 51, 1, 2)]
    assert sorted(lake.recalled_of(2)["position"].tolist()) == [650, 700]
    assert {n: each.stage for n, each in lake.offloads.items()} == {2: Stage.LAKE, 3: Stage.BROKEN}
    assert (lake.offloads[2].position, lake.offloads[2].rows, lake.next) == (3_000, 7, 4)


def test_an_hour_that_was_promoted_is_not_in_the_lake() -> None:
    back = Adoption(3_500, Promotion(2, NOW + 50, 1).app, NOW + 50, 1, 1, 3, [])
    other = Adoption(2_500, "load", NOW + 51, 1, 1, 3, [])
    lake = lake_of(story(), [other, back], np.empty(0, LAKE_ROW))
    assert lake.counts_before(1 << 40) == [(2, NOW + 51, 1, 2)]
    assert len(lake.recalled_of(2)) == 0


def test_taken_is_what_was_far_before_the_begin_and_is_due_late_enough() -> None:
    cuts = [
        Cut(1, FAR_MS + 9 * HOUR_MS, 1_000, 1_100, 1_200),
        Cut(2, FAR_MS, 2_000, 2_100, 2_200),
        Cut(4, FAR_MS + 5 * HOUR_MS, 3_000, 3_100, 3_200),
    ]
    rows = [  # position, due ms, append ms, whether it stays
        (100, FAR_MS, NOW * HOUR_MS, False),  # by the second
        (100, FAR_MS - 1, NOW * HOUR_MS, True),
        (1_999, FAR_MS + 9 * HOUR_MS, NOW * HOUR_MS, False),
        (1_999, FAR_MS, (NOW + 1) * HOUR_MS - 1, False),
        (1_999, FAR_MS, (NOW + 1) * HOUR_MS, True),  # filed in its hour
        (2_050, FAR_MS, NOW * HOUR_MS, True),  # filed after what was frozen
        (2_050, FAR_MS + 5 * HOUR_MS, NOW * HOUR_MS, False),
        (3_001, FAR_MS + 99 * HOUR_MS, NOW * HOUR_MS, True),
    ]
    columns = [pa.array(column, pa.int64()) for column in list(zip(*rows, strict=True))[:3]]
    batch = pa.RecordBatch.from_arrays(columns, ["position", "due_ms", "append_ms"])
    (left,) = keep_untaken(cuts)(iter([batch]))
    assert left.column("position").to_pylist() == [row[0] for row in rows if row[3]]


@pytest.mark.parametrize(
    ("from_row", "position", "expected"),
    [
        (0, 50, {"cursor": 0, "limit": 0, "limit_ms": 0, "waiting": 0}),
        (6, 50, {"cursor": 3, "limit": 6, "limit_ms": FAR_MS + 6 * HOUR_MS, "waiting": 2}),
        (6, 2_000, {"cursor": 3, "limit": 10, "limit_ms": FAR_MS + 9 * HOUR_MS + 1, "waiting": 5}),
    ],
)
def test_an_adopted_run_is_cut_as_a_commit_cuts_it(tmp_path, from_row, position, expected) -> None:
    """Row 4 was recalled and row 7 moved before the commit; rows 0 to 2 were handed over at last."""
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        (path / "shard-00" / "runs").mkdir(parents=True)
    (old / "meta").touch()
    messages = [message("calls", row, FAR_MS + row * HOUR_MS) for row in range(10)]
    claim = write_adopted(Disk(old), "shard-00/runs", "adopted.x", messages, log_id=7, topic=1)
    info = RunInfo("adopted.x", claim.rows, claim.bytes, claim.first_ms, claim.last_ms)
    plan = LogPlan(str(old), 7, 1 << 20, 0, 0, 0, False, -1, (), (), {})
    settled = [] if not from_row else [(0, 1, 3_000), (1, 1, 3_000), (2, 1, 3_000), (4, 2, 2_500)]
    row, state, at = np.array([(-1, 0, 0), *settled, (7, 4, 2_600)], np.int64).T
    cut = Cut(1, FAR_MS + from_row * HOUR_MS, 1_000, 2_400, 2_900)
    target = Target(plan_text(plan), str(new))
    found = rebuild_run_state(
        target, File(info, Provenance(position, 0, 1, 1)), [cut], row, state, at
    )
    assert {name: found[name] for name in expected} == expected
    assert (new / "shard-00" / "runs" / "adopted.x.run").read_bytes() == (
        old / "shard-00" / "runs" / "adopted.x.run"
    ).read_bytes()
    content = (new / "shard-00" / "runs" / "adopted.x.state.0000000001").read_bytes()
    written = decode_run_state(content)
    assert written is not None
    assert set(written.maps) == (
        {EntryState.MOVED, EntryState.RECALLED} if from_row else {EntryState.MOVED}
    )


def test_a_run_number_is_given_once() -> None:
    """A task without rows writes no run, so the numbers of the others have gaps."""
    runs = [{"name": "0000000001"}, {"name": "0000000004"}]
    assert RebuiltParts({}, [], runs, [{"name": "adopted.x.000000"}], Lake(), {}).far()["next"] == 5
    assert RebuiltParts({}, [], [], [], Lake(), {}).far()["next"] == 1
