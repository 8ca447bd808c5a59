"""Recall handles: what was made comes back, and what is rotten is refused in our own words."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.rocketmq.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)


@given(st.text(max_size=200))
def test_recall_handles_of_any_text(text) -> None:
    try:
        decode_recall_handle(text)
    except HorologError as error:
        assert error.code is ErrorCode.BAD_REQUEST
        assert SENTENCES.fullmatch(error.message), error.message


SENTENCES = re.compile(
    "recall_handle: (blank; give the handle that the send returned"
    "|not the handle that a send returned: not base64 of text"
    "|not a handle of version 1 with five or six fields"
    "|its time is 0, which is before all due times"
    r"|its (time|origin) is not a number below \d+)"
)
"""All that is said of a rotten handle: our own words, none of Python's."""


@given(st.binary(max_size=60) | st.builds(lambda a: b"v1 t b " + a, st.binary(max_size=20)))
def test_recall_handles_of_any_bytes(content) -> None:
    test_recall_handles_of_any_text.hypothesis.inner_test(urlsafe_b64encode(content).decode())


@pytest.mark.parametrize(
    "text",
    [
        "v1 t b ١ m",
        "v1 t b 1_0 m",
        "v1 t b +5 m",
        "v1 t b 0 m",
        f"v1 t b {'9' * 5000} m",
        "v1 t b 5 m -2",
        f"v1 t b 5 m {1 << 63}",
        "v1 t b 5 m x",
        "v2 t b 5 m",
        "v1 t b 5",
    ],
)
def test_recall_handles_that_are_not_ours(text) -> None:
    with pytest.raises(HorologError) as caught:
        decode_recall_handle(urlsafe_b64encode(text.encode()).decode())
    assert SENTENCES.fullmatch(caught.value.message), caught.value.message


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    st.integers(0, 1 << 50),
    st.from_regex(r"[A-Z0-9]{1,40}", fullmatch=True),
    st.integers(0, 1 << 60),
)
def test_recall_handles_come_back(topic, due_ms, message_id, origin) -> None:
    handle = RecallHandle(topic, "broker-a", due_ms, message_id, origin)
    assert decode_recall_handle(encode_recall_handle(handle)) == handle
