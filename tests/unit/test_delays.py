"""Delay dialects of 4.x clients: which property counts, what is stored, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, due_of, parse_levels

LEVELS = parse_levels(DEFAULT_LEVELS)
REAL = b"REAL_TOPIC\x01t\x02REAL_QID\x013\x02"
KNOWN = {"UNIQ_KEY": "id", "TAGS": "a"}


def due(**expected: object):
    stored = properties.encode({**KNOWN, **{name: str(value) for name, value in expected.items()}})
    return due_of(b"\x02" + stored, LEVELS, REAL)


def kept(found) -> dict[str, str]:
    return properties.decode(found.text)


def test_the_default_table_is_that_of_rocketmq() -> None:
    minutes = [60_000 * n for n in range(1, 11)]
    assert LEVELS.delays_ms == (
        *(1_000, 5_000, 10_000, 30_000),
        *minutes,
        *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
    )


@pytest.mark.parametrize(
    "text", ["", "1s  5s", "1s 5", "1x", "s", "0s", "-1s", "1.5s", "4000d", "١s", "1S", "1s\t5s"]
)
def test_a_table_that_is_none_is_refused(text) -> None:
    with pytest.raises(HorologError) as refused:
        parse_levels(text)
    assert refused.value.code is ErrorCode.CONFIG
    assert "message_delay_level" in refused.value.message


def test_a_table_can_have_days_and_one_level() -> None:
    assert parse_levels("2d").delays_ms == (172_800_000,)


@pytest.mark.parametrize(
    ("expected", "due_ms", "lane"),
    [
        ({}, 0, 0),
        ({"DELAY": 1}, -1_000, 1),
        ({"DELAY": 18}, -7_200_000, 18),
        ({"DELAY": 99}, -7_200_000, 18),
        ({"DELAY": 0}, 0, 0),
        ({"DELAY": -3}, 0, 0),
        ({"TIMER_DELAY_SEC": 7}, -7_000, 0),
        ({"TIMER_DELAY_MS": 7}, -7, 0),
        ({"TIMER_DELIVER_MS": 1_700_000_000_123}, 1_700_000_000_123, 0),
        ({"__STARTDELIVERTIME": 1_700_000_000_123}, 1_700_000_000_123, 0),
        ({"TIMER_DELAY_SEC": -7}, 0, 0),
        ({"TIMER_DELIVER_MS": -7}, 0, 0),
        ({"TIMER_DELAY_SEC": 9_223_372_036_854_775_807}, -(1 << 53), 0),
        ({"TIMER_OUT_MS": 5, "TIMER_DELAY_SEC": 7}, 0, 0),
        ({"TIMER_OUT_MS": 5, "DELAY": 2}, -5_000, 2),
        ({"NODELAY": 3, "xTIMER_DELAY_SEC": 4}, 0, 0),
    ],
)
def test_when_it_is_due(expected, due_ms, lane) -> None:
    found = due(**expected)
    assert (found.due_ms, found.lane) == (due_ms, lane)


ORDER = ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"]
EACH = {"DELAY": -5_000, "TIMER_DELAY_SEC": -2_000, "TIMER_DELAY_MS": -2}


@given(st.permutations(ORDER), st.integers(1, 5))
def test_the_first_one_counts_in_whatever_order_they_stand(order, count) -> None:
    given_ = order[:count]
    found = due(**dict.fromkeys(given_, 2))
    first = min(given_, key=ORDER.index)
    assert found.due_ms == EACH.get(first, 2)
    shown = kept(found)
    assert shown["REAL_TOPIC"] == "t"
    assert shown["REAL_QID"] == "3"
    gone = {name for name in given_ if name not in shown}
    assert gone == ({n for n in given_ if n.startswith("TIMER_")} if "DELAY" in given_ else set())


def test_a_clamped_level_is_stored_as_the_last_one() -> None:
    assert kept(due(DELAY=99)) == {**KNOWN, "DELAY": "18", "REAL_TOPIC": "t", "REAL_QID": "3"}
    assert due_of(b"\x02DELAY\x0199", LEVELS, REAL).text == b"\x02DELAY\x0118\x02" + REAL
    assert (
        due_of(b"\x02DELAY\x0199\x02K\x01v", LEVELS, b"").text == b"\x02K\x01v\x02DELAY\x0118\x02"
    )


def test_where_a_message_was_to_go_before_is_replaced() -> None:
    assert kept(due(DELAY=1, REAL_TOPIC="%RETRY%g", REAL_QID=0))["REAL_TOPIC"] == "t"


def test_what_is_not_delayed_is_stored_as_it_came() -> None:
    stored = b"\x02A\x01b\x02DELAY\x010\x02\x02odd\x02REAL_QID\x017"
    assert due_of(stored, LEVELS, REAL) == (0, 0, stored)


@pytest.mark.parametrize("name", ORDER)
@pytest.mark.parametrize("value", ["", "soon", "1.5", " 1", "1e3", "١", "9" * 20, "--1"])
def test_what_is_no_number_is_refused_by_name(name, value) -> None:
    with pytest.raises(HorologError) as refused:
        due(**{name: value})
    assert refused.value.code is ErrorCode.ILLEGAL_DELIVERY_TIME
    assert refused.value.field == name


@given(st.binary(max_size=60))
def test_any_properties_are_due_or_refused(noise) -> None:
    for stored in (
        b"\x02" + noise,
        b"\x02DELAY\x013\x02" + noise,
        noise + b"\x02TIMER_DELAY_MS\x015",
    ):
        try:
            found = due_of(stored, LEVELS, REAL)
        except HorologError as error:
            assert error.code is ErrorCode.ILLEGAL_DELIVERY_TIME
        else:
            assert found.text == stored or found.due_ms
