"""Every limit of a message: exactly at it passes, one more is refused and says why (`protocol.rocketmq.message`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import limits
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import MessageType, NewMessage
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode
from horolog.protocol.rocketmq.properties import encode as encode_properties
from horolog.protocol.rocketmq.tags import tags_code

PLAIN: dict[str, Any] = {"topic": "t", "body": b"x", "message_id": "m"}


def send(**fields: Any) -> NewMessage:
    return encode(**{**PLAIN, **fields})


def stored(message: NewMessage) -> dict[str, str]:
    return properties.decode(layout.decode(message.record[RECORD_HEAD_BYTES:]).properties)


def refused(code: ErrorCode, field: str, limit: str = "", **fields: Any) -> HorologError:
    with pytest.raises(HorologError) as caught:
        send(**fields)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.limit == limit
    assert str(caught.value).startswith(f"{field}: ")
    if limit:
        assert limit.split(maxsplit=1)[0] in str(caught.value)
    assert len(str(caught.value)) < 300
    return caught.value


def of_stored_size(size: int) -> dict[str, str]:
    """System properties that make the stored properties of a plain message `size` bytes long."""
    empty = len(properties.IN_REGION + properties.encode({"UNIQ_KEY": "m", "TRACE_CONTEXT": ""}))
    return {"TRACE_CONTEXT": "c" * (size - empty)}


AT_LIMIT: list[tuple[str, dict[str, Any], dict[str, Any], ErrorCode, str, str]] = [
    (
        "body",
        {"body": bytes(4_194_304)},
        {"body": bytes(4_194_305)},
        ErrorCode.BODY_TOO_LARGE,
        "body",
        "4194304 bytes",
    ),
    ("empty body", {"body": b"x"}, {"body": b""}, ErrorCode.BODY_EMPTY, "body", "1 byte"),
    (
        "count of properties",
        {"user_properties": {f"p{i}": "" for i in range(128)}},
        {"user_properties": {f"p{i}": "" for i in range(129)}},
        ErrorCode.PROPERTIES_TOO_LARGE,
        "user_properties",
        "128 properties",
    ),
    (
        "bytes of properties",
        {"user_properties": {"é": "v" * 16_379}, "tag": "t", "keys": ["k", "l"]},
        {"user_properties": {"é": "v" * 16_380}, "tag": "t", "keys": ["k", "l"]},
        ErrorCode.PROPERTIES_TOO_LARGE,
        "user_properties",
        "16384 bytes",
    ),
    (
        "bytes of a tag",
        {"tag": "é" * 8_192},
        {"tag": "é" * 8_192 + "t"},
        ErrorCode.PROPERTIES_TOO_LARGE,
        "user_properties",
        "16384 bytes",
    ),
    (
        "bytes of keys",
        {"keys": ["k" * 8_192] * 2},
        {"keys": ["k" * 8_192, "k" * 8_193]},
        ErrorCode.PROPERTIES_TOO_LARGE,
        "user_properties",
        "16384 bytes",
    ),
    (
        "stored properties",
        {"system_properties": encode_properties(of_stored_size(32_767))},
        {"system_properties": encode_properties(of_stored_size(32_768))},
        ErrorCode.PROPERTIES_TOO_LARGE,
        "properties",
        "32767 bytes",
    ),
    (
        "message group",
        {"message_group": "é" * 31 + "g"},
        {"message_group": "é" * 32},
        ErrorCode.ILLEGAL_MESSAGE_GROUP,
        "message_group",
        "63 bytes",
    ),
    (
        "message id",
        {"message_id": "é" * 127 + "i"},
        {"message_id": "é" * 128},
        ErrorCode.ILLEGAL_MESSAGE_ID,
        "message_id",
        "255 bytes",
    ),
]


@pytest.mark.parametrize(
    ("good", "bad", "code", "field", "limit"),
    [row[1:] for row in AT_LIMIT],
    ids=[row[0] for row in AT_LIMIT],
)
def test_at_the_limit_and_one_more(
    good: dict[str, Any], bad: dict[str, Any], code: ErrorCode, field: str, limit: str
) -> None:
    record = send(**good).record
    assert layout.decode(record[RECORD_HEAD_BYTES:]).body == good.get("body", b"x")
    refused(code, field, limit, **bad)


def test_the_limits_are_the_published_ones() -> None:
    assert limits.BODY_MAX == 4_194_304
    assert limits.PROPERTIES_MAX == 16_384
    assert limits.USER_PROPERTIES_MAX == 128
    assert limits.STORED_PROPERTIES_MAX == 32_767
    assert (limits.TOPIC_NAME_MAX, limits.GROUP_NAME_MAX) == (127, 120)
    assert limits.MESSAGE_GROUP_MAX == 63
    assert limits.MESSAGE_ID_MAX == 255


BAD_TEXTS = [
    "a\x00b",
    "a\nb",
    "\x7f",
    "a\x85b",
    "\x01",
    "x\x02UNIQ_KEY\x01forged",
    "\ud800",
    "\udfff",
]


@pytest.mark.parametrize("text", ["", "  ", *BAD_TEXTS])
def test_texts_that_are_refused(text: str) -> None:
    refused(ErrorCode.ILLEGAL_TAG, "tag", tag=text)
    refused(ErrorCode.ILLEGAL_KEY, "keys", keys=["good", text])
    refused(ErrorCode.ILLEGAL_MESSAGE_GROUP, "message_group", message_group=text)
    refused(ErrorCode.ILLEGAL_MESSAGE_ID, "message_id", message_id=text)


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_properties_that_are_refused(text: str) -> None:
    refused(ErrorCode.ILLEGAL_PROPERTY_KEY, "user_properties", user_properties={text: "v"})
    refused(ErrorCode.ILLEGAL_PROPERTY_KEY, "user_properties", user_properties={"p": text})


def test_a_property_without_a_name() -> None:
    refused(ErrorCode.ILLEGAL_PROPERTY_KEY, "user_properties", user_properties={"": "v"})


@pytest.mark.parametrize("name", [*sorted(properties.HIDDEN), "__RMQ.TRANSIENT.x"])
def test_reserved_names(name: str) -> None:
    error = refused(ErrorCode.ILLEGAL_PROPERTY_KEY, "user_properties", user_properties={name: "v"})
    assert name in str(error)


def test_marks_that_only_some_fields_refuse() -> None:
    refused(ErrorCode.ILLEGAL_TAG, "tag", tag="a|b")
    refused(ErrorCode.ILLEGAL_MESSAGE_ID, "message_id", message_id="a b")
    found = stored(send(keys=["a|b"], user_properties={"p": "|"}, message_group="a b|c"))
    assert (found["KEYS"], found["p"], found["__SHARDINGKEY"]) == ("a|b", "|", "a b|c")


def test_what_is_stored() -> None:
    message = send(
        tag="TagA",
        keys=["k1", "k2"],
        due_ms=5_000,
        type=MessageType.DELAY,
        user_properties={"colour": "grün"},
        system_properties=b"PGROUP\x01p\x02",
    )
    assert stored(message) == {
        "colour": "grün",
        "PGROUP": "p",
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": "m",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "TIMER_DELIVER_MS": "5000",
    }
    assert message.message_id == "m"
    assert message.due_ms == 5_000
    assert message.tags_code == tags_code("TagA")
    assert message.type is MessageType.DELAY
    assert stored(send()) == {"MSG_REGION": "DefaultRegion", "UNIQ_KEY": "m"}


ANY = st.text(st.characters(), max_size=20)


@given(
    message_id=ANY,
    tag=st.none() | ANY,
    keys=st.lists(ANY, max_size=3),
    user=st.dictionaries(ANY, ANY, max_size=3),
    group=st.none() | ANY,
    body=st.binary(max_size=10),
)
def test_any_fields(
    message_id: str,
    tag: str | None,
    keys: list[str],
    user: dict[str, str],
    group: str | None,
    body: bytes,
) -> None:
    """A HorologError, or a record that gives back what was sent."""
    try:
        message = send(
            message_id=message_id,
            tag=tag,
            keys=keys,
            user_properties=user,
            message_group=group,
            body=body,
        )
    except HorologError as error:
        assert error.field
        return
    wanted = {**user, "MSG_REGION": "DefaultRegion", "UNIQ_KEY": message_id}
    wanted |= {"TAGS": tag} if tag is not None else {}
    wanted |= {"KEYS": " ".join(keys)} if keys else {}
    wanted |= {"__SHARDINGKEY": group} if group is not None else {}
    assert stored(message) == wanted
