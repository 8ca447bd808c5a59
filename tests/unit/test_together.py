"""Parts of what several connections have sent: in order, and bounded; until when it waits."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from horolog.server.together import BYTES_MAX, MESSAGES_MAX, Once, parts

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
    halves = [(1, BYTES_MAX // 2)] * 6
    assert [len(part) for part in parts(halves, lambda each: each)] == [2, 2, 2]


def test_what_comes_after_a_call_does_not_go_with_the_timer_of_before() -> None:
    async def run() -> None:
        once, called = Once(), list[str]()
        once.add(lambda: called.append("first"))
        once.call_within(asyncio.get_running_loop(), 0)
        once.call()
        assert called == ["first"]
        once.add(lambda: called.append("second"))
        for _ in range(5):
            await asyncio.sleep(0)  # the timer would have come
        assert called == ["first"]
        assert once
        once.call_within(asyncio.get_running_loop(), 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert called == ["first", "second"]
        assert not once

    asyncio.run(run())
