"""A batch whose messages are of one size is cut with one call: the same as message by message."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.limits import MESSAGES_PER_SEND_MAX
from horolog.protocol.remoting.batch import ITEM_MIN, cut, cut_each, cut_even


def item(body: bytes, text: bytes, flag: int = 0) -> bytes:
    size = 20 + len(body) + 2 + len(text)
    head = struct.pack(">iiiii", size, 1, 2, flag, len(body))
    return head + body + struct.pack(">H", len(text)) + text


def shown(body: bytes) -> object:
    flags, bodies, texts, fault = cut(body)
    return list(flags), list(bodies), list(texts), fault and fault.message


def shown_each(body: bytes) -> object:
    flags, bodies, texts, fault = cut_each(body)
    return flags, bodies, texts, fault and fault.message


@given(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=3),
    st.integers(0, 3),
    st.binary(max_size=3),
)
def test_a_batch_is_cut_the_same_way(
    flags: list[int],
    body: int,
    text: int,
    flips: list[tuple[int, int]],
    short: int,
    more: bytes,
) -> None:
    items = [item(bytes([65 + n]) * body, bytes([97 + n]) * text, f) for n, f in enumerate(flags)]
    batch = bytearray(b"".join(items) + more)
    for at, value in flips:
        batch[at % len(batch)] = value
    batch = batch[: len(batch) - short]
    assert shown(bytes(batch)) == shown_each(bytes(batch))


def test_even_batches_are_cut_with_one_call_and_others_are_not() -> None:
    even = [item(b"%03d" % n, b"k%03d" % n, n) for n in range(40)]
    found = cut_even(b"".join(even))
    assert found is not None
    assert list(found.bodies) == [b"%03d" % n for n in range(40)]
    assert cut_even(b"".join([*even[:20], item(b"0123", b"k01"), *even[20:]])) is None
    assert cut_even(even[0]) is None  # one
    assert cut_even(bytes(ITEM_MIN) * 3) is None
    assert cut_even(even[0] * (MESSAGES_PER_SEND_MAX + 1)) is None


@pytest.mark.parametrize("size", [-1, 0, 22, 1 << 31])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    head = struct.pack(">Iiiii", size & 0xFFFFFFFF, 0, 0, 0, 1)
    assert shown((head + b"x\0\0") * 3) == shown_each((head + b"x\0\0") * 3)
