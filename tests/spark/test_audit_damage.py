"""Messages whose schedules are in damage of the log: the audit calls them unproven, however much is damaged."""

from __future__ import annotations

import pytest

from horolog.pipeline.audit_faults import faults_of_messages

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
