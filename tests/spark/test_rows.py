"""The bytes of a row are those of a send, and a row that a send would refuse is refused in its words."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import origin_seed
from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.log.record import HAS_KEYS, HEAD, Kind
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.layout import QUEUE_ID_AT
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.properties import is_hidden
from horolog.spark.row_checks import described, refusals
from horolog.spark.rows import encode_rows, made_ids
from horolog.spark.sink_columns import Target, Unit, due_of, normalised

TARGET = Target("orders", 7, 3, 1, 4_000_000_000_000, 1_700_000_000_000, (b"\x7f\0\0\1", 8090))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
GOOD = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="|"),
    min_size=1,
    max_size=9,
)
NAME = GOOD.filter(lambda name: not is_hidden(name))
ROW = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "deliver_at": st.integers(1, TARGET.max_due_ms),
        "message_id": GOOD,
        "tag": st.none() | GOOD,
        "keys": st.none() | st.lists(GOOD, max_size=3),
        "properties": st.none() | st.dictionaries(NAME, GOOD, max_size=3),
    }
)
ANY_ROW = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=2),
        "deliver_at": st.integers(-1, TARGET.max_due_ms),
        "message_id": TEXT,
        "tag": st.none() | TEXT,
        "keys": st.none() | st.lists(TEXT, max_size=3),
        "properties": st.none()
        | st.dictionaries(TEXT | st.sampled_from(["TAGS", "a"]), TEXT, max_size=3),
    }
)
SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "deliver_at": pa.int64(),
        "message_id": pa.string(),
        "tag": pa.string(),
        "keys": pa.list_(pa.string()),
        "properties": pa.map_(pa.string(), pa.string()),
    }
)


def table_of(rows) -> pa.Table:
    rows = [
        {**row, "properties": row["properties"] and list(row["properties"].items())} for row in rows
    ]
    return normalised(pa.Table.from_pylist(rows, SCHEMA))


def sent(row, **more):
    return encode(
        topic=TARGET.topic,
        body=row["body"],
        message_id=row["message_id"],
        type=MessageType.DELAY,
        due_ms=row["deliver_at"],
        tag=row["tag"],
        keys=row["keys"] or (),
        user_properties=row["properties"],
        **more,
    )


@given(st.lists(ROW, min_size=1, max_size=8))
def test_records_are_those_of_a_send(rows) -> None:
    table = table_of(rows)
    due = due_of(table)
    assert refusals(table, due, TARGET) == {}
    entries, content = encode_rows(
        table, due, table.column("message_id").combine_chunks(), TARGET, first_row=5, first_queue=2
    )
    ends = np.cumsum(entries["size"]).tolist()
    assert ends[-1] == len(content)
    records = [content[end - size : end] for end, size in zip(ends, entries["size"], strict=True)]
    for i, row in enumerate(rows):
        message = sent(row, born_ms=TARGET.born_ms, born_host=TARGET.born_host)
        expected = bytearray(message.record)
        head = np.zeros(1, HEAD)
        head["size"] = len(expected)
        head["kind"] = Kind.SCHEDULED
        head["flags"] = HAS_KEYS if message.has_keys else 0
        head["due_ms"] = message.due_ms
        head["topic"] = TARGET.topic_id
        head["tags"] = message.tags_code
        head["key"] = message.key_hash
        expected[:32] = head.tobytes()
        expected[32 + QUEUE_ID_AT : 36 + QUEUE_ID_AT] = ((2 + i) % 3).to_bytes(4, "big")
        assert bytes(records[i]) == bytes(expected)
        entry = entries[i]
        assert (entry["size"], entry["due_ms"], entry["origin"]) == (
            len(expected),
            row["deliver_at"],
            0,
        )
        assert (entry["row"], entry["key"], entry["topic"]) == (5 + i, message.key_hash, 7)
        assert np.int32(entry["local"].astype(np.int32)) == message.tags_code
        assert entry["crc"] == crc32(expected, origin_seed(0, 5 + i))


@given(st.lists(ANY_ROW, min_size=1, max_size=8))
def test_rows_are_refused_as_sends_are(rows) -> None:
    table = table_of(rows)
    found = refusals(table, due_of(table), TARGET)
    for i, row in enumerate(rows):
        if row["deliver_at"] <= 0:
            assert found[i].startswith("deliver_at: ")
            continue
        try:
            sent(row)
        except HorologError as refusal:
            assert found[i] == refusal.message.replace("user_properties", "properties")
        else:
            assert i not in found


def test_nulls_and_bounds_are_named() -> None:
    good = {
        "body": b"b",
        "deliver_at": 5,
        "message_id": "i",
        "tag": None,
        "keys": None,
        "properties": None,
    }
    bad = [
        good | {"body": None},
        good | {"deliver_at": None},
        good | {"deliver_at": TARGET.max_due_ms + 1},
        good | {"message_id": None},
        good | {"keys": ["a", None]},
        good | {"properties": {"a": None}},
        good | {"body": b"x" * (BODY_MAX + 1)},
        good | {"properties": {f"k{i}": "" for i in range(129)}},
        good | {"properties": {"k": "v" * 20_000}},
    ]
    table = table_of([good, *bad])
    found = refusals(table, due_of(table), TARGET)
    assert 0 not in found
    assert [found[i].partition(":")[0] for i in range(1, 10)] == [
        "body", "deliver_at", "deliver_at", "message_id", "keys", "properties", "body",
        "properties", "properties",
    ]  # fmt: skip
    assert str(BODY_MAX) in found[7]


def texts_of(*values: bytes) -> pa.Array:
    """Texts as Spark makes them from bytes, which it does not look at."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("column", "of", "says"),
    [
        ("message_id", lambda texts: texts, "'caf\N{REPLACEMENT CHARACTER}' is"),
        ("tag", lambda texts: texts, "'caf\N{REPLACEMENT CHARACTER}' is"),
        ("keys", lambda texts: texts, "holds a text that is"),
        ("keys", lambda texts: pa.ListArray.from_arrays([0, 1, 2, 3], texts), "holds a text that is"),
        ("properties", lambda texts: pa.MapArray.from_arrays([0, 1, 2, 3], texts_of(b"a", b"b", b"c"), texts), "holds a text that is"),
        ("properties", lambda texts: pa.MapArray.from_arrays([0, 1, 2, 3], texts, texts_of(b"a", b"b", b"c")), "holds a text that is"),
    ],
)  # fmt: skip
def test_texts_that_are_not_utf8_are_refused(column, of, says) -> None:
    """They were stored, and then the id in a list of pending messages was none that a recall knew."""
    texts = of(texts_of(b"fine", b"caf\xe9", b"\xff"))
    given = {"body": [b"b"] * 3, "deliver_at": [5] * 3, column: texts}
    table = normalised(pa.table(given))
    found = refusals(table, due_of(table), TARGET)
    assert sorted(found) == [1, 2]
    assert found[1] == f"{column}: {says} not UTF-8"
    assert described(table, 1).startswith("body=b'b', deliver_at=5")


