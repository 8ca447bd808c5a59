"""Parts of what several connections have sent: in order, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horolog.server.together import BYTES_MAX, MESSAGES_MAX, parts

_SIZES = st.tuples(st.integers(1, 2 * MESSAGES_MAX), st.integers(0, 2 * BYTES_MAX))


@given(st.lists(_SIZES, max_size=30))
def test_parts_are_in_order_and_bounded(asked: list[tuple[int, int]]) -> None:
    found = list(parts(asked, lambda each: each))
    assert [each for part in found for each in part] == asked
    for part in found:
        messages, size = map(sum, zip(*part, strict=True))
        assert len(part) == 1 or (messages <= MESSAGES_MAX and size <= BYTES_MAX)


def test_what_fits_is_one_part() -> None:
    asked = [(1, 1_000)] * MESSAGES_MAX
    assert list(parts(asked, lambda each: each)) == [asked]
    assert [len(part) for part in parts([*asked, (1, 1)], lambda each: each)] == [MESSAGES_MAX, 1]
