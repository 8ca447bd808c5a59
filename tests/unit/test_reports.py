"""Pages of the audit and the forecast, from small results: what they say, and that their sums balance."""

from __future__ import annotations

from io import StringIO

import pyarrow as pa
from rich.console import Console

from horolog.pipeline import audit_report, forecast_report
from horolog.pipeline.audit import AuditResult
from horolog.pipeline.forecast import Forecast
from horolog.units import counted

HOUR_MS = 1_790_000 * 3_600_000
NUMBERS = ("scheduled", "adopted", "handed_over", "recalled", "moved", "expired", "visible_at_once")


def totals(**numbers: int) -> pa.Table:
    return pa.table(
        {"topic": ["calls"], **{name: [numbers.get(name, 0)] for name in NUMBERS}},
    )


def audited(hand_overs: int, **numbers: int) -> AuditResult:
    hours = 20 if hand_overs else 0
    lateness = pa.table(
        {
            "topic": ["calls"] * hours,
            "hour_ms": [HOUR_MS + hour * 3_600_000 for hour in range(hours)],
            "hand_overs": pa.array([hand_overs // hours] * hours if hours else [], pa.int64()),
            "p50_ms": [1] * hours,
            "p95_ms": [2] * hours,
            "p99_ms": list(range(3, 3 + hours)),
            "max_ms": [40] * hours,
        }
    )
    histogram = pa.table({"late_ms": [1, 40], "hand_overs": [hand_overs - 1, 1]})
    findings = pa.Table.from_pylist(
        [
            {
                "fault": "early", "topic": "calls", "message_id": "01" * 17, "due_ms": HOUR_MS,
                "late_ms": -1, "origin": 4_096, "origin_row": 0, "position": 1_048_576,
            }
        ]
        if hand_overs
        else []
    )  # fmt: skip
    return AuditResult(
        data_dir="/srv/horolog-data",
        log_start=0,
        log_end=123_456_789,
        horizon_ms=HOUR_MS + 86_400_000,
        late_ms=60_000,
        totals=totals(handed_over=hand_overs, **numbers),
        lateness=lateness,
        funnel=pa.table({"group": ["gates"], "topic": ["calls"], "attempt": [1], "messages": [7]}),
        findings=findings,
        counts={"early": 1} if hand_overs else {},
        records=1,
        histogram=histogram if hand_overs else histogram.slice(0, 0),
    )


def forecasted() -> Forecast:
    minutes = [HOUR_MS + n * 60_000 for n in range(300)]
    return Forecast(
        data_dir="/srv/horolog-data",
        now_ms=HOUR_MS,
        to_ms=None,
        total=12_345,
        overdue=1,
        in_lake=2_345,
        topics=pa.table(
            {"topic": ["calls"], "messages": [12_345], "first_ms": [HOUR_MS], "last_ms": [HOUR_MS]}
        ),
        minutes=pa.table(
            {
                "topic": ["calls"] * 300,
                "minute_ms": minutes,
                "messages": [n % 60 for n in range(300)],
                "peak": [1] * 300,
            }
        ),
        hottest=pa.table({"second_ms": [HOUR_MS], "messages": [1]}),
    )


def test_a_number_agrees_with_its_noun() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(0, "file") == "0 files"
    assert counted(1_234, "entry", "entries") == "1,234 entries"


def test_scheduled_and_adopted_are_shown_apart_and_balance() -> None:
    result = audited(855, scheduled=1_531, adopted=336_776, recalled=600, moved=76)
    *rows, (name, left) = audit_report.balance(result)
    assert rows[0][1] == 1_531
    assert rows[1][1] == 336_776
    assert left == sum(n for _, n in rows) == 336_776
    page = audit_report.audit_page(result)
    assert name in page
    for shown in ("1,531", "336,776", "-855", "-600", "-76"):
        assert shown in page
    assert "1 fault: 1 early." in page


def test_no_hand_overs_are_said_in_words() -> None:
    result = audited(0, scheduled=1)
    page = audit_report.audit_page(result)
    assert "No fault: 0 hand-overs of 1 scheduled message." in page
    assert "no hand-overs" in page
    assert "p50" not in page
    assert "1 record ·" in page
    said = StringIO()
    audit_report.show(Console(file=said, width=200), result)
    assert "no hand-overs" in said.getvalue()
    assert "p50" not in said.getvalue()


def test_a_forecast_says_what_lies_where() -> None:
    page = forecast_report.forecast_page(forecasted())
    assert "12,345 messages wait" in page
    assert "10,000" in page
    assert "2,345" in page
    assert "UTC: 1 message." in page


def test_a_chart_is_drawn_for_desks_and_phones() -> None:
    page = forecast_report.forecast_page(forecasted())
    assert page.count('<div class="wide"><svg') == page.count('<div class="narrow"><svg') > 0
    assert page.count("viewBox="
    ) == 2 * page.count('<div class="wide">')  # fmt: skip
