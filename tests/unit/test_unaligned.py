"""Values at any offset: what a loop over struct.unpack would find, and what it would have written."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.log.record import HEAD, heads_of
from horolog.log.unaligned import get, put

FORMATS = {"<i4": "<i", ">u2": ">H", ">i8": ">q", "<u8": "<Q"}


@given(
    st.binary(min_size=40, max_size=90),
    st.lists(st.integers(0, 32), max_size=12),
    st.sampled_from(sorted(FORMATS)),
)
def test_values_are_found_where_they_lie(content, offsets, dtype) -> None:
    raw, at = np.frombuffer(content, np.uint8), np.array(offsets, np.int64)
    want = [struct.unpack_from(FORMATS[dtype], content, offset)[0] for offset in offsets]
    found = get(raw, at, dtype)
    assert found.tolist() == want
    assert found.flags.c_contiguous


@given(
    st.binary(min_size=40, max_size=90),
    st.lists(st.integers(0, 4), max_size=5, unique=True),
    st.integers(-(2**31), 2**31 - 1),
)
def test_values_are_written_where_they_belong(content, places, value) -> None:
    want, raw = bytearray(content), np.frombuffer(bytearray(content), np.uint8).copy()
    at = np.array(places, np.int64) * 8 + 1
    for offset in at.tolist():
        struct.pack_into(">i", want, offset, value)
    put(raw, at, np.full(len(at), value, ">i4"))
    assert raw.tobytes() == bytes(want)


def test_a_record_at_an_odd_offset() -> None:
    head = np.zeros(1, HEAD)
    head["due_ms"], head["key"] = 7, 9
    content = bytearray(70)
    put(np.frombuffer(content, np.uint8), np.array([33]), head)
    assert heads_of(content, np.array([33])).tolist() == head.tolist()


def test_nothing_is_read_or_written_beyond_the_end() -> None:
    raw = np.zeros(10, np.uint8)
    for at in (7, 10, -8):
        with pytest.raises(IndexError):
            get(raw, np.array([at]), "<i4")
        with pytest.raises(IndexError):
            put(raw, np.array([at]), np.zeros(1, "<i4"))
    assert not len(get(raw[:2], np.array([], np.int64), "<i4"))
