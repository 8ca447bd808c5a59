"""Tables whose keys are objects, as Java writes and reads them."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.remoting import object_keys

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "t"}
JAVA = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}},"topicPutTps":0}'
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, values, max_size=3)


def test_a_table_is_written_as_java_reads_it():
    found = {"offsetTable": object_keys.table([(QUEUE, {"maxOffset": 7})]), "topicPutTps": 0}
    assert orjson.dumps(found) == JAVA


def test_a_table_is_read_as_java_writes_it():
    found = object_keys.read(JAVA)
    assert object_keys.rows(found["offsetTable"]) == [(QUEUE, {"maxOffset": 7})]
    assert found["topicPutTps"] == 0


def test_rows_are_those_whose_keys_are_objects():
    found = object_keys.read(b'{"{not JSON":1,"name":2,3:4,{"a":5}:6}')
    assert object_keys.rows(found) == [({"a": 5}, 6)]


def test_a_number_may_be_a_key():
    assert object_keys.read(b'{"brokerAddrs":{0:"a:1", 1 : "b:2"}}\n') == {
        "brokerAddrs": {"0": "a:1", "1": "b:2"}
    }


@given(st.lists(st.tuples(objects, values), unique_by=lambda row: orjson.dumps(row[0])))
def test_what_was_written_is_read_again(entries):
    written = orjson.dumps({"table": object_keys.table(entries)})
    assert object_keys.rows(object_keys.read(written)["table"]) == entries


@given(objects, st.sampled_from([None, 1]))
def test_json_is_read_as_it_is(found, indent):
    assert object_keys.read(json.dumps(found, indent=indent).encode()) == orjson.loads(
        orjson.dumps(found)
    )


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"}", b"{{}", b'{"a":1]', b'{{}:1,{}', b'{"a', b'{{{"a":1}:2}:3}', b"{{1:1}:}",
        b'{{"a":1} {"b":2}:3}', b'{"a":nothing}', b"\xff", b'{{"a":\xff}:1}', b"[" * 100_000, b"{" * 100_000,
        b'{"a":' * 100_000, b"{[" * 50_000,
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused(body):
    with pytest.raises(HorologError, match="body: no JSON object") as caught:
        object_keys.read(body)
    assert caught.value.code is ErrorCode.BAD_REQUEST


@given(st.binary(max_size=40) | st.text(alphabet='{}[]:,"\\a1 ', max_size=40).map(str.encode))
def test_any_bytes_are_an_object_or_a_refusal(body):
    try:
        assert isinstance(object_keys.read(body), dict)
    except HorologError as refused:
        assert refused.field == "body"
