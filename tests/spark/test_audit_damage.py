"""What an audit compares messages with may be long: stretches of damage, and adopted files that are gone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import spark_partition_id

from horolog.pipeline.adopted_files import are_in_files
from horolog.pipeline.audit import FINDINGS_KEPT, first_findings
from horolog.pipeline.audit_faults import SUSPECT_COLUMNS, faults_of_messages, per_message
from horolog.pipeline.data_files import AdoptedFile, LogPlan

_COLUMNS = (
    "origin long, origin_row long, scheduled long, hand_overs long, recalls long, topic int,"
    " came_back boolean, planned_ms long, handed_due_ms long, planned_key long, handed_key long,"
    " seen_ms long, stored_ms long, handed_at long, handed_size int, planned_size int,"
    " forgotten boolean, due_ms long"
)


@pytest.mark.filterwarnings("error:.*arrow UDF")
def test_many_damaged_stretches_are_all_known(spark) -> None:
    """Stretch n is [1000 n, 1000 n + 10); one of two messages is handed over from there, in order of n."""
    count = 3_000
    damaged = [(1_000 * n, 1_000 * n + 10) for n in range(count)]
    damaged += [(5_000, 5_500), (5_100, 5_200)]
    origins = [5_300, *range(9, 1_000 * count, 100_000), *range(10, 1_000 * count, 100_000)]
    rows = [
        (
            origin,
            0,
            0,
            1,
            0,
            1,
            False,
            None,
            50,
            None,
            origin,
            60,
            60,
            10**9 + n,
            9,
            None,
            False,
            50,
        )
        for n, origin in enumerate(origins)
    ]
    found = faults_of_messages(
        spark.createDataFrame(rows, _COLUMNS),
        horizon_ms=100,
        late_ms=100,
        promoted=[],
        damaged=sorted(damaged),
        retried=[],
    ).collect()
    unproven = {5_300, *range(9, 1_000 * count, 100_000)}
    assert {row.origin: row.fault for row in found} == {
        origin: "unproven" if origin in unproven else "never_scheduled" for origin in origins
    }


@pytest.mark.filterwarnings("error:.*arrow UDF")
def test_many_files_that_are_gone_are_all_known(spark) -> None:
    """An adoption may have 4,096 files; once they are finished, what is handed over of them is not a fault."""
    files = tuple(AdoptedFile(500, 10 * n, 10, f"adopted.{n}") for n in range(3_000))
    plan = LogPlan("", 7, 1 << 20, 0, 10**6, 0, False, -1, (), (), {}, (), files)
    expected = {
        (500, 0): True, (500, 29_999): True, (500, 30_000): False, (501, 5): False, (7, 0): False
    }  # fmt: skip
    rows = [
        ("HANDED", 900_000 + n, origin, row, 1, n, 50, 60, 60, 9)
        for n, (origin, row) in enumerate(expected)
    ]
    found = per_message(spark.createDataFrame(rows, SUSPECT_COLUMNS), plan).collect()
    assert {(row.origin, row.origin_row): row.forgotten for row in found} == expected


def test_rows_of_files_are_found_as_one_by_one() -> None:
    chance = np.random.default_rng(3)
    files = [
        AdoptedFile(position, first, int(chance.integers(1, 10)), "")
        for position in (0, 500, 501, 1 << 50)
        for first in (0, 10, 20, 40)
    ]
    origins = chance.choice([-1, 0, 7, 500, 501, 502, 1 << 50, 1 << 51], 2_000)
    rows = chance.integers(0, 60, 2_000)
    expected = np.zeros(2_000, np.bool_)
    for file in files:
        within = (rows >= file.first_row) & (rows < file.first_row + file.rows)
        expected |= (origins == file.position) & within
    assert are_in_files(files, origins, rows).tolist() == expected.tolist()
    assert not are_in_files([], origins, rows).any()


def test_messages_that_nobody_has_seen_are_divided_among_tasks(spark) -> None:
    """After a long stop of a broker nearly all messages are such."""
    nothing = (None,) * 5
    rows = [(n, 0, 1, 0, 0, 1, False, 50, None, n, *nothing, 9, False, 50) for n in range(1_000)]
    joining = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(joining, "false")
    try:
        faults = faults_of_messages(
            spark.createDataFrame(rows, _COLUMNS),
            horizon_ms=100,
            late_ms=100,
            promoted=[],
            damaged=[],
            retried=[],
        )
        by_task = faults.groupBy("fault", spark_partition_id().alias("task")).count().collect()
    finally:
        spark.conf.unset(joining)
    assert {row.fault for row in by_task} == {"missing"}
    assert sum(row["count"] for row in by_task) == 1_000
    assert max(row["count"] for row in by_task) < 700  # of two tasks


def test_only_the_first_findings_are_read(tmp_path) -> None:
    """The rest may be larger than the driver's memory; here it cannot be read at all."""
    many = pa.table({"origin": list(range(FINDINGS_KEPT + 5))})
    pq.write_table(many, tmp_path / "part-0.parquet")
    (tmp_path / "part-1.parquet").write_bytes(b"not read")
    assert first_findings(tmp_path)["origin"].to_pylist() == list(range(FINDINGS_KEPT))
    pq.write_table(many.slice(0, 0), tmp_path / "part-0.parquet")
    pq.write_table(many.slice(0, 3), tmp_path / "part-1.parquet")
    assert first_findings(tmp_path)["origin"].to_pylist() == [0, 1, 2]
    assert first_findings(tmp_path / "part-1.parquet").num_rows == 3
