"""Tag filters (`ready.filter`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.limits import FILTER_EXPRESSION_MAX
from horolog.protocol.rocketmq.tags import tags_code
from horolog.ready.filter import ALL_TAGS, parse_tags


@pytest.mark.parametrize("expression", ["", "*", "  ", " * ", "\t*\n"])
def test_all(expression: str) -> None:
    found = parse_tags(expression)
    assert found is ALL_TAGS
    assert found.matches("")
    assert found.matches("anything")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA || TagB ", {"TagA", "TagB"}),
        ("||TagA||||TagA||", {"TagA"}),
        ("A|B", {"A|B"}),
        ("a b||c", {"a b", "c"}),
        ("A|||B", {"A", "|B"}),
        ("*||A", {"*", "A"}),
    ],
)
def test_tags(expression: str, tags: set[str]) -> None:
    found = parse_tags(expression)
    assert found.tags == tags
    assert found.codes == {tags_code(tag) for tag in tags}
    assert all(found.matches(tag) for tag in tags)


def test_exact_test_distinguishes_equal_codes() -> None:
    found = parse_tags("AaAa")
    assert tags_code("BBBB") in found.codes
    assert not found.matches("BBBB")
    assert not found.matches("aaaa")
    assert not found.matches("")


@pytest.mark.parametrize("expression", ["||", " || ", "||||", "|| ||"])
def test_no_tag(expression: str) -> None:
    with pytest.raises(HorologError) as caught:
        parse_tags(expression)
    assert caught.value.code is ErrorCode.ILLEGAL_FILTER
    assert caught.value.field == "filter_expression"


def test_longest_expression() -> None:
    longest = "a" * FILTER_EXPRESSION_MAX
    assert parse_tags(longest).tags == {longest}
    with pytest.raises(HorologError) as caught:
        parse_tags(longest + "a")
    assert caught.value.code is ErrorCode.ILLEGAL_FILTER
    assert caught.value.field == "filter_expression"
    assert caught.value.limit == f"{FILTER_EXPRESSION_MAX} characters"


@given(st.one_of(st.text(st.characters(), max_size=60), st.text("ab| *", max_size=30)))
def test_any_text(expression: str) -> None:
    try:
        found = parse_tags(expression)
    except HorologError as error:
        assert error.code is ErrorCode.ILLEGAL_FILTER
        assert not expression.replace("||", "").strip()
        return
    if found.tags is None:
        assert expression.strip() in ("", "*")
    else:
        assert found.tags
        for tag in found.tags:
            assert tag == tag.strip() != ""
            assert "||" not in tag
            assert tag in expression
            assert found.matches(tag)
            assert tags_code(tag) in found.codes