def test_a_body_may_be_any_bytes() -> None:
    given = pa.table({"body": texts_of(b"caf\xe9", b""), "deliver_at": [5] * 2})
    table = normalised(given)
    assert refusals(table, due_of(table), TARGET).keys() == {1}
    assert described(given, 0).startswith("body=caf")


def test_times_that_python_has_no_years_for_are_refused() -> None:
    """Milliseconds taken for seconds are due in the year 56 000, which Spark knows and Python does not."""
    ms = 1_795_762_752_892
    at = pa.array([ms * 1_000_000, -(10**17)], pa.timestamp("us", tz="UTC"))
    table = normalised(pa.table({"body": ["b"] * 2, "deliver_at": at}))
    found = refusals(table, due_of(table), TARGET)
    assert found[0] == (
        f"deliver_at: {ms}000 ms is beyond the latest time the broker takes, {TARGET.max_due_ms} ms "
        "(2096-10-02T07:06:40.000Z); is the unit right?"
    )
    assert found[1] == "deliver_at: -100000000000000 ms is not after 1970"
    assert described(table, 0) == f"body=b'b', deliver_at={ms}000000 us since 1970"


def test_microseconds_are_rounded_up() -> None:
    at = pa.table(
        {"deliver_at": pa.array([1_000, 1_001, 1_999, None], pa.timestamp("us", tz="UTC"))}
    )
    assert due_of(at).tolist() == [1, 2, 2, 0]


