"""What a frame adds to the key index: all at once, and the same as message by message."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.broker.key_columns import key_columns
from horolog.log.record import HAS_KEYS, HEAD
from horolog.log.unaligned import get
from horolog.protocol.rocketmq.message import key_hash, user_key_hash_of
from horolog.protocol.rocketmq.record_columns import Messages, records_of

BASE = 4_096
_VALUES = st.sampled_from([b"k1", b"k2", b"a b", b" a  a\tb ", b"", b" ", b"\xc3\xbc x", b"\xff"])
_TEXTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([b"KEYS", b"KEYS", b"MYKEYS", b"KEY", b"n"]), _VALUES),
        st.tuples(st.just(b"n"), st.sampled_from([b"KEYS", b"\0", b"x\0KEYS"])),
    ).map(b"\x01".join),
    max_size=3,
)
_TEXT = st.tuples(_TEXTS, st.booleans()).map(lambda t: b"\x02".join(t[0]) + b"\x02" * t[1])
_MESSAGES = st.tuples(st.sampled_from([b"t", b"topic-\xc3\xbc"]), _TEXT, st.booleans())


def _words(text: bytes) -> list[bytes]:
    """Words of the last KEYS."""
    values = [
        value
        for name, found, value in (each.partition(b"\x01") for each in text.split(b"\x02"))
        if name == b"KEYS" and found
    ]
    split = values[-1].decode("utf-8", "replace").split() if values else []
    return [word.encode() for word in dict.fromkeys(split)]


@given(st.lists(_MESSAGES, min_size=1, max_size=6))
@example([(b"t", b"KEYS\x01k1\x02", True)] * 3)
@example([(b"t", b"KEYS\x01k1\x02KEYS\x01k2", True), (b"t", b"n\x01v", True)])
@example([(b"t", b"n\x01\0KEYS\x01k1\x02", True)])
def test_rows_are_those_of_each_message(messages: list[tuple[bytes, bytes, bool]]) -> None:
    body = b""
    starts, expected = [], []
    for i, (topic, text, keyed) in enumerate(messages):
        name = b"id%d" % i
        one = Messages(
            [b"KEYS\x01body\x02"], [0], [0], [0], [0], [0], [text], [name], [keyed], [0], [0], [0], [0],
            [(bytes(4), 0)],
        )  # fmt: skip
        starts.append(len(body))
        expected.append((key_hash(topic.decode(), name.decode()), BASE + len(body)))
        if keyed:
            expected += [(user_key_hash_of(topic, w), BASE + len(body)) for w in _words(text)]
        body += records_of(topic, one).records
    at = np.array(starts)
    heads = get(np.frombuffer(body, np.uint8), at, HEAD)
    assert [bool(flags & HAS_KEYS) for flags in heads["flags"]] == [m[2] for m in messages]
    for given_body in (body, bytearray(body), memoryview(body)):
        found = key_columns(heads, at, BASE, given_body)
        assert found is not None
        rows = zip(found.keys.tolist(), found.positions.tolist(), strict=True)
        assert list(rows) == expected
