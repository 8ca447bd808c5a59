"""Encoder of messages: fields from any protocol to a checked record for the log.

All limits on a message are checked here, so both protocols refuse alike, with the same words.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence

from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog import limits
from horolog.errors import ErrorCode, refused
from horolog.protocol.rocketmq import properties as names
from horolog.protocol.rocketmq.layout import HEAD, MAGIC
from horolog.protocol.rocketmq.message_group import group_code
from horolog.protocol.rocketmq.tags import tags_code
from horolog.protocol.send_commands import ANY_QUEUE, HEAD_AS_SENT, MessageType, NewMessage

RECORD_HEAD_BYTES = HEAD_AS_SENT.size  # envelope 16 + routing 16; the log writes its own head
due_of = struct.Struct("<8xq").unpack_from  # (due_ms,) of a record; 0: never scheduled
KEY_HASH_SEED = 42  # the seed of Spark SQL's xxhash64, so a DataFrame can compute this hash
USER_KEY_SEED = 43  # another seed: a message id and a key with the same text differ
# control characters as Java defines them, and lone surrogates, which have no UTF-8 form
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NO_HOST = b"\0\0\0\0"


def key_hash(topic: str, message_id: str) -> int:
    """Return the u64 that stands for (topic, message id) in indexes.

    Collisions are resolved by reading the record.
    """
    return xxh64_intdigest(f"{topic}\0{message_id}".encode(), KEY_HASH_SEED)


def user_key_hash(topic: str, key: str) -> int:
    """Return the u64 that stands for (topic, one word of KEYS) in the key index."""
    return xxh64_intdigest(f"{topic}\0{key}".encode(), USER_KEY_SEED)


def user_key_hash_of(topic: bytes, key: bytes) -> int:
    """Return `user_key_hash` of a topic and a key in UTF-8."""
    return xxh64_intdigest(b"%b\0%b" % (topic, key), USER_KEY_SEED)


def user_key_hashes(topic: bytes, keys: Sequence[bytes]) -> list[int]:
    """Return `user_key_hash` of many keys of one topic, in UTF-8."""
    front = topic + b"\0"
    return [xxh64_intdigest(front + key, USER_KEY_SEED) for key in keys]


def _check_text(code: ErrorCode, field: str, text: str, *, forbid: str = "") -> None:
    if not text.strip():
        raise refused(field, "present but blank", code=code)
    if _CONTROL.search(text) or (forbid and any(mark in text for mark in forbid)):
        marks = f" or one of {forbid!r}" if forbid else ""
        raise refused(field, f"{text[:40]!r} has a control character{marks}", code=code)


def check_is_one_key(key: str, field: str) -> None:
    """Raise ILLEGAL_KEY for a key with white space.

    RocketMQ's KEYS joins keys by white space, so it would be several keys.
    """
    if key and key.split() != [key]:
        raise refused(
            field,
            f"{key[:40]!r} has white space, which separates keys; send several keys, or join the "
            "words",
            "no white space",
            code=ErrorCode.ILLEGAL_KEY,
        )


def check_user_properties(user: Mapping[str, str], tag: str, keys: Sequence[str]) -> None:
    """Raise PROPERTIES_TOO_LARGE or ILLEGAL_PROPERTY_KEY for bad user properties."""
    if len(user) > limits.USER_PROPERTIES_MAX:
        raise refused(
            "user_properties",
            f"{len(user)} properties; at most {limits.USER_PROPERTIES_MAX} are allowed",
            f"{limits.USER_PROPERTIES_MAX} properties",
            code=ErrorCode.PROPERTIES_TOO_LARGE,
        )
    total = len(tag.encode()) + sum(len(key.encode()) for key in keys)
    for name, value in user.items():
        if names.is_hidden(name):
            raise refused(
                "user_properties",
                f"{name!r} is a reserved name",
                code=ErrorCode.ILLEGAL_PROPERTY_KEY,
            )
        if not name or _CONTROL.search(name) or _CONTROL.search(value):
            raise refused(
                "user_properties",
                f"{name[:40]!r} is blank, or it or its value has a control character",
                code=ErrorCode.ILLEGAL_PROPERTY_KEY,
            )
        total += len(name.encode()) + len(value.encode())
    if total > limits.PROPERTIES_MAX:
        raise refused(
            "user_properties",
            f"properties, tag and keys have {total} bytes; at most {limits.PROPERTIES_MAX} are "
            "allowed",
            f"{limits.PROPERTIES_MAX} bytes",
            code=ErrorCode.PROPERTIES_TOO_LARGE,
        )


def check_body(body: bytes) -> None:
    """Raise BODY_EMPTY or BODY_TOO_LARGE for a bad body."""
    if not body:
        raise refused(
            "body", "empty; at least 1 byte is needed", "1 byte", code=ErrorCode.BODY_EMPTY
        )
    if len(body) > limits.BODY_MAX:
        raise refused(
            "body",
            f"{len(body)} bytes; at most {limits.BODY_MAX} are allowed",
            f"{limits.BODY_MAX} bytes",
            code=ErrorCode.BODY_TOO_LARGE,
        )


def check_id(message_id: str) -> None:
    """Raise ILLEGAL_MESSAGE_ID for an id that a recall handle cannot contain."""
    if not message_id.strip() or _CONTROL.search(message_id) or " " in message_id:
        raise refused(
            "message_id",
            "blank, or has a space or control character",
            code=ErrorCode.ILLEGAL_MESSAGE_ID,
        )
    if len(message_id.encode()) > limits.MESSAGE_ID_MAX:
        raise refused(
            "message_id",
            f"longer than {limits.MESSAGE_ID_MAX} bytes",
            f"{limits.MESSAGE_ID_MAX} bytes",
            code=ErrorCode.ILLEGAL_MESSAGE_ID,
        )


def encode(
    *,
    topic: str,
    body: bytes,
    message_id: str,
    type: MessageType = MessageType.NORMAL,
    due_ms: int = 0,
    tag: str | None = None,
    keys: Sequence[str] = (),
    user_properties: Mapping[str, str] | None = None,
    system_properties: bytes = b"",
    message_group: str | None = None,
    sys_flag: int = 0,
    born_ms: int = 0,
    born_host: tuple[bytes, int] = (_NO_HOST, 0),
) -> NewMessage:
    """Check one message and encode it for the log; `topic` must have passed `names.check_topic`.

    due_ms             UTC epoch milliseconds, 0 for "now"; stored as TIMER_DELIVER_MS
    system_properties  trusted properties (trace context, born host text, producer group …), as stored
    born_host          (4 bytes of IPv4, port)

    Every broken limit is a HorologError that names field and limit; the checks run in the order of
    the protocol.
    """
    if tag is not None:
        _check_text(ErrorCode.ILLEGAL_TAG, "tag", tag, forbid="|")
    for key in keys:
        _check_text(ErrorCode.ILLEGAL_KEY, "keys", key)
        check_is_one_key(key, "keys")
    if message_group is not None:
        _check_text(ErrorCode.ILLEGAL_MESSAGE_GROUP, "message_group", message_group)
        if len(message_group.encode()) > limits.MESSAGE_GROUP_MAX:
            raise refused(
                "message_group",
                f"longer than {limits.MESSAGE_GROUP_MAX} bytes",
                f"{limits.MESSAGE_GROUP_MAX} bytes",
                code=ErrorCode.ILLEGAL_MESSAGE_GROUP,
            )
    if user_properties or keys or tag:
        check_user_properties(user_properties or {}, tag or "", keys)
    check_id(message_id)
    check_body(body)
    stored = f"{names.UNIQ_KEY}\x01{message_id}\x02" + marks_of(tag, keys, message_group)
    if due_ms:
        stored += f"{names.TIMER_DELIVER_MS}\x01{due_ms}\x02"
    of_user = names.encode(user_properties) if user_properties else b""
    packed = encode_layout(
        topic,
        body,
        b"".join((of_user, system_properties, names.IN_REGION, stored.encode())),
        sys_flag,
        0,
        born_ms,
        born_host,
        ANY_QUEUE,
    )
    code, hashed = tags_code(tag or ""), key_hash(topic, message_id)
    size = RECORD_HEAD_BYTES + len(packed)
    group = group_code(message_group or "")
    head = HEAD_AS_SENT.pack(size, type, bool(keys), 0, due_ms, group, code, hashed)
    return NewMessage(head + packed, message_id, due_ms, code, hashed, type, bool(keys))


def marks_of(tag: str | None, keys: Sequence[str], message_group: str | None) -> str:
    """Return tag, keys and message group as stored properties."""
    marks = "" if tag is None else f"{names.TAGS}\x01{tag}\x02"
    if keys:
        marks += f"{names.KEYS}\x01{' '.join(keys)}\x02"
    if message_group is not None:
        marks += f"{names.SHARDING_KEY}\x01{message_group}\x02"
    return marks


def encode_layout(
    topic: str,
    body: bytes,
    stored_properties: bytes,
    sys_flag: int,
    flag: int,
    born_ms: int,
    born_host: tuple[bytes, int],
    queue_id: int = 0,
) -> bytes:
    """Encode the stored layout, with the broker's fields still zero."""
    name = topic.encode()
    pieces = layout_pieces(
        bytes((len(name),)) + name,
        body,
        stored_properties,
        sys_flag,
        flag,
        born_ms,
        born_host,
        queue_id,
    )
    return b"".join(pieces)


