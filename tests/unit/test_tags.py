"""Tag codes (`protocol.rocketmq.tags`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.rocketmq.tags import tags_code


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("A", 65),
        ("TagA", 2_598_919),
        ("TagB", 2_598_920),
        ("Aa", 2_112),
        ("BB", 2_112),
        ("AaAa", 2_031_744),
        ("BBBB", 2_031_744),
        ("polygenelubricants", -(1 << 31)),
        ("ü", 252),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
        ("\ud83d", 0xD83D),
        ("\udc00\ud800", 0xDC00 * 31 + 0xD800),
    ],
)
def test_known_codes(tag: str, code: int) -> None:
    assert tags_code(tag) == code


@given(st.text(st.characters(), max_size=40))
def test_is_the_polynomial(tag: str) -> None:
    units = memoryview(tag.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
    n = len(units)
    exact = sum(unit * 31 ** (n - 1 - i) for i, unit in enumerate(units))
    assert (tags_code(tag) - exact) % (1 << 32) == 0
    assert -(1 << 31) <= tags_code(tag) < 1 << 31
