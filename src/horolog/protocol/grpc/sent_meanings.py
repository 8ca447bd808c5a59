"""Meanings of the fields of sent messages, cached by their bytes, since they mostly recur.

By protobuf's rules, a message split between two fields means what its parts mean together.  So each
part is parsed by protobuf once, and checked once; the parts that differ from message to message
(id, keys, times, body) are kept apart from the rest.  Fields that are refused, or written as no
client writes them, raise `LeaveToProtobuf`: the whole request is then left to protobuf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.timestamp_pb2 import Timestamp

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import MessageType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import marks_in, name_of, plain, timestamp_ms, type_of
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import check_user_properties, encode, marks_of
from horolog.protocol.rocketmq.message_group import group_code
from horolog.protocol.rocketmq.tags import tags_code

REMEMBERED_MAX = 512  # bytes of a part that is cached
_SECONDS_MAX = 253_402_300_000  # of due times; up to the last minutes of the year 9999
_ONE_KEY = re.compile(rb"\x12.[!-~]*", re.DOTALL)  # a field with one key that passes all checks
_STORED_KEYS = f"{properties.KEYS}\x01".encode()
SECONDS_BYTES = 6  # of the field of seconds from 1978 to 3058


class LeaveToProtobuf(Exception):
    """The message is left to protobuf."""


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """What a message means, without id, keys, times and body; one object while it is cached.

    topic          not checked
    untimed        message type without a due time; None: refused
    timed          message type with a due time; None: refused
    group          code of the message group
    user, trace    user properties and the trace context, as they are stored
    tag            stored between the id and the keys: the tag
    grouped        stored after the keys: the message group
    size           bytes of user properties and tag
    """

    topic: str
    untimed: MessageType | None
    timed: MessageType | None
    sys_flag: int
    code: int
    group: int
    host: str
    user: bytes
    trace: bytes
    tag: bytes
    grouped: bytes
    size: int


def meaning_of(topic: bytes, user: bytes, system: bytes) -> Meaning:
    """Return the meaning of topic, user properties and system properties.

    system  system properties without id, keys and times
    """
    if len(topic) + len(user) + len(system) > REMEMBERED_MAX:
        return _meaning.__wrapped__(topic, user, system)
    return _meaning(topic, user, system)


@lru_cache(maxsize=1_024)
def _meaning(topic: bytes, user: bytes, fields: bytes) -> Meaning:
    of_user = pb.Message.FromString(user).user_properties
    system = pb.SystemProperties.FromString(fields)
    has = system.HasField
    apart = has("born_timestamp") or has("delivery_timestamp") or has("body_digest")
    if apart or system.message_id or system.keys[:] or system.message_type == pb.TRANSACTION:
        raise LeaveToProtobuf
    tag, _, group = marks_in(system)
    encode(topic="t", body=b"b", message_id="i", tag=tag, message_group=group)
    check_user_properties(of_user, "", ())
    trace = b""
    if has("trace_context"):
        text = plain(system.trace_context, "trace_context")
        trace = properties.encode({properties.TRACE_CONTEXT: text})
    untimed = _type(system)
    system.delivery_timestamp.seconds = 1
    return Meaning(
        topic=name_of(pb.Message.FromString(topic).topic),
        untimed=untimed,
        timed=_type(system),
        sys_flag=layout.COMPRESSED if system.body_encoding == pb.GZIP else 0,
        code=tags_code(tag or ""),
        group=group_code(group or ""),
        host=system.born_host,
        user=properties.encode(of_user),
        trace=trace,
        tag=b"\x02" + marks_of(tag, (), None).encode(),
        grouped=marks_of(None, (), group).encode(),
        size=sum(len((k + v).encode()) for k, v in of_user.items()) + len((tag or "").encode()),
    )


def _type(system: pb.SystemProperties) -> MessageType | None:
    try:
        return type_of(system)
    except HorologError:
        return None


def keys_of(fields: bytes) -> bytes:
    """Return keys as they are stored, from fields that are keys only."""
    size = len(fields) - 2
    if 0 < size == fields[1] < 0x80 and _ONE_KEY.fullmatch(fields):
        return b"%b%b\x02" % (_STORED_KEYS, fields[2:])
    return _keys(fields) if size <= REMEMBERED_MAX else _keys.__wrapped__(fields)


@lru_cache(maxsize=1_024)
def _keys(fields: bytes) -> bytes:
    keys = pb.SystemProperties.FromString(fields).keys[:]
    only = pb.SystemProperties(keys=keys)
    if only.SerializeToString() != fields:
        raise LeaveToProtobuf
    _, keys, _ = marks_in(only)
    encode(topic="t", body=b"b", message_id="i", keys=keys)
    return marks_of(None, keys, None).encode()


@lru_cache(maxsize=1_024)
def born_of(stamp: bytes) -> tuple[int, int]:
    """Return when a message was made, in seconds and nanos."""
    read = Timestamp.FromString(stamp)
    timestamp_ms(read, "born_timestamp", ErrorCode.BAD_REQUEST)
    return read.seconds, read.nanos


@lru_cache(maxsize=4_096)
def seconds_ms(field: bytes) -> int:
    """Return the seconds of a due time in ms.

    `LeaveToProtobuf` for 1970, and for values that `timestamp_ms` refuses.
    """
    read = Timestamp.FromString(field)
    if not 0 < read.seconds < _SECONDS_MAX or read.nanos:
        raise LeaveToProtobuf
    return read.seconds * 1_000


@lru_cache(maxsize=2_048)
def nanos_ms(field: bytes) -> int:
    """Return the nanos of a due time in ms, rounded up as by `timestamp_ms`; 0 without nanos.

    `LeaveToProtobuf` for values that `timestamp_ms` refuses.
    """
    read = Timestamp.FromString(field)
    if not 0 <= read.nanos < 1_000_000_000 or read.seconds:
        raise LeaveToProtobuf
    return -(-read.nanos // 1_000_000)
