"""The stored message layout, which follows the head of a record.

Big-endian, because this is RocketMQ's wire form: a 4.x pull is answered with slices of the log.

======  =====  =======================  ==========================================================
offset  bytes  field                    meaning
======  =====  =======================  ==========================================================
0       4      total size               of the layout, itself included
4       4      magic                    0xDAA320A7
8       4      body CRC                 CRC-32 of the body & 0x7FFFFFFF
12      4      queue id                 patched by the broker
16      4      flag                     the user's, signed as in Java
20      8      queue offset             patched when it becomes visible
28      8      log position             of the record that holds this layout; patched
36      4      sysFlag                  0x1 body compressed, 0x2 several tags, 0x10 born host IPv6, 0x20 store host IPv6 …
40      8      born ms                  the producer's clock
48      8      born host                IPv4 (4) and port (4); 20 bytes with sysFlag 0x10
56      8      store ms                 patched when it becomes visible
64      8      store host               patched; the advertised address
72      4      reconsume times
76      8      prepared transaction     log position of the half message; 0 of a message without a transaction
84      4+n    body length, body
88+n    1+t    topic length, topic
89+n+t  2+p    properties length, properties (`properties`)
======  =====  =======================  ==========================================================

The offsets hold for IPv4 hosts; an IPv6 born host moves everything after it by 12 bytes, an IPv6
store host what follows it.  horolog writes IPv4 hosts; the decoder reads all four combinations.

A *checked* layout has passed `decode` before: functions that take one read it without checks.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError

MAGIC = 0xDAA320A7
FIXED = (  # fields of fixed width, with IPv4 hosts: (name, code of `struct`); columns: `log.stored`
    ("total_size", "I"),
    ("magic", "I"),
    ("body_crc", "I"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("position", "q"),
    ("sys_flag", "I"),
    ("born_ms", "q"),
    ("born_address", "4s"),
    ("born_port", "I"),
    ("store_ms", "q"),
    ("store_address", "4s"),
    ("store_port", "I"),
    ("reconsume_times", "I"),
    ("prepared_offset", "q"),
    ("body_length", "I"),
)
HEAD = struct.Struct(">" + "".join(code for _, code in FIXED))
assert HEAD.size == 88
AT = {  # offsets of these fields in the layout
    name: struct.calcsize(">" + "".join(code for _, code in FIXED[:i]))
    for i, (name, _) in enumerate(FIXED)
}
FRONT = struct.Struct(">IIIiiqqIq")
assert FRONT.size == 48

QUEUE_ID_AT = AT["queue_id"]
QUEUE_OFFSET_AT = AT["queue_offset"]
POSITION_AT = AT["position"]
SYS_FLAG_AT = AT["sys_flag"]
STORE_MS_AT = AT["store_ms"]
STORE_HOST_AT = AT["store_address"]
RECONSUME_TIMES_AT = AT["reconsume_times"]

COMPRESSED = 0x1
MULTI_TAGS = 0x2  # TAGS has several tags
TRANSACTION_PREPARED, TRANSACTION_COMMITTED, TRANSACTION_BITS = 0x4, 0x8, 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
_IPV6 = BORN_HOST_V6 | STORE_HOST_V6


class Stored(NamedTuple):
    """A decoded layout."""

    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_ms: int
    born_host: tuple[bytes, int]
    store_ms: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes


def _broken(why: str) -> HorologError:
    return HorologError(ErrorCode.MESSAGE_CORRUPTED, f"stored message: {why}", field="message")


def decode(layout: bytes) -> Stored:
    """Decode a stored layout; MESSAGE_CORRUPTED for any other bytes."""
    try:
        return _decode(layout)
    except (struct.error, IndexError) as error:
        raise _broken("it ends before its fields do") from error
    except UnicodeDecodeError as error:
        raise _broken("its topic is no UTF-8 text") from error


def topic_and_properties(layout: bytes) -> tuple[str, bytes]:
    """Return topic and properties of a checked layout, without reading the rest."""
    (sys_flag,) = struct.unpack_from(">I", layout, SYS_FLAG_AT)
    at = HEAD.size - 4
    at += 12 * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
    (body_size,) = struct.unpack_from(">I", layout, at)
    at += 4 + body_size
    properties_at = at + 1 + layout[at] + 2
    return layout[at + 1 : properties_at - 2].decode(), layout[properties_at:]


def store_ms_of(layout: memoryview | bytes) -> int:
    """Return when the message of a checked layout became visible."""
    at = STORE_MS_AT + (12 if layout[SYS_FLAG_AT + 3] & BORN_HOST_V6 else 0)
    return int.from_bytes(layout[at : at + 8], "big")


def properties_of(layout: memoryview) -> bytes:
    """Return the properties of a checked layout, in the fastest way."""
    at = HEAD.size - 4
    if hosts := layout[SYS_FLAG_AT + 3] & (BORN_HOST_V6 | STORE_HOST_V6):
        at += 12 * hosts.bit_count()
    at += 4 + int.from_bytes(layout[at : at + 4], "big")
    return bytes(layout[at + 3 + layout[at] :])


def has_many_tags(layout: memoryview | bytes) -> bool:
    """Return whether the TAGS of a checked layout may be several."""
    return bool(layout[SYS_FLAG_AT + 3] & MULTI_TAGS)


def with_properties(layout: bytes, stored: bytes) -> bytes:
    """Return a checked layout with other properties."""
    end = len(layout) - len(topic_and_properties(layout)[1]) - 2
    size = end + 2 + len(stored)
    return b"".join(
        (size.to_bytes(4, "big"), layout[4:end], len(stored).to_bytes(2, "big"), stored)
    )


def queue_id_of(layout: bytes) -> int:
    """Return the queue id of a checked layout."""
    return int.from_bytes(layout[QUEUE_ID_AT : QUEUE_ID_AT + 4], "big")


def queue_offset_of(layout: bytes) -> int:
    """Return the queue offset of a checked layout."""
    return int.from_bytes(layout[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big")


def reconsume_times(layout: bytes) -> int:
    """Return how often the message of a checked layout was retried."""
    at = _reconsume_at(layout)
    return int.from_bytes(layout[at : at + 4], "big")


def _reconsume_at(layout: bytes) -> int:
    return RECONSUME_TIMES_AT + 12 * (layout[SYS_FLAG_AT + 3] & _IPV6).bit_count()


def with_queue(layout: bytes, queue_id: int) -> bytes:
    """Return a checked layout with another queue id."""
    queue = queue_id.to_bytes(4, "big", signed=True)
    return b"".join((layout[:QUEUE_ID_AT], queue, layout[QUEUE_ID_AT + 4 :]))


def committed(layout: bytes, half_position: int) -> bytes:
    """Return the checked layout of a half message as that of the committed message."""
    made = bytearray(layout)
    made[SYS_FLAG_AT + 3] = made[SYS_FLAG_AT + 3] & ~TRANSACTION_BITS | TRANSACTION_COMMITTED
    at = _reconsume_at(layout) + 4
    made[at : at + 8] = half_position.to_bytes(8, "big")
    return bytes(made)


def readdressed(
    layout: bytes, topic: str, stored: bytes, reconsume_times: int, queue_id: int
) -> bytes:
    """Return a checked layout for another topic and queue, with other properties and attempts."""
    at = _reconsume_at(layout)
    body_end = at + 16 + int.from_bytes(layout[at + 12 : at + 16], "big")
    name = topic.encode()
    size = body_end + 1 + len(name) + 2 + len(stored)
    return b"".join(
        (
            size.to_bytes(4, "big"),
            layout[4:QUEUE_ID_AT],
            queue_id.to_bytes(4, "big", signed=True),
            layout[QUEUE_ID_AT + 4 : at],
            reconsume_times.to_bytes(4, "big"),
            bytes(8),  # prepared transaction: only the original message had one
            layout[at + 12 : body_end],
            len(name).to_bytes(1, "big"),
            name,
            len(stored).to_bytes(2, "big"),
            stored,
        )
    )


def offset_message_id(layout: bytes) -> str:
    """Return the message id of 4.x clients for a stored message: store host and log position."""
    at = STORE_HOST_AT + (12 if layout[SYS_FLAG_AT + 3] & BORN_HOST_V6 else 0)
    host = layout[at : at + (20 if layout[SYS_FLAG_AT + 3] & STORE_HOST_V6 else 8)]
    return (host + layout[POSITION_AT : POSITION_AT + 8]).hex().upper()


def with_store_host(layout: bytes, host: bytes) -> bytes:
    """Return a layout with another store host, 4 bytes of IPv4 and 4 of port; IPv6 hosts stay."""
    if layout[SYS_FLAG_AT + 3] & STORE_HOST_V6:
        return layout
    at = STORE_HOST_AT + (12 if layout[SYS_FLAG_AT + 3] & BORN_HOST_V6 else 0)
    return layout[:at] + host + layout[at + len(host) :]


def _decode(layout: bytes) -> Stored:
    size, magic, crc, queue_id, flag, offset, position, sys_flag, born_ms = FRONT.unpack_from(
        layout
    )
    if magic != MAGIC:
        raise _broken(f"magic {magic:#x}")
    if size != len(layout):
        raise _broken(f"size {size}, but {len(layout)} bytes")
    at = FRONT.size
    born_ip = layout[at : at + (16 if sys_flag & BORN_HOST_V6 else 4)]
    at += len(born_ip)
    born_port, store_ms = struct.unpack_from(">Iq", layout, at)
    at += 12
    store_ip = layout[at : at + (16 if sys_flag & STORE_HOST_V6 else 4)]
    at += len(store_ip)
    store_port, reconsume, prepared, body_size = struct.unpack_from(">IIqI", layout, at)
    at += 20
    body = layout[at : at + body_size]
    at += body_size
    topic_size = layout[at]
    topic = layout[at + 1 : at + 1 + topic_size].decode()
    at += 1 + topic_size
    (properties_size,) = struct.unpack_from(">H", layout, at)
    properties = layout[at + 2 : at + 2 + properties_size]
    if at + 2 + properties_size != size:
        raise _broken("lengths do not add up")
    return Stored(
        crc,
        queue_id,
        flag,
        offset,
        position,
        sys_flag,
        born_ms,
        (born_ip, born_port),
        store_ms,
        (store_ip, store_port),
        reconsume,
        prepared,
        body,
        topic,
        properties,
    )
