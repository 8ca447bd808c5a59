"""When rules fire: days on which clocks change, ends of months, leap years, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.calendar import cron, rules
from horolog.calendar.rules import Zones, check_firings, check_rule, firings_to_come
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CRON_MAX, DAY_MS, HOUR_MS, MINUTE_MS
from horolog.protocol.schedules import (
    Content,
    Cursor,
    Firing,
    Gap,
    Overlap,
    Rule,
    ScheduleView,
    due_of,
)
from horolog.units import parse_interval_ms, parse_time_ms

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def firings(rule: Rule, after_ms: int, count: int) -> list[Firing]:
    view = ScheduleView.made("s", rule, Content("t", b"x"), after_ms)
    return firings_to_come(Zones(), view, after_ms, count)


def fires(rule: Rule, after: str, count: int = 3) -> list[str]:
    """The next times, as local time with offset."""
    found = firings(rule, parse_time_ms(after), count)
    zone = ZoneInfo(rule.zone)
    return [
        datetime.fromtimestamp(firing.nominal_ms / 1000, UTC).astimezone(zone).isoformat(" ")[5:]
        for firing in found
    ]


def at(zone: str, cron: str, gap: Gap = Gap.SHIFT, overlap: Overlap = Overlap.FIRST) -> Rule:
    return Rule(cron, zone=zone, gap=gap, overlap=overlap)


@pytest.mark.parametrize(
    ("zone", "cron", "after", "shifted", "skipped"),
    [
        (
            BERLIN,
            "30 2 * * *",
            "2027-03-27T12:00:00Z",
            ["03-28 03:00:00+02:00", "03-29 02:30:00+02:00"],
            ["03-29 02:30:00+02:00", "03-30 02:30:00+02:00"],
        ),
        (
            NEW_YORK,
            "5,55 2 * * *",
            "2027-03-13T20:00:00Z",
            ["03-14 03:00:00-04:00", "03-15 02:05:00-04:00"],  # both of a gap are one
            ["03-15 02:05:00-04:00", "03-15 02:55:00-04:00"],
        ),
        (
            LORD_HOWE,  # half an hour is left out, from 02:00 to 02:30
            "15,40 2 * * *",
            "2027-10-02T12:00:00Z",
            ["10-03 02:30:00+11:00", "10-03 02:40:00+11:00"],
            ["10-03 02:40:00+11:00", "10-04 02:15:00+11:00"],
        ),
        (
            BERLIN,
            "0 * * * *",
            "2027-03-28T00:30:00Z",
            ["03-28 03:00:00+02:00", "03-28 04:00:00+02:00"],  # 03:00 comes once
            ["03-28 03:00:00+02:00", "03-28 04:00:00+02:00"],
        ),
    ],
)
def test_a_time_that_does_not_exist(zone, cron, after, shifted, skipped) -> None:
    assert fires(at(zone, cron), after, 2) == shifted
    assert fires(at(zone, cron, gap=Gap.SKIP), after, 2) == skipped


@pytest.mark.parametrize(
    ("zone", "cron", "after", "first", "both"),
    [
        (
            BERLIN,
            "30 2 * * *",
            "2027-10-30T12:00:00Z",
            ["10-31 02:30:00+02:00", "11-01 02:30:00+01:00"],
            ["10-31 02:30:00+02:00", "10-31 02:30:00+01:00"],
        ),
        (
            NEW_YORK,
            "0,30 1 * * *",
            "2027-11-07T05:15:00Z",
            ["11-07 01:30:00-04:00", "11-08 01:00:00-05:00"],
            ["11-07 01:30:00-04:00", "11-07 01:00:00-05:00"],
        ),
        (
            LORD_HOWE,  # half an hour comes twice, from 01:30 to 02:00
            "45 1 * * *",
            "2027-04-03T12:00:00Z",
            ["04-04 01:45:00+11:00", "04-05 01:45:00+10:30"],
            ["04-04 01:45:00+11:00", "04-04 01:45:00+10:30"],
        ),
        (
            BERLIN,  # asked in the second of the two hours
            "30 2 * * *",
            "2027-10-31T01:15:00Z",
            ["11-01 02:30:00+01:00", "11-02 02:30:00+01:00"],
            ["10-31 02:30:00+01:00", "11-01 02:30:00+01:00"],
        ),
    ],
)
def test_a_time_that_exists_twice(zone, cron, after, first, both) -> None:
    assert fires(at(zone, cron), after, 2) == first
    assert fires(at(zone, cron, overlap=Overlap.BOTH), after, 2) == both


def test_a_whole_day_that_a_zone_left_out() -> None:
    """Samoa crossed the date line: 2011-12-30 was not."""
    rule = at("Pacific/Apia", "0 12 * * *")
    assert fires(rule, "2011-12-30T00:00:00Z", 2) == [
        "12-31 00:00:00+14:00",
        "12-31 12:00:00+14:00",
    ]
    assert fires(rule._replace(gap=Gap.SKIP), "2011-12-30T00:00:00Z", 1) == ["12-31 12:00:00+14:00"]


def test_ends_of_months_and_leap_years() -> None:
    assert fires(Rule("0 0 31 * *"), "2027-01-31T00:00:00Z") == [
        "03-31 00:00:00+00:00",
        "05-31 00:00:00+00:00",
        "07-31 00:00:00+00:00",
    ]
    assert fires(Rule("0 9 L 2 *"), "2027-01-01T00:00:00Z", 2) == [
        "02-28 09:00:00+00:00",
        "02-29 09:00:00+00:00",
    ]
    leap = firings(Rule("0 0 29 2 *"), parse_time_ms("2096-03-01T00:00:00Z"), 1)
    assert leap[0].local == "2104-02-29T00:00:00", "2100 is not a leap year"


def test_a_rare_date_is_searched_for_once_whatever_changes_before_it(monkeypatch) -> None:
    """Fifth Fridays in February: 28 years apart, with 56 changes of the clocks in between."""
    asked = []
    monkeypatch.setattr(cron, "CronSim", lambda *given: asked.append(given) or CronSim(*given))
    found = firings(at(BERLIN, "0 0 * 2 5#5"), parse_time_ms("2030-01-01T00:00:00Z"), 2)
    assert [each.local[:10] for each in found] == ["2036-02-29", "2064-02-29"]
    assert len(asked) == 2


def test_seconds_intervals_starts_and_ends() -> None:
    assert fires(Rule("*/20 * * * * *"), "2027-01-01T00:00:30Z", 2) == [
        "01-01 00:00:40+00:00",
        "01-01 00:01:00+00:00",
    ]
    start = parse_time_ms("2027-01-01T10:00:00Z")
    every = Rule(every_ms=90 * MINUTE_MS, start_ms=start, end_ms=start + 3 * HOUR_MS, zone=BERLIN)
    assert fires(every, "2026-01-01T00:00:00Z", 9) == [
        "01-01 11:00:00+01:00",
        "01-01 12:30:00+01:00",
        "01-01 14:00:00+01:00",
    ]
    assert fires(every, "2027-01-01T10:00:00Z", 1) == ["01-01 12:30:00+01:00"]
    assert fires(Rule("0 0 * * *", start_ms=start), "2026-01-01T00:00:00Z", 1) == [
        "01-02 00:00:00+00:00"
    ]


def test_a_zone_that_changes_later_does_not_fire_a_local_time_again() -> None:
    """09:00 was planned at 07:00Z; with the rules of today it would be 08:00Z."""
    rule = at(BERLIN, "0 9 * * *")
    seven = parse_time_ms("2027-01-10T07:00:00Z")
    fired = Cursor(seven, "2027-01-10T09:00:00")
    found = Zones().after(rule, fired)
    assert found is not None
    assert found.local == "2027-01-11T09:00:00"
    moved_back = Zones().after(rule, Cursor(seven + 2 * HOUR_MS, "2027-01-10T09:00:00"))
    assert moved_back is not None
    assert moved_back.local == "2027-01-11T09:00:00"


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from(
        [BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu", "Africa/Casablanca"]
    ),
    cron=st.sampled_from(
        [
            "*/7 * * * *",
            "30 2 * * *",
            "0 0 * * *",
            "15 1,2,3 * * *",
            "0 12 31 * *",
            "45 1 * 3,10,11 SUN",
        ]
    ),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1)),
    gap=st.sampled_from(Gap),
    overlap=st.sampled_from(Overlap),
)
def test_times_rise_and_are_those_of_the_expression(zone, cron, start, gap, overlap) -> None:
    """Every firing is a local time of the expression, or the end of a gap; all differ, and none is left out."""
    after_ms = int(start.replace(tzinfo=UTC).timestamp()) * 1000
    rule = Rule(cron, zone=zone, gap=gap, overlap=overlap)
    found = [firing.nominal_ms for firing in firings(rule, after_ms, 30)]
    assert found == sorted(set(found))
    assert found[0] > after_ms
    info = ZoneInfo(zone)
    local = [datetime.fromtimestamp(ms / 1000, UTC).astimezone(info) for ms in found]
    for moment in local:
        naive = moment.replace(tzinfo=None)
        matches = next(CronSim(cron, naive - timedelta(seconds=1))) == naive
        after_gap = (moment.astimezone(UTC) - timedelta(seconds=1)).astimezone(info)
        assert matches or (gap is Gap.SHIFT and after_gap.utcoffset() != moment.utcoffset())
        if overlap is Overlap.FIRST:
            assert not moment.fold
    walls = {moment.replace(tzinfo=None) for moment in local}
    # One day to go on from the edges, where the other pass of a repeated hour may lie outside.
    expected = CronSim(cron, (local[0] + timedelta(days=1)).replace(tzinfo=None))
    for wall in expected:
        if wall >= local[-1].replace(tzinfo=None) - timedelta(days=1):
            break
        exists = wall.replace(tzinfo=info).astimezone(UTC).astimezone(info).replace(tzinfo=None)
        assert exists != wall or wall in walls, wall


def test_defaults_are_those_of_cron() -> None:
    daily = check_rule(Rule("30 2 * * *", zone=BERLIN), 0)
    assert (daily.gap, daily.overlap) == (Gap.SHIFT, Overlap.FIRST)
    hourly = check_rule(Rule("30 */2 * * *", zone=BERLIN), 0)
    assert (hourly.gap, hourly.overlap) == (Gap.SKIP, Overlap.BOTH)
    assert check_rule(Rule("0 * * * * *"), 0, gap=Gap.SHIFT).gap is Gap.SHIFT


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Rule(), "cron"),
        (Rule("* * * * *", every_ms=1_000), "cron"),
        (Rule("every day"), "cron"),
        (Rule("61 * * * *"), "cron"),
        (Rule("0 0 31 2 *"), "cron"),
        (Rule("0" * (CRON_MAX + 1)), "cron"),
        (Rule("* * * * *", zone="Mars/Olympus"), "zone"),
        (Rule("* * * * *", zone="../etc/passwd"), "zone"),
        # Files that systems have beside the zones
        (Rule("* * * * *", zone="posixrules"), "zone"),
        (Rule("* * * * *", zone="localtime"), "zone"),
        (Rule("* * * * *", zone="posix/Europe/Berlin"), "zone"),
        (Rule("* * * * *", zone="right/Europe/Berlin"), "zone"),
        (Rule(every_ms=999), "every_ms"),
        (Rule(every_ms=60_000, end_ms=5), "end_ms"),
        (Rule(every_ms=60_000, start_ms=20, end_ms=15), "end_ms"),
        (Rule(every_ms=60_000, jitter_ms=-1), "jitter_ms"),
        (Rule(every_ms=10 * DAY_MS, jitter_ms=DAY_MS), "jitter_ms"),
    ],
)
def test_rules_that_are_refused(rule: Rule, field: str) -> None:
    with pytest.raises(HorologError) as caught:
        check_rule(rule, 10)
    assert (caught.value.code, caught.value.field) == (ErrorCode.BAD_REQUEST, field)
    assert caught.value.message.startswith(f"{field}: ")


def check(rule: Rule) -> None:
    check_firings(rule, firings(rule, 0, 10))


def test_rules_that_never_fire_or_overtake_themselves() -> None:
    never = Rule(
        "0 0 29 2 *",
        start_ms=parse_time_ms("2097-01-01T00:00:00Z"),
        end_ms=parse_time_ms("2103-01-01T00:00:00Z"),
    )
    with pytest.raises(HorologError, match="never fires"):
        check(never)
    with pytest.raises(HorologError, match="less than the 1m between"):
        check(Rule("0,1 0 * * *", jitter_ms=60_000))
    check(Rule("0,1 0 * * *", jitter_ms=59_999))


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("rule", [Rule("0 * * * *"), Rule(every_ms=HOUR_MS)])
def test_the_last_day_of_the_year_9999_has_no_firings(rule: Rule, zone: str) -> None:
    """East of Greenwich its local times are of a year that nothing can say."""
    rule = rule._replace(zone=zone, start_ms=parse_time_ms("9999-12-31T00:00:00Z") - HOUR_MS)
    assert len(firings(rule, 0, 10)) == 1
    with pytest.raises(HorologError, match="never fires"):
        check(rule._replace(start_ms=rule.start_ms + DAY_MS))


def test_jitter_is_the_same_whenever_it_is_worked_out() -> None:
    rule = Rule(every_ms=HOUR_MS, jitter_ms=5 * MINUTE_MS)
    dues = [due_of("s", rule, n * HOUR_MS) - n * HOUR_MS for n in range(500)]
    assert dues == [due_of("s", rule, n * HOUR_MS) - n * HOUR_MS for n in range(500)]
    assert 0 <= min(dues) < 5_000
    assert 295_000 < max(dues) <= 300_000
    assert due_of("other", rule, HOUR_MS) != due_of("s", rule, HOUR_MS)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15m", 15 * MINUTE_MS),
        ("PT15M", 15 * MINUTE_MS),
        ("p1dt12h", 36 * HOUR_MS),
        ("P2W", 14 * DAY_MS),
        ("PT0.5S", 500),
    ],
)
def test_intervals_as_people_type_them(text: str, ms: int) -> None:
    assert parse_interval_ms(text) == ms


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P", "PT", "PT1X", "15"])
def test_intervals_that_are_refused(text: str) -> None:
    with pytest.raises(HorologError) as caught:
        parse_interval_ms(text)
    assert caught.value.field == "every"


def test_the_package_reads_no_clock() -> None:
    assert rules.Zones().after(Rule(every_ms=1_000, start_ms=7), Cursor(0)) == Cursor(
        7, "1970-01-01T00:00:00"
    )
