"""Durations, times and hours as people type them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.units import (
    DURATION_MAX_MS,
    TIME_MAX_MS,
    format_duration_ms,
    format_time_ms,
    parse_duration_ms,
    parse_hour,
    parse_time_ms,
    parse_unsigned,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", 90_000),
        ("24h", 86_400_000),
        ("1500ms", 1_500),
        ("1h30m", 5_400_000),
        ("1h 30min", 5_400_000),
        ("0.5s", 500),
        ("30d", 2_592_000_000),
        ("2w", 1_209_600_000),
        ("0s", 0),
        ("0.0001s", 1),  # rounded up: nothing becomes due early
        (" 5 M ", 300_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    """Units from milliseconds to weeks, alone and together."""
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "90", "s", "1x", "-5s", "1h-3m", "1e3s", "١s", "s1"])
def test_not_durations(text: str) -> None:
    """A number without a unit is not guessed to be seconds."""
    with pytest.raises(HorologError) as caught:
        parse_duration_ms(text, field="--in")
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert caught.value.field == "--in"
    assert caught.value.message.startswith("--in: ")


def test_a_bare_number_gets_a_hint() -> None:
    """The sentence says what to type instead."""
    with pytest.raises(HorologError, match=r"did you mean 90s\?"):
        parse_duration_ms("90")


def test_durations_end_at_a_century() -> None:
    """So that sums stay far from the end of 64 bits."""
    with pytest.raises(HorologError) as caught:
        parse_duration_ms("99999999999999999w")
    assert caught.value.limit == "100 years"


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2026-03-08T10:00:00Z", 1_772_964_000_000),
        ("2026-03-08T12:00:00+02:00", 1_772_964_000_000),
        ("2026-03-08 10:00Z", 1_772_964_000_000),
        ("2026-03-08T10:00:00.250Z", 1_772_964_000_250),
        ("2026-03-08T10:00:00.000001Z", 1_772_964_000_001),  # rounded up
        ("1772964000123", 1_772_964_000_123),
        # as `from_ms: 0` says it
        ("0", 0),
    ],
)
def test_times(text: str, expected_ms: int) -> None:
    """ISO 8601 with a zone, or epoch milliseconds."""
    assert parse_time_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-08T10:00:00",
        "2026-03-08",
        "tomorrow",
        "",
        "1969-01-01T00:00Z",
        "1",
        "00",
        "1772964000",
    ],
)
def test_not_times(text: str) -> None:
    """A time without a zone is not guessed to be local."""
    with pytest.raises(HorologError) as caught:
        parse_time_ms(text, field="--at")
    assert caught.value.field == "--at"


def test_hours() -> None:
    """As a number, or as any time inside."""
    assert parse_hour("492490") == 492_490
    assert parse_hour("2026-03-08T10:59:59Z") == 492_490


@given(st.integers(0, DURATION_MAX_MS))
def test_durations_read_back(duration_ms: int) -> None:
    """Printing is exact."""
    assert parse_duration_ms(format_duration_ms(duration_ms)) == duration_ms


@given(st.integers(0, TIME_MAX_MS))
def test_times_read_back(epoch_ms: int) -> None:
    """Printing is exact."""
    assert parse_time_ms(format_time_ms(epoch_ms)) == epoch_ms


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    """Any text gives a number of milliseconds or exactly this error."""
    for parse in (parse_duration_ms, parse_time_ms, parse_hour):
        with suppress(HorologError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 19, 10**19 - 1),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_0", None),
        ("²", None),
        ("٣", None),
        ("0" * 20, None),
        ("9" * 5_000, None),
    ],
)
def test_integers_are_written_in_ascii_digits(text: str, number: int | None) -> None:
    assert parse_unsigned(text) == number


def test_integers_may_have_a_shorter_limit() -> None:
    assert parse_unsigned("12", digits_max=2) == 12
    assert parse_unsigned("012", digits_max=2) is None
