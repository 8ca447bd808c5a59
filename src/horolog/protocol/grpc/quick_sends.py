"""Sends in the form in which clients serialise them, read without protobuf's objects.

Protobuf says that a message which is cut between two fields means what its parts mean together.  So a sent message is
cut into what differs from message to message (id, time made, due time, user properties, body) and the rest of its system
properties, whose meaning, and the checks that it must pass, are remembered (`_shape`).

Everything that stands otherwise than clients write it (fields in another order, or twice; lengths in more bytes than
they need; text that is no UTF-8; a digest) is for protobuf, with the whole request.  `tests/unit/test_quick_requests.py`
holds one way against the other.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from horolog.errors import ErrorCode, HorologError
from horolog.limits import MESSAGE_ID_MAX
from horolog.protocol.commands import MessageType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import marks_in, name_of, plain, timestamp_ms, type_of
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import check_user_properties, encode, marks_of
from horolog.protocol.rocketmq.message_group import group_code
from horolog.protocol.rocketmq.tags import tags_code

_MESSAGES = _TOPIC = _TAG = 1 << 3 | 2
_USER = _KEYS = 2 << 3 | 2
_SYSTEM = _ID = 3 << 3 | 2
_BODY = 4 << 3 | 2
_ENCODING, _TYPE = 5 << 3, 6 << 3
_BORN, _BORN_HOST, _DUE = 7 << 3 | 2, 8 << 3 | 2, 11 << 3 | 2
_read_stamp = Timestamp.FromString
_SECONDS_MAX = 253_402_300_000  # of due times that are read here; up to the year 9999, but for its last minutes
_REMEMBERED_MAX = 512  # bytes of a key of what is remembered
_PLAIN_ID = re.compile(rb"[!-~]{1,%d}" % MESSAGE_ID_MAX)  # an id that passes all checks


class Shape(NamedTuple):
    """What system properties mean, but for id, time made and due time.

    types    without a due time, and with one; None: that is refused
    marks    tag, keys and message group, as they are stored
    group    code of the message group
    trace    the trace context, as it is stored
    size     bytes of tag and keys
    """

    types: tuple[MessageType | None, MessageType | None]
    sys_flag: int
    code: int
    has_keys: bool
    host: str
    marks: bytes
    group: int
    trace: bytes
    size: int


# Message id, shape, (seconds, nanos) when it was made, due time, (user properties as stored, their bytes), body, and
# where in the request it begins and ends.
Cut: TypeAlias = tuple[bytes, Shape, tuple[int, int], int, tuple[bytes, int], bytes, int, int]


class _Form(NamedTuple):
    """Where things stand in a message: the next one is mostly made alike, and need not be looked at field by field.

    Positions count from its beginning.  What stands between the values that differ must be the same bytes.
    """

    size: int
    topic: bytes  # its field
    front: bytes  # from there up to the id
    id_end: int
    middle: bytes  # up to the time made
    born_end: int
    after: bytes  # up to the due time
    due_end: int
    rest: bytes  # up to the body
    shape: Shape
    user: tuple[bytes, int]


_FORMS_MAX = 256
_forms: dict[int, _Form] = {}  # by size, the last ones


class QuickSend(NamedTuple):
    """A SendMessage request that was read here."""

    raw: bytes
    topic: str
    messages: list[Cut]

    @property
    def ids(self) -> list[str]:
        """Ids of its messages."""
        return [cut[0].decode() for cut in self.messages]


class _Other(Exception):
    """It is for protobuf."""


@lru_cache(maxsize=1_024)
def _topic_of(field: bytes) -> str:
    return name_of(pb.Message.FromString(field).topic)


@lru_cache(maxsize=1_024)
def _user(fields: bytes) -> tuple[bytes, int]:
    """User properties as they are stored, and how many bytes they have."""
    user = pb.Message.FromString(fields).user_properties
    check_user_properties(user, "", ())
    return properties.encode(user), sum(len((k + v).encode()) for k, v in user.items())


@lru_cache(maxsize=1_024)
def _born(stamp: bytes) -> tuple[int, int]:
    """Seconds and nanos."""
    read = Timestamp.FromString(stamp)
    timestamp_ms(read, "born_timestamp", ErrorCode.BAD_REQUEST)
    return read.seconds, read.nanos


def _due(stamp: bytes) -> int:
    """A due time, rounded up as `timestamp_ms` does; nothing that it refuses, nor the first second of all time."""
    read = _read_stamp(stamp)
    seconds, nanos = read.seconds, read.nanos
    if not 0 < seconds < _SECONDS_MAX or not 0 <= nanos < 1_000_000_000:
        raise _Other
    return seconds * 1_000 - (-nanos // 1_000_000)


@lru_cache(maxsize=1_024)
def _shape(fields: bytes) -> Shape:
    """What system properties mean in which no time and no id stand; checked."""
    system = pb.SystemProperties.FromString(fields)
    has = system.HasField
    cut = system.message_id or has("born_timestamp") or has("delivery_timestamp")
    if cut or has("body_digest") or system.message_type == pb.TRANSACTION:
        raise _Other
    tag, keys, group = marks_in(system)
    encode(topic="t", body=b"b", message_id="i", tag=tag, keys=keys, message_group=group)
    trace = b""
    if has("trace_context"):
        text = plain(system.trace_context, "trace_context")
        trace = properties.encode({properties.TRACE_CONTEXT: text})
    untimed = _type(system)
    system.delivery_timestamp.seconds = 1
    timed = _type(system)
    size = len((tag or "").encode()) + sum(len(key.encode()) for key in keys)
    flag = layout.COMPRESSED if system.body_encoding == pb.GZIP else 0
    marks = marks_of(tag, keys, group).encode()
    code, in_group = tags_code(tag or ""), group_code(group or "")
    types, host = (untimed, timed), system.born_host
    return Shape(types, flag, code, bool(keys), host, marks, in_group, trace, size)


def _type(system: pb.SystemProperties) -> MessageType | None:
    try:
        return type_of(system)
    except HorologError:
        return None


def read_send(raw: bytes) -> QuickSend | pb.SendMessageRequest:
    """A SendMessage request; DecodeError if it is none."""
    try:
        return _read(raw)
    except (_Other, IndexError, DecodeError, HorologError):
        return pb.SendMessageRequest.FromString(raw)


def _size(raw: bytes, at: int) -> tuple[int, int]:
    """A length, in no more bytes than it needs, and where it ends."""
    size = raw[at]
    if size < 0x80:
        return size, at + 1
    size = size & 0x7F | raw[at + 1] << 7
    if size < 0x80:
        raise _Other
    if size < 1 << 14:
        return size, at + 2
    size = size & 0x3FFF | raw[at + 2] << 14
    if 1 << 14 <= size < 1 << 21:
        return size, at + 3
    raise _Other


def _read(raw: bytes) -> QuickSend:
    end = len(raw)
    found: list[Cut] = []
    at, form, topic = 0, None, b""
    while at < end:
        if raw[at] != _MESSAGES:
            raise _Other
        size, start = _size(raw, at + 1)
        at = start + size
        if form is None or form.size != size:
            form = _forms.get(size)
        cut = None if form is None else _cut_alike(raw, start, at, form)
        if cut is None:
            cut, form = _cut(raw, start, at)
            _remember(form)
        assert form is not None
        if form.topic != topic:
            if topic:
                raise _Other
            topic = form.topic
        found.append(cut)
    if at != end or not found:
        raise _Other
    return QuickSend(raw, _topic_of(topic), found)


def _remember(form: _Form) -> None:
    if len(form.front) + len(form.rest) <= _REMEMBERED_MAX:
        if len(_forms) >= _FORMS_MAX:
            _forms.clear()
        _forms[form.size] = form


def _cut_alike(raw: bytes, start: int, end: int, form: _Form) -> Cut | None:
    """A message that is made like the one before it; None if it is not."""
    _, _, front, id_end, middle, born_end, after, due_end, rest, shape, user = form
    id_end, born_end, due_end = start + id_end, start + born_end, start + due_end
    if not (
        raw.startswith(front, start)
        and raw.startswith(middle, id_end)
        and raw.startswith(after, born_end)
        and raw.startswith(rest, due_end)
    ):
        return None
    message_id = raw[start + len(front) : id_end]
    due_at, due_ms = born_end + len(after), 0
    if due_at < due_end:
        due_ms = _due(raw[due_at:due_end])
    if not _PLAIN_ID.fullmatch(message_id):
        raise _Other
    born = _born(raw[id_end + len(middle) : born_end])
    body = raw[due_end + len(rest) : end]
    return message_id, shape, born, due_ms, user, body, start, end


def _cut(raw: bytes, start: int, end: int) -> tuple[Cut, _Form]:
    """Any message."""
    if raw[start] != _TOPIC:
        raise _Other
    at = _after(raw, start)
    topic = raw[start:at]
    user, begin = (b"", 0), at
    while raw[at] == _USER:
        size, at = _size(raw, at + 1)
        at += size
    if at > begin:
        fields = raw[begin:at]
        user = (_user if len(fields) <= _REMEMBERED_MAX else _user.__wrapped__)(fields)
    if raw[at] != _SYSTEM:
        raise _Other
    size, begin = _size(raw, at + 1)
    stop = begin + size
    if raw[stop] != _BODY:
        raise _Other
    size, body = _size(raw, stop + 1)
    if body + size != end:
        raise _Other
    id_at, id_end, born_at, born_end, due_at, due_end, shape = _cut_system(raw, begin, stop)
    front, middle = raw[start:id_at], raw[id_end:born_at]
    after, rest = raw[born_end:due_at], raw[due_end:body]
    ends = id_end - start, born_end - start, due_end - start
    form = _Form(
        end - start, topic, front, ends[0], middle, ends[1], after, ends[2], rest, shape, user
    )
    cut = _cut_alike(raw, start, end, form)
    assert cut is not None, "it is made like itself"
    return cut, form


def _cut_system(raw: bytes, begin: int, stop: int) -> tuple[int, int, int, int, int, int, Shape]:
    """Where in system properties the values of id, time made and due time begin and end; and the rest of them."""
    at = begin
    while raw[at] in (_TAG, _KEYS):
        at = _after(raw, at)
    if raw[at] != _ID:
        raise _Other
    id_at, at = at, _after(raw, at)
    id_end = at
    for number in (_ENCODING, _TYPE):
        if raw[at] == number:
            at += 2
            if raw[at - 1] >= 0x80:
                raise _Other
    born_at = born_field = at
    if raw[at] == _BORN:
        born_at, at = at + 2, _after(raw, at)
    born_end = at
    if raw[at] == _BORN_HOST:
        at = _after(raw, at)
    due_at = due_field = at
    if raw[at] == _DUE:
        due_at, at = at + 2, _after(raw, at)
    if at > stop:
        raise _Other
    rest = raw[begin:id_at], raw[id_end:born_field], raw[born_end:due_field], raw[at:stop]
    fields = b"".join(rest)
    shape = (_shape if len(fields) <= _REMEMBERED_MAX else _shape.__wrapped__)(fields)
    return id_at + 2, id_end, born_at, born_end, due_at, at, shape


def _after(raw: bytes, at: int) -> int:
    """Where a short field of text or a message ends."""
    size = raw[at + 1]
    if size >= 0x80:
        raise _Other
    return at + 2 + size