def layout_pieces(
    name: bytes,
    body: bytes,
    stored_properties: bytes,
    sys_flag: int,
    flag: int,
    born_ms: int,
    born_host: tuple[bytes, int],
    queue_id: int = 0,
) -> tuple[bytes, ...]:
    """Encode the stored layout as pieces to join; `name` is the topic, after its length."""
    stored_size = len(stored_properties)
    check_stored_size(stored_size)
    body_size = len(body)
    head = HEAD.pack(
        HEAD.size + body_size + len(name) + 2 + stored_size,
        MAGIC,
        crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        0,
        0,
        sys_flag,
        born_ms,
        born_host[0],
        born_host[1],
        0,
        _NO_HOST,
        0,
        0,
        0,
        body_size,
    )
    return head, body, name, stored_size.to_bytes(2, "big"), stored_properties


def check_stored_size(size: int) -> None:
    """Raise PROPERTIES_TOO_LARGE for more bytes of stored properties than a layout can have."""
    if size > limits.STORED_PROPERTIES_MAX:
        raise refused(
            "properties",
            f"{size} bytes; at most {limits.STORED_PROPERTIES_MAX} are allowed",
            f"{limits.STORED_PROPERTIES_MAX} bytes",
            code=ErrorCode.PROPERTIES_TOO_LARGE,
        )
