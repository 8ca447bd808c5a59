"""Records as columns: the vectorised way says what the decoder of one message says."""

from __future__ import annotations

import gzip
import itertools
import zlib

import numpy as np
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX
from horolog.log.record import HEAD
from horolog.protocol.queue_read import decode_read, encode_read
from horolog.protocol.rocketmq.layout import (
    BORN_HOST_V6,
    COMPRESSED,
    STORE_HOST_V6,
    SYS_FLAG_AT,
)
from horolog.protocol.rocketmq.message import encode
from horolog.spark.message_decode import PACKED_MAX, Records, inflated
from horolog.spark.property_columns import PropertyColumns, pairs_of, uniform_of
from horolog.spark.topic_answers import Bounds
from horolog.spark.topic_range import first_at, from_offset, limited, stretches

COLUMNS = [
    "queue_id",
    "queue_offset",
    "message_id",
    "tag",
    "keys",
    "properties",
    "body",
    "born_at",
    "stored_at",
    "deliver_at",
    "reconsume_times",
]


def records_of(messages) -> Records:
    raw = b"".join(messages)
    sizes = np.array([len(message) for message in messages], np.int64)
    return Records(np.frombuffer(raw, np.uint8), np.cumsum(sizes) - sizes, sizes)


def message(i: int, **fields) -> bytes:
    found = encode(topic="t", body=b"body %d" % i, message_id=f"ID{i}", born_ms=1000 + i, **fields)
    head = np.zeros(1, HEAD)
    head["size"], head["due_ms"] = len(found.record), found.due_ms
    return head.tobytes() + found.record[32:]


def test_columns_say_what_was_sent() -> None:
    records = records_of(
        [
            message(0),
            message(1, tag="red", keys=["a", "b"], due_ms=5_000),
            message(2, user_properties={"colour": "rot", "größe": "ä€", "empty": ""}),
        ]
    )
    found = {name: column.to_pylist() for name, column in records.columns(COLUMNS).items()}
    assert found["message_id"] == ["ID0", "ID1", "ID2"]
    assert found["tag"] == [None, "red", None]
    assert found["keys"] == [[], ["a", "b"], []]
    assert found["properties"] == [[], [], [("colour", "rot"), ("größe", "ä€"), ("empty", "")]]
    assert found["body"] == [b"body 0", b"body 1", b"body 2"]
    assert [each.timestamp() for each in found["born_at"]] == [1.0, 1.001, 1.002]
    assert [each and each.timestamp() for each in found["deliver_at"]] == [None, 5.0, None]
    assert records.topics().to_pylist() == ["t", "t", "t"]
    assert records.chosen(np.array([False, True, False])).columns(["body"])["body"].to_pylist() == [
        b"body 1"
    ]


def test_a_compressed_body_is_unpacked() -> None:
    body = gzip.compress(b"long " * 100)
    packed = encode(topic="t", body=body, message_id="ID", sys_flag=COMPRESSED).record
    assert records_of([packed, message(1)]).columns(["body"])["body"].to_pylist() == [
        b"long " * 100,
        b"body 1",
    ]


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_body_that_would_be_too_large_stays_packed(pack) -> None:
    """A message of some kilobytes that says it is a huge one took the memory of the task that read it."""
    most, more = (pack(bytes(BODY_MAX + extra)) for extra in (0, 1))
    assert inflated(most) == bytes(BODY_MAX)
    assert inflated(more) == more
    assert inflated(most[:-9]) == most[:-9]
    assert inflated(b"no such thing") == b"no such thing"


def test_a_gzip_of_several_members_is_one_body() -> None:
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert inflated(two) == inflated(two + bytes(3)) == b"one two"
    assert inflated(two + b"more") == two + b"more"
    half = gzip.compress(bytes(BODY_MAX))
    assert inflated(half + half) == half + half


@pytest.mark.parametrize("count", [0, PACKED_MAX, PACKED_MAX + 1, 3 * PACKED_MAX])
def test_a_batch_has_few_packed_bodies(count: int) -> None:
    plain = [message(i) for i in range(5)]
    packed = encode(topic="t", body=zlib.compress(b"p"), message_id="P", sys_flag=COMPRESSED).record
    pieces = list(records_of([*plain, *[packed] * count, *plain]).pieces())
    bodies = [piece.columns(["body"])["body"].to_pylist() for piece in pieces]
    assert [sum(body == b"p" for body in each) for each in bodies] == [
        min(PACKED_MAX, count - at) for at in range(0, max(count, 1), PACKED_MAX)
    ]
    assert list(itertools.chain(*bodies)) == [
        *(b"body %d" % i for i in range(5)), *[b"p"] * count, *(b"body %d" % i for i in range(5))
    ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 31, 32 + 87])
def test_a_record_that_is_too_short_is_refused(size: int) -> None:
    """Also the last one of a buffer, after which nothing can be read."""
    with pytest.raises(HorologError, match="too short for a message") as refused:
        records_of([message(0), message(1)[:size]])
    assert refused.value.code is ErrorCode.DAMAGED


def test_a_record_that_is_too_short_for_its_addresses_is_refused() -> None:
    one = bytearray(encode(topic="t", body=b"b", message_id="I").record[: 32 + 88])
    one[32 + SYS_FLAG_AT + 3] |= BORN_HOST_V6 | STORE_HOST_V6
    with pytest.raises(HorologError, match="too short for a message"):
        records_of([bytes(one)])


