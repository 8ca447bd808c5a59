"""The demo's airline: what it derives from a day of departures, and when it does it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"

ROW = {"month": "3", "day": "8", "carrier": "UA", "origin": "EWR", "dest": "BOS"}


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which is a program in `examples/` and not part of the package."""
    monkeypatch.syspath_prepend(str(FLIGHTS))
    monkeypatch.delitem(sys.modules, "day", raising=False)
    return importlib.import_module("day")


def row(flight: int, scheduled: str, delay: str = "NA") -> dict[str, str]:
    """One row of the table; a delay of "NA" is a cancellation."""
    left = "NA" if delay == "NA" else "1"
    times = {"sched_dep_time": scheduled, "dep_time": left, "dep_delay": delay}
    return {**ROW, "flight": str(flight), **times}


def test_reads_only_the_wanted_day(day: Any) -> None:
    rows = [row(1, "1635", "83"), {**row(2, "900", "0"), "day": "9"}, row(3, "559")]
    first, second = day.flights_of(rows)
    assert first == day.Flight("UA-1-EWR", "BOS", 16 * 60 + 35, 83)
    assert second.cancelled
    assert second.scheduled_min == 5 * 60 + 59


@pytest.mark.parametrize("delay", ["-11", "0", "14"])
def test_a_small_delay_changes_nothing(day: Any, delay: str) -> None:
    (course,) = day.derive(day.flights_of([row(1, "1200", delay)]))
    assert course.call_min == 12 * 60 - 40
    assert course.news_min is None
    assert course.new_call_min is None


def test_a_cancellation_is_recalled_and_not_called_again(day: Any) -> None:
    (course,) = day.derive(day.flights_of([row(1, "1200")]))
    assert 8 * 60 <= course.news_min <= 11 * 60 + 40
    assert course.new_call_min is None


def test_a_delayed_flight_is_called_before_it_really_leaves(day: Any) -> None:
    courses = day.derive(day.flights_of([row(n, "1200", "470") for n in range(50)]))
    assert {course.new_call_min for course in courses} == {12 * 60 + 470 - 40}
    assert len({course.news_min for course in courses}) > 10


def test_a_new_call_never_comes_before_its_news(day: Any) -> None:
    courses = day.derive(day.flights_of([row(n, "1200", "15") for n in range(500)]))
    late = [course for course in courses if course.news_min >= course.call_min]
    assert 20 <= len(late) <= 80  # about nine in a hundred
    assert all(course.new_call_min >= course.news_min + 16 for course in courses)


def test_news_are_never_older_than_the_replay(day: Any) -> None:
    courses = day.derive(day.flights_of([row(n, "500") for n in range(50)]))
    assert min(course.news_min for course in courses) == day.START_MIN


def test_the_same_seed_gives_the_same_day_whatever_else_flies(day: Any) -> None:
    many = day.flights_of([row(n, "1800", "60") for n in range(20)])
    alone = day.derive(many[7:8])
    assert alone == [course for course in day.derive(many) if course.flight == many[7]]
    assert day.derive(many) != day.derive(many, seed=1)


def test_due_times_are_whole_seconds_rounded_up(day: Any) -> None:
    timeline = day.Timeline(1_000, start_min=180)
    assert [timeline.due_s(minute) for minute in (180, 181, 187, 188, 189)] == [
        1_000, 1_001, 1_001, 1_001, 1_002,
    ]  # fmt: skip
    assert timeline.at_s(181) == 1_000.125
    assert timeline.minute(timeline.at_s(333)) == 333
    assert timeline.due_s(180 + 24 * 60) == 1_000 + 180  # the whole day in three minutes


def test_part_of_a_day(day: Any) -> None:
    rows = [row(1, "1359", "0"), row(2, "1400", "0"), row(3, "1630", "31"), row(4, "1659")]
    flights = day.flights_of(rows)
    assert [flight.key for flight in day.between(flights, 14, 17)] == ["UA-2-EWR", "UA-4-EWR"]


@pytest.mark.parametrize(("minute", "text"), [(300, "05:00"), (1439.9, "23:59"), (1641, "03:21+1")])
def test_clock_text(day: Any, minute: float, text: str) -> None:
    assert day.clock_text(minute) == text
