"""Slices: of one size whatever the due times are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horolog.limits import ADOPTION_FILES_MAX
from horolog.spark.load_plan import plan_slices, slice_rows


def plan(counts, wanted=100):
    minutes = np.array(sorted(counts), np.int64)
    return plan_slices(minutes, np.array([counts[m] for m in minutes.tolist()], np.int64), wanted)


def sizes(counts, made) -> list[float]:
    """Rows of each slice when those of a minute are dealt out evenly."""
    found = [0.0] * made.slices
    for minute, first, salts in zip(made.minutes, made.first, made.salts, strict=True):
        for salt in range(salts):
            found[first + salt] += counts[int(minute)] / salts
    return found


@given(st.dictionaries(st.integers(0, 600), st.integers(1, 2_000), min_size=1, max_size=80))
def test_slices_are_of_one_size_and_an_hour_with_many_rows_has_its_own(counts) -> None:
    made = plan(counts)
    found = sizes(counts, made)
    assert all(0 < size <= 125 for size in found)
    assert sum(found) == sum(counts.values()) or abs(sum(found) - sum(counts.values())) < 1e-6
    hours = {}
    for minute, first, salts in zip(made.minutes, made.first, made.salts, strict=True):
        for salt in range(salts):
            hours.setdefault(int(first + salt), set()).add(int(minute) // 60)
    totals = {}
    for minute, count in counts.items():
        totals[minute // 60] = totals.get(minute // 60, 0) + count
    for of_slice in hours.values():
        assert len(of_slice) == 1 or all(totals[hour] < 100 for hour in of_slice)


def test_half_of_an_hour_in_one_minute_is_dealt_over_slices() -> None:
    counts = {60 + minute: 10 for minute in range(59)} | {119: 590}
    made = plan(counts)
    assert made.salts.tolist() == [1] * 59 + [6]
    assert max(sizes(counts, made)) <= 125


def test_sparse_hours_share_a_slice() -> None:
    made = plan({hour * 60: 1 for hour in range(1_000)})
    assert made.slices == 8


def test_nothing_is_one_slice() -> None:
    assert plan({}).slices == 1


def test_so_many_slices_as_help() -> None:
    assert slice_rows(10_000, 2) == 50_000
    assert slice_rows(1_000_000, 2) == 250_000
    assert slice_rows(100_000_000, 2) == 300_000
    rows = 100_000_000_000
    assert rows / slice_rows(rows, 64) < ADOPTION_FILES_MAX
