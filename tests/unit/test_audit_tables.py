"""The small tables of an audit, from what the segments of a log add up to."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from horolog.cli.exits import Exit, exit_of
from horolog.cli.on_spark import say_nothing_of_ctrl_c
from horolog.cli.pipeline_audit import verdict, write_page
from horolog.errors import ErrorCode, HorologError
from horolog.pipeline.audit import AuditResult
from horolog.pipeline.audit_tables import (
    Sums,
    funnel_table,
    lateness_table,
    percentiles,
    totals_table,
)
from horolog.pipeline.log_totals import buckets_of
from horolog.pipeline.report import bars, duration, number, table

NAMES = ("metric", "topic", "hour", "a", "b", "n", "top", "text")


def sums(*rows: tuple[object, ...]) -> Sums:
    return Sums(pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows]))


def test_buckets_are_exact_below_a_second_and_near_above() -> None:
    late = np.array([0, 1, 999, 1_023, 1_024, 10_001, 86_400_123], np.int64)
    low = buckets_of(late)
    assert low[:4].tolist() == [0, 1, 999, 1_023]
    assert bool((low <= late).all())
    assert bool((late - low <= late * 0.002).all())


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_sorted_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    every = np.sort(rng.integers(0, 200, 1_000))
    values, counts = np.unique(every, return_counts=True)
    wanted = [int(every[-(-len(every) * percent // 100) - 1]) for percent in (50, 95, 99)]
    assert percentiles(values, counts) == wanted


def test_tables_have_names_and_add_up() -> None:
    shown = sums(
        ("topic", -1, 0, 40, 0, 1, 40, '{"number":1,"name":"old","type":"delay","queues":1}'),
        ("topic", -1, 0, 90, 0, 1, 90, '{"number":1,"name":"calls","type":"delay","queues":2}'),
        ("group", -1, 0, 120, 0, 1, 120, '{"number":1,"name":"gates"}'),
        ("SCHEDULED", 1, 5, 0, 0, 10, 0, ""),
        ("HANDED", 1, 5, 0, 0, 8, 18_000_500, ""),
        ("late", 1, 5, 0, 0, 7, 0, ""),
        ("late", 1, 5, 30, 0, 1, 31, ""),
        ("grant", 1, 0, 1, 1, 8, 0, ""),
        ("grant", 1, 0, 1, 2, 2, 0, ""),
        ("ack", 1, 0, 1, 0, 8, 0, ""),
        ("HANDED", 7, 5, 0, 0, 1, 3, ""),
    )
    totals = totals_table(shown, []).to_pylist()
    assert [row["topic"] for row in totals] == ["calls", "topic 7"]
    assert (totals[0]["scheduled"], totals[0]["handed_over"]) == (10, 8)
    lateness, histogram = lateness_table(shown)
    (hour,) = lateness.to_pylist()
    assert (hour["p50_ms"], hour["p99_ms"], hour["max_ms"]) == (0, 30, 31)
    assert hour["hour_ms"] == 5 * 3_600_000
    assert histogram["hand_overs"].to_pylist() == [7, 1]
    funnel = [(row["attempt"], row["messages"]) for row in funnel_table(shown).to_pylist()]
    assert funnel == [(0, 8), (1, 8), (2, 2)]
    assert shown.newest_due_ms == 18_000_500


def test_a_promotion_is_not_scheduled_twice() -> None:
    adopt = '{"app":"promote:1:1","version":5}'
    shown = sums(
        ("SCHEDULED", 1, 5, 0, 0, 10, 0, ""),
        ("ADOPTED", 1, 5, 700, 0, 10, 0, ""),
        ("ADOPTED", 1, 5, 900, 0, 3, 0, ""),
        ("adopt", -1, 0, 700, 0, 1, 700, adopt),
        ("adopt", -1, 0, 900, 0, 1, 900, '{"app":"load","version":0}'),
    )
    (row,) = totals_table(shown, []).to_pylist()
    assert (row["scheduled"], row["adopted"]) == (10, 3)


def test_loads_whose_files_are_gone_are_counted_but_not_promotions() -> None:
    adopt = '{"app":"promote:1:1","version":5}'
    shown = sums(
        ("ADOPTED", 1, 5, 900, 0, 3, 0, ""),
        ("adopt", -1, 0, 700, 0, 1, 700, adopt),
        ("adopt", -1, 0, 800, 0, 1, 800, '{"app":"load","version":0}'),
    )
    gone = [{"topic": 1, "a": 700, "n": 50}, {"topic": 1, "a": 800, "n": 7}]
    (row,) = totals_table(shown, gone).to_pylist()
    assert (row["scheduled"], row["adopted"]) == (0, 10)


def test_an_empty_log_has_empty_tables() -> None:
    shown = sums(("frames", -1, 0, 0, 0, 0, 0, ""))
    lateness, histogram = lateness_table(shown)
    assert (len(lateness), len(histogram), len(totals_table(shown, []))) == (0, 0, 0)


def test_what_a_page_shows_is_escaped() -> None:
    assert "&lt;b&gt;" in table(("<b>",), [("<i>",)])
    assert "<i>" not in table(("a",), [("<i>",)])
    assert number(12_345) == "12,345"
    assert [duration(ms) for ms in (5, 1_500, 90_000, 7_200_000)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "2 h",
    ]
    assert bars([], []).startswith("<p")
    assert bars([1, 3], ["x<", "y"], hot=1).count("<rect") == 4, "two bars, wide and narrow"


def test_faults_have_an_exit_code_of_their_own() -> None:
    """1 is what a job exits with that could not read a file, and a Python that crashed."""
    empty = pa.table({})
    result = AuditResult("d", 0, 0, 0, 0, empty, empty, empty, empty)
    assert verdict(result) == Exit.OK
    for faulty in (replace(result, counts={"lost": 1}), replace(result, damaged=[(0, 8)])):
        assert verdict(faulty) == Exit.FAULTS
    assert Exit.FAULTS not in {exit_of(HorologError(code, "why")) for code in ErrorCode}


def test_a_report_for_which_there_is_no_space_is_named_and_removed(tmp_path: Path) -> None:
    """The sentence was "No space left on device", without a file."""
    page = tmp_path / "report.html"
    page.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as failed:
        write_page(tmp_path, "<html>" * 10_000)
    assert failed.value.filename == str(page)
    assert not page.is_symlink()
    write_page(tmp_path, "<html>")
    assert page.read_text() == "<html>"


def test_ctrl_c_shows_no_traceback_of_a_library(caplog: pytest.LogCaptureFixture) -> None:
    say_nothing_of_ctrl_c()
    for error in (KeyboardInterrupt, ValueError):
        try:
            raise error
        except error:
            logging.exception("while sending command")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
