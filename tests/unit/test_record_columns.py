"""Records made from columns: the same bytes as one by one, and what the layout says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq import record_columns as made
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.send_commands import HEAD_AS_SENT, MessageType

HOST = (b"\x0a\0\0\7", 4_711)
_I32 = st.integers(-(1 << 31), (1 << 31) - 1)
_ROW = st.tuples(
    st.binary(min_size=1, max_size=40),
    _I32,  # flag
    st.integers(-1, 1_000),  # queue id
    st.sampled_from([0, 1, 0x703]),  # sysFlag
    st.integers(0, 16),  # attempts
    st.integers(-(1 << 62), 1 << 62),  # born ms
    st.binary(max_size=60),
    st.binary(min_size=1, max_size=40),
    st.booleans(),
    _I32,  # tags code
    st.sampled_from([0, 0, 1, (1 << 32) - 1]),  # code of the message group
    st.sampled_from([0, -5_000, 1_700_000_000_000]),
    st.integers(0, 18),
    st.sampled_from([HOST, HOST, (b"\x7f\0\0\1", 65_535), (bytes(4), 0)]),
)


@given(st.lists(_ROW, min_size=1, max_size=40), st.sampled_from([b"t", b"orders-\xc3\xbc"]))
def test_columns_give_what_one_by_one_gives(rows: list[tuple[object, ...]], topic: bytes) -> None:
    messages = made.Messages(*[list(column) for column in zip(*rows, strict=True)])
    assert made._in_columns(topic, messages) == made._one_by_one(topic, messages)


def test_a_record_is_a_head_and_a_layout() -> None:
    count = 3 * made._FEW
    ids = [b"id%d" % i for i in range(count)]
    one = [[b"body"], [7], [2], [1], [3], [1_700_000_000_000], [b"KEYS\x01k\x02"]]
    more = [[True], [99], [0], [-5_000], [2], [HOST]]
    messages = made.Messages(*[each * count for each in one], ids, *[each * count for each in more])
    records, sizes = made.records_of(b"topic", messages)
    assert sizes == [len(records) // count] * count
    for i, name in enumerate(ids):
        record = records[i * sizes[0] : (i + 1) * sizes[0]]
        size, kind, keyed, lane, due_ms, _, code, key = HEAD_AS_SENT.unpack_from(record)
        assert (size, kind, keyed, lane) == (len(record), MessageType.DELAY, 1, 2)
        assert (due_ms, code, key) == (-5_000, 99, key_hash("topic", name.decode()))
        found = layout.decode(record[HEAD_AS_SENT.size :])
        assert (found.body, found.topic, found.properties) == (b"body", "topic", b"KEYS\x01k\x02")
        assert (found.flag, found.queue_id, found.sys_flag, found.reconsume_times) == (7, 2, 1, 3)
        assert (found.born_ms, found.born_host) == (1_700_000_000_000, HOST)
