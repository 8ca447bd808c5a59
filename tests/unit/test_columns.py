"""Fixed fields of many records: written at once, the same as field by field, whatever hosts they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horolog.broker.columns import place, stamp
from horolog.log.record import HEAD, HEAD_BYTES
from horolog.log.stored import put_stored
from horolog.log.unaligned import get, put
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.record_columns import Messages, records_of

SIZES = [1, 7, 40]


@pytest.mark.parametrize("flags", [[0, 0, 0], [0, 0x10, 0], [0x30, 0x20, 0x10]])
def test_one_copy_writes_what_field_by_field_writes(flags: list[int]) -> None:
    bodies = [bytes(24) + b"b" * size for size in SIZES]
    same: list[Any] = [[0] * 3 for _ in range(9)]
    ids = [b"id%d" % i for i in range(3)]
    hosts = [(b"\x0a\0\0\7", 9)] * 3
    texts = [b"n\x01v"] * 3
    messages = Messages(bodies, *same[:2], flags, *same[2:4], texts, ids, *same[4:], hosts)
    body, sizes = records_of(b"topic", messages)
    at = np.cumsum(sizes) - sizes
    one, other = (np.frombuffer(bytearray(body), np.uint8) for _ in range(2))
    heads = get(one, at, HEAD)
    heads["topic"], heads["kind"] = 7, 2
    queues = np.array([3, 0, 1])
    fixed: dict[str, Any] = {
        "base": 1 << 40,
        "queue_offset": np.array([5, 0, 9]),
        "store_ms": 1_700_000_000_000,
        "store_host": b"\x01\x02\x03\x04\0\0\x2a\x9f",
    }
    place(one, at, heads, queues, **fixed)
    put(other, at, heads)
    put_stored(other, at + HEAD_BYTES, "queue_id", queues)
    stamp(other, at, **fixed)
    assert one.tobytes() == other.tobytes()
    if not any(flags):
        found = layout.decode(one.tobytes()[at[2] + HEAD_BYTES :])
        assert (found.queue_id, found.queue_offset, found.store_ms) == (1, 9, 1_700_000_000_000)
        assert found.position == (1 << 40) + at[2]
        assert found.store_host == (b"\x01\x02\x03\x04", 10_911)
