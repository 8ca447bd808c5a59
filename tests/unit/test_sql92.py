"""SQL92 filters: what an expression means, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.limits import FILTER_EXPRESSION_MAX, SQL_DEPTH_MAX
from horolog.protocol.rocketmq.sql92 import parse


def matches(text: str, **properties: str) -> bool:
    return parse(text).matches(properties.get)


@pytest.mark.parametrize(
    ("text", "properties", "wanted"),
    [
        ("a=3 and b<>4 And c>5 AND d<=4", {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
        ("a=3 and b<>4 And c>5 AND d<=4", {"a": "4", "b": "5", "c": "6", "d": "1"}, False),
        ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "3", "d": "2"}, True),
        ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "3", "d": "10"}, False),
        ("a IN ('3', '4')", {"a": "4"}, True),
        ("a NOT IN ('3', '4')", {"a": "8"}, True),
        ("a BETWEEN 2 AND 10", {"a": "10"}, True),
        ("a BETWEEN -2.5 AND 10.0", {"a": "-2.5"}, True),
        ("a BETWEEN -2.5 AND 10", {"a": "-2.5"}, False),  # no whole number, as 10 is
        ("a NOT BETWEEN 2 AND 10", {"a": "2"}, False),
        ("a NOT BETWEEN 2 AND 10", {"a": "11"}, True),
        ("a BETWEEN b AND c", {"a": "2", "b": "1", "c": "3"}, True),
        ("TAGS IS NOT NULL AND TAGS = '''''tag'''''", {"TAGS": "''tag''"}, True),
        ("a > 3.1E10", {"a": "31415000000.0"}, True),
        ("a > .5 AND a < 5.", {"a": " 0.75f "}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a = b", {"a": "3.14", "b": "3.140"}, False),
        ("a = 12L", {"a": "+12"}, True),
        ("5 < a", {"a": "6"}, True),
        ("a = TRUE OR b = false", {"a": "True", "b": "x"}, True),
        ("a = TRUE", {"a": "yes"}, False),
        ("TRUE", {}, True),
        ("FALSE OR NULL", {}, False),
        ("3 = 3.0", {}, True),
        ("a > -5", {"a": "-4"}, True),
        ("a > +5", {"a": "6"}, True),
        ("a < 0", {"a": str(-(1 << 63))}, True),
        ("a < 0", {"a": str(-(1 << 63) - 1)}, False),  # beyond 64 bits, no whole number
        ("a CONTAINS 'b' AND a STARTSWITH 'ab' AND a ENDSWITH 'c'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'x'", {"a": "abc"}, True),
        ("$in_x = 'in'", {"$in_x": "in"}, True),
        ("android = 1 -- for AND\n AND /* a = 2 * */ notes IS NULL", {"android": "1"}, True),
    ],
)
def test_what_it_means(text: str, properties: dict[str, str], wanted: bool) -> None:
    assert matches(text, **properties) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a IS NULL", True),
        ("a IS NOT NULL", False),
        ("a = 1", False),
        ("a <> 1", False),
        ("NOT (a = 1)", False),
        ("a > 1 OR NOT (a > 1)", False),
        ("a NOT IN ('x')", False),
        ("a NOT BETWEEN 1 AND 2", False),
        ("a = 1 OR there = 'x'", True),
        ("NOT (a = 1 AND there = 'y')", True),
        ("NOT (a = 1 AND there = 'x')", False),
        ("a CONTAINS 'x'", False),
        ("a NOT CONTAINS 'x'", False),
        ("there CONTAINS ''", False),
        ("there = a", False),
        ("there <> a", True),
    ],
)
def test_what_is_not_there_is_unknown(text: str, wanted: bool) -> None:
    assert matches(text, there="x") is wanted


@pytest.mark.parametrize(
    "text",
    [
        "a > 5",
        "NOT (a > 5)",
        "a = 5",
        "a <> 5.0",
        "a > b",
        "a = 1 OR TRUE",
        "TRUE = a",
        "a",
        "NOT a = 1",
    ],
)
def test_a_text_that_is_no_number_fails_the_message(text: str) -> None:
    assert matches(text, a="many", b="1") is False


def test_a_name_alone_is_text_and_never_true() -> None:
    assert not matches("a", a="true")
    assert matches("NOT a", a="true"), "false, not unknown"
    assert matches("(NOT a) = TRUE", a="x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "a = NULL",
        "a > 'x'",
        "a > TRUE",
        "(a = 1",
        "a = 1)",
        "a = 1 b",
        "a BETWEEN 5 AND 2",
        "a BETWEEN 'x' AND 'y'",
        "a IN (1)",
        "a IN ()",
        "'x' IN ('x')",
        "a > 0.0",
        "a > 1e-400",
        "a > 1e400",
        "a = 99999999999999999999",
        "a = 007",
        "a = 1x",
        "5",
        "'a'",
        "a AND 5",
        "(a = 1) > 2",
        "TRUE = 'x'",
        "a = 'x",
        "a == 1",
        "a LIKE 'x'",
        "a = \x00",
        "NOT",
        "/* a = 1",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(HorologError) as refused:
        parse(text)
    assert refused.value.code is ErrorCode.ILLEGAL_FILTER
    assert refused.value.field == "filter_expression"
    assert "SQL92" in refused.value.message


def test_its_size_has_limits() -> None:
    assert matches(" OR ".join(["a = 1"] * (SQL_DEPTH_MAX // 2)), a="1")
    for text in (" OR ".join(["a = 1"] * SQL_DEPTH_MAX), "(" * 5_000 + "a", "NOT " * 4_000 + "a"):
        with pytest.raises(HorologError, match=f"at most {SQL_DEPTH_MAX}"):
            parse(text)
    with pytest.raises(HorologError, match=f"at most {FILTER_EXPRESSION_MAX}"):
        parse("a = '" + "x" * FILTER_EXPRESSION_MAX + "'")


@pytest.mark.parametrize("digits", [10, 100, 16_000])
def test_long_texts_of_properties_cost_little(digits: int) -> None:
    assert not matches("a > 5", a="1" * digits + "x")
    assert matches("a > 5.0", a="1" * digits)


_LITERALS = st.integers(-9, 9).map(str) | st.sampled_from(["1.5", "'x'", "'5'", "TRUE"])
_NAMES = st.sampled_from(["a", "b", "c"])
_LEAVES = st.one_of(
    st.tuples(_NAMES, st.sampled_from(["=", "<>", "<", ">="]), _NAMES | _LITERALS).map(" ".join),
    _NAMES.map(lambda name: f"{name} IS NULL"),
    _NAMES.map(lambda name: f"{name} IN ('x', '5')"),
)
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda e: f"NOT ({e})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({' '.join(t)})"),
    ),
    max_leaves=8,
)


@given(_EXPRESSIONS, st.dictionaries(_NAMES, st.sampled_from(["5", "-1", "1.5", "7"])))
def test_laws_of_three_valued_logic(text: str, properties: dict[str, str]) -> None:
    """Where nothing fails: De Morgan's, and no expression is true together with its opposite."""
    try:
        parse(text)
    except HorologError:
        return
    found = matches(text, **properties)
    assert matches(f"NOT (NOT ({text}))", **properties) is found
    assert not (found and matches(f"NOT ({text})", **properties))
    assert matches(f"({text}) AND ({text})", **properties) is found
    assert matches(f"NOT (NOT ({text}) OR NOT ({text}))", **properties) is found


@given(st.text(max_size=60) | st.text(alphabet="ab='()<>-5.,NOTANDR ", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse(text).matches({"a": "5"}.get)
    except HorologError as error:
        assert error.code is ErrorCode.ILLEGAL_FILTER
