"""Batches of what several connections have sent: in order, and bounded; until when it waits."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from horolog.server.batching import BYTES_MAX, MESSAGES_MAX, CallbackBatch, batches

_SIZES = st.tuples(st.integers(1, 2 * MESSAGES_MAX), st.integers(0, 2 * BYTES_MAX))


@given(st.lists(_SIZES, max_size=30))
def test_batches_are_in_order_and_bounded(asked: list[tuple[int, int]]) -> None:
    found = list(batches(asked, lambda each: each))
    assert [each for batch in found for each in batch] == asked
    for batch in found:
        messages, size = map(sum, zip(*batch, strict=True))
        assert len(batch) == 1 or (messages <= MESSAGES_MAX and size <= BYTES_MAX)


def test_what_fits_is_one_batch() -> None:
    asked = [(1, 1_000)] * MESSAGES_MAX
    assert list(batches(asked, lambda each: each)) == [asked]
    assert [len(batch) for batch in batches([*asked, (1, 1)], lambda each: each)] == [
        MESSAGES_MAX,
        1,
    ]
    halves = [(1, BYTES_MAX // 2)] * 6
    assert [len(batch) for batch in batches(halves, lambda each: each)] == [2, 2, 2]


def test_what_comes_after_a_call_does_not_go_with_the_timer_of_before() -> None:
    async def run() -> None:
        batch, called = CallbackBatch(), list[str]()
        batch.add(lambda: called.append("first"))
        batch.call_within(asyncio.get_running_loop(), 0)
        batch.call_all()
        assert called == ["first"]
        batch.add(lambda: called.append("second"))
        for _ in range(5):
            await asyncio.sleep(0)  # the timer would have come
        assert called == ["first"]
        assert batch
        batch.call_within(asyncio.get_running_loop(), 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert called == ["first", "second"]
        assert not batch

    asyncio.run(run())
