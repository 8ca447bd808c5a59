"""Send requests in the form in which clients serialise them, read without protobuf's objects.

A sent message is split into the parts that differ from message to message (id, keys, time made, due
time, body) and the rest, whose meaning is cached (`sent_meanings`).  The next message mostly has
the same form, and is split by one call.

Any form that clients do not write (fields in another order, or twice; lengths in more bytes than
they need; text that is no UTF-8; a digest) is left to protobuf, with the whole request.
`tests/unit/test_quick_requests.py` compares both ways.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from google.protobuf.message import DecodeError

from horolog.errors import HorologError
from horolog.limits import MESSAGE_ID_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.large_sends import check_large_send
from horolog.protocol.grpc.sent_meanings import (
    REMEMBERED_MAX,
    SECONDS_BYTES,
    LeaveToProtobuf,
    Meaning,
    born_of,
    keys_of,
    meaning_of,
    nanos_ms,
    seconds_ms,
)

_MESSAGES = _TOPIC = _TAG = 1 << 3 | 2
_USER = _KEYS = 2 << 3 | 2
_SYSTEM = _ID = 3 << 3 | 2
_BODY = 4 << 3 | 2
_ENCODING, _TYPE = 5 << 3, 6 << 3
_BORN, _BORN_HOST, _DUE = 7 << 3 | 2, 8 << 3 | 2, 11 << 3 | 2
_plain = re.compile(rb"[!-~]*").fullmatch  # text without characters that an id may not have


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """Offsets of the parts of a message, from its tag in the request on.

    size     bytes of the whole message
    parts    fixed, keys, fixed, id, fixed, time made, fixed, seconds of the due time, fixed
             (empty), its nanos, fixed, body
    fixed    the fixed parts; another message with equal ones has this form
    meaning  of the fixed parts
    """

    size: int
    parts: struct.Struct
    fixed: tuple[bytes, ...]
    meaning: Meaning


_FORMS_MAX = 256
_LEAD = 3  # bytes that differ for messages of different sizes, up to 16 KiB
_LEAD_SIZES = 1 << 14
_forms: dict[bytes, _Form] = {}  # the last form by the first bytes of its messages


class QuickSend(NamedTuple):
    """A SendMessage request that was read without protobuf: the messages of a topic, as columns.

    keys  as they are stored, b"" for none
    born  when each message was made: seconds and nanos
    """

    raw: bytes
    topic: str
    ids: list[bytes]
    keys: list[bytes]
    born: list[tuple[int, int]]
    due_ms: list[int]
    bodies: list[bytes]
    meanings: list[Meaning]

    def names(self) -> list[str]:
        """Return the ids of the messages, as text."""
        return [name.decode() for name in self.ids]


def read_send(raw: bytes) -> QuickSend | pb.SendMessageRequest:
    """Read a SendMessage request; DecodeError if the bytes are none, BAD_REQUEST if too large."""
    check_large_send(raw)
    try:
        return _read(raw)
    except (LeaveToProtobuf, IndexError, struct.error, DecodeError, HorologError):
        return pb.SendMessageRequest.FromString(raw)


def _read(raw: bytes) -> QuickSend:
    end = len(raw)
    found: list[tuple[bytes, ...]] = []
    meanings: list[Meaning] = []
    if not raw:
        raise LeaveToProtobuf
    at = 0
    while at < end:
        form = _forms.get(raw[at : at + _LEAD])
        if form is not None:
            parts = form.parts.unpack_from(raw, at)
            if parts[::2] != form.fixed:
                form = None
        if form is None:
            form = _form_of(raw, at)
            parts = form.parts.unpack_from(raw, at)
        found.append(parts)
        meanings.append(form.meaning)
        at += form.size
    if len(found) == 1:
        return _of_one(raw, parts, meanings[0])
    _, keys, _, ids, _, born, _, seconds, _, nanos, _, bodies = map(list, zip(*found, strict=True))
    topics = {meaning.topic for meaning in set(meanings)}
    if len(topics) != 1 or not _plain(b"".join(ids)):
        raise LeaveToProtobuf
    return QuickSend(
        raw,
        topics.pop(),
        ids,
        [keys_of(each) if each else b"" for each in keys],
        list(map(born_of, born)),
        list(map(_due_ms, seconds, nanos)),
        bodies,
        meanings,
    )


def _of_one(raw: bytes, parts: tuple[bytes, ...], meaning: Meaning) -> QuickSend:
    """Build the request of a single message, where columns would cost more than the message."""
    _, key, _, name, _, born, _, seconds, _, nanos, _, body = parts
    if not _plain(name):
        raise LeaveToProtobuf
    keys = [keys_of(key) if key else b""]
    due_ms = [_due_ms(seconds, nanos)]
    return QuickSend(raw, meaning.topic, [name], keys, [born_of(born)], due_ms, [body], [meaning])


def _due_ms(seconds: bytes, nanos: bytes) -> int:
    return seconds_ms(seconds) + nanos_ms(nanos) if seconds else 0


def _form_of(raw: bytes, at: int) -> _Form:
    """Parse the form of a message, and cache it."""
    if raw[at] != _MESSAGES:
        raise LeaveToProtobuf
    size, start = _size(raw, at + 1)
    end = start + size
    if end > len(raw) or raw[start] != _TOPIC:
        raise LeaveToProtobuf
    user_at = _after(raw, start)
    stop = user_at
    while raw[stop] == _USER:
        size, stop = _size(raw, stop + 1)
        stop += size
    if raw[stop] != _SYSTEM:
        raise LeaveToProtobuf
    size, system_at = _size(raw, stop + 1)
    system_end = system_at + size
    if raw[system_end] != _BODY:
        raise LeaveToProtobuf
    size, body_at = _size(raw, system_end + 1)
    if body_at + size != end:
        raise LeaveToProtobuf
    cuts, rest = _cut_system(raw, system_at, system_end)
    cuts = (at, *cuts, body_at, end)
    parts = _struct_of(tuple(stop - begin for begin, stop in pairwise(cuts)))
    meaning = meaning_of(raw[start:user_at], raw[user_at:stop], rest)
    found = _Form(end - at, parts, parts.unpack_from(raw, at)[::2], meaning)
    if found.size < _LEAD_SIZES and sum(map(len, found.fixed)) <= REMEMBERED_MAX:
        if len(_forms) >= _FORMS_MAX:
            _forms.clear()
        _forms[raw[at : at + _LEAD]] = found
    return found


@lru_cache(maxsize=1_024)
def _struct_of(sizes: tuple[int, ...]) -> struct.Struct:
    return struct.Struct("".join([f"{size}s" for size in sizes]))


def _cut_system(raw: bytes, begin: int, stop: int) -> tuple[tuple[int, ...], bytes]:
    """Return the bounds of keys, id, time made and due time, and all other system properties."""
    at = begin
    if raw[at] == _TAG:
        at = _after(raw, at)
    keys_at = at
    while raw[at] == _KEYS:
        at = _after(raw, at)
    id_field = at
    if raw[at] != _ID:
        raise LeaveToProtobuf
    at = id_end = _after(raw, at)
    if not 0 < id_end - id_field - 2 <= MESSAGE_ID_MAX:
        raise LeaveToProtobuf
    for number in (_ENCODING, _TYPE):
        if raw[at] == number:
            at += 2
            if raw[at - 1] >= 0x80:
                raise LeaveToProtobuf
    born_at = born_field = at
    if raw[at] == _BORN:
        born_at, at = at + 2, _after(raw, at)
    born_end = at
    if raw[at] == _BORN_HOST:
        at = _after(raw, at)
    due_at = due_field = at
    if raw[at] == _DUE:
        due_at, at = at + 2, _after(raw, at)
        if due_at == at:
            raise LeaveToProtobuf  # an empty due time means 1970
    if at > stop:
        raise LeaveToProtobuf
    rest = raw[begin:keys_at], raw[id_end:born_field], raw[born_end:due_field], raw[at:stop]
    nanos = min(due_at + SECONDS_BYTES, at)
    cuts = keys_at, id_field, id_field + 2, id_end, born_at, born_end, due_at, nanos, nanos, at
    return cuts, b"".join(rest)


def _after(raw: bytes, at: int) -> int:
    """Return the end of a short field (text or message)."""
    size = raw[at + 1]
    if size >= 0x80:
        raise LeaveToProtobuf
    return at + 2 + size


def _size(raw: bytes, at: int) -> tuple[int, int]:
    """Read a length without superfluous bytes; return it and where it ends."""
    size = raw[at]
    if size < 0x80:
        return size, at + 1
    size = size & 0x7F | raw[at + 1] << 7
    if size < 0x80:
        raise LeaveToProtobuf
    if size < 1 << 14:
        return size, at + 2
    size = size & 0x3FFF | raw[at + 2] << 14
    if 1 << 14 <= size < 1 << 21:
        return size, at + 3
    raise LeaveToProtobuf