def test_a_key_as_text_is_one_key_or_several_words() -> None:
    table = normalised(pa.table({"body": ["a", "b", "c"], "keys": ["x y", None, "z"]}))
    assert table.column("keys").to_pylist() == [["x y"], None, ["z"]]
    assert table.column("body").to_pylist() == [b"a", b"b", b"c"]


def test_made_ids_differ_and_are_the_same_again() -> None:
    first = made_ids(0xABCDEF, 3, 10, 5).to_pylist()
    assert first == made_ids(0xABCDEF, 3, 10, 5).to_pylist()
    assert len({*first, *made_ids(0xABCDEF, 4, 10, 5).to_pylist()}) == 10
    assert first[0] == "01" + f"{0xABCDEF:016X}" + "000003" + f"{10:010X}"


@pytest.mark.parametrize(("unit", "in_ms"), [("ms", 1), ("s", 1_000), ("us", 0.001)])
def test_numbers_are_due_times_by_their_unit(unit, in_ms) -> None:
    numbers = pa.table({"deliver_at": pa.array([1_767_225_600_001, 0, -7, None])})
    expected = [math.ceil(1_767_225_600_001 * in_ms), 0, math.ceil(-7 * in_ms), 0]
    assert due_of(numbers, Unit(unit)).tolist() == expected


def test_numbers_that_are_too_large_do_not_come_round() -> None:
    ends = pa.table({"deliver_at": pa.array([(1 << 63) - 1, -(1 << 63)])})
    last, first = due_of(ends, Unit.S).tolist()
    assert last > TARGET.max_due_ms
    assert first < 0
    rounded = [-(-((1 << 63) - 1) // 1_000), -((1 << 63) // 1_000)]
    assert due_of(ends, Unit.US).tolist() == rounded
    times = pa.table({"deliver_at": ends.column("deliver_at").cast(pa.timestamp("us", tz="UTC"))})
    assert due_of(times).tolist() == rounded


def test_what_was_due_long_ago_is_a_mistake() -> None:
    """Seconds taken for milliseconds are due in January 1970, and would be visible at once."""
    target = TARGET._replace(min_due_ms=TARGET.born_ms - 86_400_000)
    rows = [target.born_ms // 1_000 + 30 * 86_400, target.min_due_ms - 1, target.min_due_ms]
    table = pa.table({"body": ["b"] * 3, "deliver_at": rows})
    found = refusals(normalised(table), due_of(table), target)
    assert sorted(found) == [0, 1]
    assert found[0] == (
        "deliver_at: 1702592000 ms is 1970-01-20T16:56:32.000Z, and what was due before "
        "2023-11-13T22:13:20.000Z is refused; is the unit right? (a longer overdueMax takes it)"
    )


def test_a_text_that_is_a_number_lacks_its_unit() -> None:
    texts = ["1767225600", "soon", " 18:00"]
    table = pa.table(
        {"body": ["b"] * 3, "deliver_at": pa.nulls(3, pa.int64()), "deliver_at_text": texts}
    )
    found = refusals(normalised(table), due_of(table), TARGET)
    assert found == {
        0: "deliver_at: '1767225600' is a number without a unit; say what it counts with deliverAtUnit",
        1: "deliver_at: 'soon' is no time",
        2: "deliver_at: ' 18:00' has no date",
    }