def test_a_changed_body_is_refused() -> None:
    one = bytearray(message(0))
    one[32 + 88] ^= 1
    with pytest.raises(HorologError, match="does not match its CRC") as refused:
        records_of([bytes(one)]).columns(["body"])
    assert refused.value.code is ErrorCode.DAMAGED


def test_a_cut_record_is_refused() -> None:
    with pytest.raises(HorologError):
        records_of([message(0)[:-1]])


@pytest.mark.parametrize(
    "rows",
    [
        [b"", b""],
        [b"a\x01b", b"c\x01d\x02"],  # not closed
        [b"a\x01b\x01c\x02", b""],  # a separator in a value
        [b"a\x02b\x01c\x02"],  # no value
        [b"a\x01\xff\x02"],  # not UTF-8
    ],
)
def test_foreign_properties_are_read_as_the_decoder_reads_them(rows) -> None:
    from horolog.protocol.rocketmq import properties

    pairs = pairs_of(b"".join(rows), np.cumsum([len(row) for row in rows]))
    found = PropertyColumns(pairs).user().to_pylist()
    assert [dict(row) for row in found] == [properties.decode(row) for row in rows]


ALIKE = [b"a\x01one\x02UNIQ_KEY\x01%04d\x02" % n for n in range(9)]


@pytest.mark.parametrize("name", ["a", "UNIQ_KEY", "b"])
def test_rows_of_one_shape_are_read_as_others_are(name: str) -> None:
    content, ends = b"".join(ALIKE), np.cumsum([len(row) for row in ALIKE])
    alike = uniform_of(content, ends)
    assert alike is not None
    found, wanted = alike.text(name), PropertyColumns(pairs_of(content, ends)).text(name)
    found.validate(full=True)
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(
    "other",
    [
        ALIKE[0][:-1],  # shorter
        ALIKE[0].replace(b"a\x01", b"b\x01"),  # another key
        ALIKE[0].replace(b"0000", b"0\x0200"),  # separators in values
        ALIKE[0].replace(b"0000", b"0\x0100"),
        ALIKE[0].replace(b"0000", b"0\xc3\xa90"),  # not ASCII
        ALIKE[0].replace(b"\x02UNIQ", b"2UNIQ").replace(b"UNIQ_KEY\x01", b"UNIQ_KEY1"),
    ],
)
def test_rows_of_several_shapes_are_reported(other: bytes) -> None:
    for rows in ([*ALIKE, other], [other, *ALIKE]):
        content, ends = b"".join(rows), np.cumsum([len(row) for row in rows])
        assert uniform_of(content, ends) is None


@pytest.mark.parametrize(
    "row", [b"", b"a\x02", b"a\x01b", b"a\x01b\x02a\x01c\x02", b"\xff\x01b\x02"]
)
def test_rows_of_one_shape_that_are_no_properties_are_reported(row: bytes) -> None:
    assert uniform_of(row * 3, np.cumsum([len(row)] * 3)) is None
    assert uniform_of(b"", np.empty(0, np.int64)) is None


def test_the_answer_of_a_bulk_read_and_back() -> None:
    sent = [message(0), message(1)]
    answer = encode_read(sent, next_offset=7, min_offset=1, max_offset=9)
    found = decode_read(answer)
    assert (found.next_offset, found.min_offset, found.max_offset) == (7, 1, 9)
    assert bytes(found.records) == b"".join(sent)
    assert found.sizes.tolist() == [len(each) for each in sent]
    for at in range(len(answer)):
        if not 6 <= at < 8 and not 16 <= at < 40:  # reserved; plain numbers of the header
            changed = bytearray(answer)
            changed[at] ^= 0x10
            with pytest.raises(HorologError):
                decode_read(bytes(changed))
    with pytest.raises(HorologError):
        decode_read(answer[:-1])
    assert len(decode_read(encode_read([], next_offset=0, min_offset=0, max_offset=0)).records) == 0


def test_a_limit_is_shared_by_what_each_queue_has() -> None:
    assert limited({0: 0, 1: 0}, {0: 10, 1: 5}, 0) == {0: 10, 1: 5}
    assert limited({0: 0, 1: 0}, {0: 10, 1: 5}, 15) == {0: 10, 1: 5}
    assert limited({0: 5, 1: 0}, {0: 105, 1: 300}, 40) == {0: 15, 1: 30}
    for limit in range(1, 12):
        begins, ends = {0: 3, 1: 0, 2: 7}, {0: 9, 1: 1, 2: 12, 3: 2}
        got = limited(begins, ends, limit)
        assert sum(got[q] - begins.get(q, 0) for q in got) == limit
        assert all(begins.get(q, 0) <= got[q] <= ends[q] for q in ends)


def test_stretches_cover_a_range_once() -> None:
    found = stretches({1: Bounds(3, 3), 0: Bounds(10, 20)}, 4)
    assert found == [(0, 10, 13), (0, 13, 16), (0, 16, 20)]


def test_the_first_offset_of_a_time_is_found_by_halving() -> None:
    times = [10, 20, 20, 30]
    for wanted, place in ((0, 0), (10, 0), (11, 1), (20, 1), (21, 3), (31, 4)):
        assert first_at(lambda at: times[at], 0, 4, wanted) == place


def test_a_checkpoint_of_another_query_is_named() -> None:
    assert from_offset({"0": 17, "1": 4}) == {0: 17, 1: 4}
    with pytest.raises(
        HorologError, match=r"option 'checkpointLocation': it is of another query.*logOffset"
    ):
        from_offset({"logOffset": 0})
