"""Sends in the form in which clients serialise them, read without protobuf's objects.

Protobuf says that a message which is cut between two fields means what its parts mean together.  So a sent message is
cut into what differs from message to message (id, time made, due time, user properties, body) and the rest of its system
properties, whose meaning, and the checks that it must pass, are remembered (`_shape`).

Everything that stands otherwise than clients write it (fields in another order, or twice; lengths in more bytes than
they need; text that is no UTF-8; a digest) is for protobuf, with the whole request; and so is, alone, a message that
breaks a limit, for the words of its refusal.  `tests/unit/test_quick_requests.py` holds one way against the other.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX, MESSAGE_ID_MAX, PROPERTIES_MAX
from horolog.protocol.commands import MessageType, NewRecords, SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import (
    Peer,
    marks_in,
    name_of,
    of_producer,
    plain,
    timestamp_ms,
    to_record,
    type_of,
)
from horolog.protocol.rocketmq import layout, names, properties
from horolog.protocol.rocketmq.layout import HEAD
from horolog.protocol.rocketmq.message import (
    RECORD_HEAD_BYTES,
    check_user_properties,
    encode,
    key_hash_of,
    layout_pieces,
    marks_of,
)
from horolog.protocol.rocketmq.message_group import group_code
from horolog.protocol.rocketmq.tags import tags_code
from horolog.protocol.send_commands import ANY_QUEUE, HEAD_AS_SENT

_MESSAGES = _TOPIC = _TAG = 1 << 3 | 2
_USER = _KEYS = 2 << 3 | 2
_SYSTEM = _ID = 3 << 3 | 2
_BODY = 4 << 3 | 2
_ENCODING, _TYPE = 5 << 3, 6 << 3
_BORN, _BORN_HOST, _DUE = 7 << 3 | 2, 8 << 3 | 2, 11 << 3 | 2
_TIMER, _UNIQ_KEY = (
    name.encode() + b"\x01" for name in (properties.TIMER_DELIVER_MS, properties.UNIQ_KEY)
)
_read_stamp = Timestamp.FromString
_SECONDS_MAX = 253_402_300_000  # of due times that are read here; up to the year 9999, but for its last minutes
_REMEMBERED_MAX = 512  # bytes of a key of what is remembered
_PLAIN_ID = re.compile(rb"[!-~]{1,%d}" % MESSAGE_ID_MAX)  # an id that passes all checks


class _Shape(NamedTuple):
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
_Cut: TypeAlias = tuple[bytes, _Shape, tuple[int, int], int, tuple[bytes, int], bytes, int, int]


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
    shape: _Shape
    user: tuple[bytes, int]


_FORMS_MAX = 256
_forms: dict[int, _Form] = {}  # by size, the last ones


class QuickSend(NamedTuple):
    """A SendMessage request that was read here."""

    raw: bytes
    topic: str
    messages: list[_Cut]

    @property
    def ids(self) -> list[str]:
        """Of its messages."""
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
def _shape(fields: bytes) -> _Shape:
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
    return _Shape(types, flag, code, bool(keys), host, marks, in_group, trace, size)


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
    found: list[_Cut] = []
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


def _cut_alike(raw: bytes, start: int, end: int, form: _Form) -> _Cut | None:
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


def _cut(raw: bytes, start: int, end: int) -> tuple[_Cut, _Form]:
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


def _cut_system(raw: bytes, begin: int, stop: int) -> tuple[int, int, int, int, int, int, _Shape]:
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


# --- records ----------------------------------------------------------------------------------------


def to_send_quickly(request: QuickSend, peer: Peer) -> tuple[SendMessages, dict[int, HorologError]]:
    """As `translate.to_send`: the command, and refusals of single messages by their place in the request."""
    topic = names.check_topic(request.topic)
    name = topic.encode()
    named = topic, bytes((len(name),)) + name, name + b"\0"
    pieces: list[bytes] = []
    sizes: list[int] = []
    refused: dict[int, HorologError] = {}
    for i, cut in enumerate(request.messages):
        try:
            record = _record(named, cut, peer) or _refused(request, topic, cut, peer)
        except HorologError as error:
            refused[i] = error
            continue
        pieces += record
        sizes.append(sum(map(len, record)))
    return SendMessages(topic, NewRecords(b"".join(pieces), sizes)), refused


def _refused(request: QuickSend, topic: str, cut: _Cut, peer: Peer) -> tuple[bytes, ...]:
    """The record of a message that breaks a limit, as protobuf's way has it: mostly its refusal."""
    message = pb.Message.FromString(request.raw[cut[6] : cut[7]])
    return (to_record(topic, message, peer).record,)


def _record(named: tuple[str, bytes, bytes], cut: _Cut, peer: Peer) -> tuple[bytes, ...] | None:
    """The record of a message, in pieces; None if it breaks a limit.

    named  the topic; its name after its length; and in front of a zero
    """
    message_id, shape, (seconds, nanos), due_ms, (user, user_size), body, _, _ = cut
    (untimed, timed), sys_flag, code, has_keys, host, marks, group, trace, marks_size = shape
    kind = timed if due_ms else untimed
    if kind is None or not 0 < len(body) <= BODY_MAX or user_size + marks_size > PROPERTIES_MAX:
        return None
    born_ms, made = of_producer(named[0], seconds, nanos, host)
    timer = b"%b%d\x02" % (_TIMER, due_ms) if due_ms else b""
    stored = b"".join((user, made, trace, _UNIQ_KEY, message_id, b"\x02", marks, timer))
    pieces = layout_pieces(named[1], body, stored, sys_flag, 0, born_ms, peer, ANY_QUEUE)
    size = RECORD_HEAD_BYTES + HEAD.size + len(body) + len(named[1]) + 2 + len(stored)
    hashed = key_hash_of(named[2], message_id)
    return HEAD_AS_SENT.pack(size, kind, has_keys, 0, due_ms, group, code, hashed), *pieces
