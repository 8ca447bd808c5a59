"""Records of many messages of one topic, built from columns: all fixed parts at once, one join.

Up to `_FEW` messages are encoded one by one, since building columns costs some 30 µs for any count;
a test compares both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import KEY_HASH_SEED
from horolog.protocol.send_commands import HEAD_AS_SENT, MessageType, NewRecords

_CODES = {"I": ">u4", "i": ">i4", "q": ">i8", "4s": "V4"}
STORED = np.dtype([(name, _CODES[code]) for name, code in layout.FIXED])
assert STORED.itemsize == layout.HEAD.size
assert STORED.fields is not None
assert {name: field[1] for name, field in STORED.fields.items()} == layout.AT
_HEAD = np.dtype(
    [
        ("size", "<u4"),
        ("type", "u1"),
        ("flags", "u1"),
        ("lane", "<u2"),
        ("due_ms", "<i8"),
        ("group", "<u4"),
        ("tags", "<i4"),
        ("key", "<u8"),
    ]
)
assert _HEAD.itemsize == HEAD_AS_SENT.size
_FIXED = np.dtype([*_HEAD.descr, *STORED.descr])  # everything before the body
_BEFORE_BODY = _FIXED.itemsize
_FEW = 16  # messages up to which encoding one by one is faster
_NORMAL, _FIFO, _DELAY = map(int, (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY))


Host: TypeAlias = tuple[bytes, int]  # IPv4 address and port


class Messages(NamedTuple):
    """Messages of a topic, as columns of equal length."""

    bodies: Sequence[bytes]
    flags: Sequence[int]
    queue_ids: Sequence[int]
    sys_flags: Sequence[int]
    attempts: Sequence[int]
    born_ms: Sequence[int]
    texts: Sequence[bytes]  # properties as they are stored
    ids: Sequence[bytes]
    keyed: Sequence[bool]  # whether there is a KEYS property
    tags_codes: Sequence[int]
    groups: Sequence[int]  # `group_code` of the message groups
    due_ms: Sequence[int]  # as in a head as sent
    lanes: Sequence[int]
    born_hosts: Sequence[Host]


def records_of(topic: bytes, messages: Messages) -> NewRecords:
    """Return the records of messages, in order."""
    if len(messages.bodies) <= _FEW:
        return _one_by_one(topic, messages)
    return _in_columns(topic, messages)


class RecordRows(NamedTuple):
    """Messages of a topic with bodies of one size and properties of one size.

    A column has one value if all messages share it.

    bodies, texts  tables of bytes, a row for each message; the tables of `texts` are side by side
    """

    bodies: npt.NDArray[np.uint8]
    texts: Sequence[npt.NDArray[np.uint8]]
    ids: Sequence[bytes]
    flags: Sequence[int] | npt.NDArray[Any]
    queue_ids: Sequence[int]
    sys_flag: int
    attempts: int
    born_ms: Sequence[int]
    keyed: bool
    tags_codes: Sequence[int]
    groups: Sequence[int]
    due_ms: Sequence[int]
    lanes: Sequence[int]


def records_of_rows(topic: bytes, born_host: Host, rows: RecordRows) -> NewRecords:
    """Return the records in order: the first one repeated, with the differences filled in."""
    count, body_size = rows.bodies.shape
    bodies: list[bytes] = np.ascontiguousarray(rows.bodies).view(f"V{body_size}")[:, 0].tolist()
    one = Messages(
        [bodies[0]],
        [int(rows.flags[0])],
        rows.queue_ids[:1],
        [rows.sys_flag],
        [rows.attempts],
        rows.born_ms[:1],
        [b"".join([table[0].tobytes() for table in rows.texts])],
        rows.ids[:1],
        [rows.keyed],
        rows.tags_codes[:1],
        rows.groups[:1],
        rows.due_ms[:1],
        rows.lanes[:1],
        [born_host],
    )
    record, (size,) = _one_by_one(topic, one)
    found: Any = np.empty((count, size), np.uint8)
    found[:] = np.frombuffer(record, np.uint8)
    fixed = found[:, :_BEFORE_BODY].view(_FIXED)[:, 0]
    key = topic + b"\0"
    hashes = [xxh64_intdigest(key + name, KEY_HASH_SEED) for name in rows.ids]
    fixed["key"] = np.fromiter(hashes, np.uint64, count)
    fixed["body_crc"] = np.fromiter(map(crc32, bodies), np.uint32, count) & 0x7FFFFFFF
    for name, column in (
        ("flag", rows.flags),
        ("queue_id", rows.queue_ids),
        ("born_ms", rows.born_ms),
        ("tags", rows.tags_codes),
        ("group", rows.groups),
        ("due_ms", rows.due_ms),
        ("lane", rows.lanes),
    ):
        if len(column) > 1:
            fixed[name] = column
    found[:, _BEFORE_BODY : _BEFORE_BODY + body_size] = rows.bodies
    at = size - sum([table.shape[1] for table in rows.texts])
    for table in rows.texts:
        stop = at + table.shape[1]
        if len(table) > 1:
            found[:, at:stop] = table
        at = stop
    return NewRecords(found.tobytes(), [size] * count)


def _in_columns(topic: bytes, messages: Messages) -> NewRecords:
    count = len(messages.bodies)
    fixed: Any = np.zeros(count, _FIXED)
    body_sizes = np.fromiter(map(len, messages.bodies), np.int64, count)
    text_sizes = list(map(len, messages.texts))
    sizes = body_sizes + text_sizes
    sizes += _BEFORE_BODY + 1 + len(topic) + 2
    due_ms = np.fromiter(messages.due_ms, np.int64, count)
    key = topic + b"\0"
    hashes = [xxh64_intdigest(key + name, KEY_HASH_SEED) for name in messages.ids]
    fixed["size"] = sizes
    _fill(fixed["group"], messages.groups)
    fixed["type"] = np.where(due_ms, _DELAY, _NORMAL)
    fixed["type"][fixed["group"] != 0] = _FIFO
    _fill(fixed["flags"], messages.keyed)
    _fill(fixed["lane"], messages.lanes)
    fixed["due_ms"] = due_ms
    _fill(fixed["tags"], messages.tags_codes)
    fixed["key"] = np.fromiter(hashes, np.uint64, count)
    fixed["total_size"] = sizes - HEAD_AS_SENT.size
    fixed["magic"] = layout.MAGIC
    fixed["body_crc"] = np.fromiter(map(crc32, messages.bodies), np.uint32, count) & 0x7FFFFFFF
    _fill(fixed["queue_id"], messages.queue_ids)
    _fill(fixed["flag"], messages.flags)
    _fill(fixed["sys_flag"], messages.sys_flags)
    _fill(fixed["born_ms"], messages.born_ms)
    _fill_hosts(fixed, messages.born_hosts)
    _fill(fixed["reconsume_times"], messages.attempts)
    fixed["body_length"] = body_sizes
    return NewRecords(_joined(fixed, topic, messages, text_sizes), sizes.tolist())


def _fill(column: npt.NDArray[Any], values: Sequence[int]) -> None:
    """Fill a column; many have one value throughout, and checking that is faster than copying."""
    first = values[0]
    column[:] = first if values.count(first) == len(values) else values


def _fill_hosts(fixed: Any, hosts: Sequence[Host]) -> None:
    first = hosts[0]
    if hosts.count(first) == len(hosts):
        fixed["born_address"], fixed["born_port"] = first
        return
    addresses, ports = zip(*hosts, strict=True)
    fixed["born_address"] = np.frombuffer(b"".join(addresses), "V4")
    fixed["born_port"] = ports


def _joined(fixed: Any, topic: bytes, messages: Messages, text_sizes: Sequence[int]) -> bytes:
    name = bytes((len(topic),)) + topic
    middles = {size: name + size.to_bytes(2, "big") for size in set(text_sizes)}
    before: list[bytes] = fixed.view(f"V{_BEFORE_BODY}").tolist()
    between = [middles[size] for size in text_sizes]
    rows = zip(before, messages.bodies, between, messages.texts, strict=True)
    return b"".join(chain.from_iterable(rows))


def _one_by_one(topic: bytes, messages: Messages) -> NewRecords:
    pieces: list[bytes] = []
    sizes: list[int] = []
    key, name = topic + b"\0", bytes((len(topic),)) + topic
    for row in zip(*messages, strict=True):
        body, flag, queue_id, sys_flag, attempts, born_ms, stored, message_id, *head = row
        keyed, code, group, due_ms, lane, born_host = head
        size = _BEFORE_BODY + len(body) + len(name) + 2 + len(stored)
        kind = _FIFO if group else _DELAY if due_ms else _NORMAL
        key_hash = xxh64_intdigest(key + message_id, KEY_HASH_SEED)
        pieces += (
            HEAD_AS_SENT.pack(size, kind, keyed, lane, due_ms, group, code, key_hash),
            layout.HEAD.pack(
                size - HEAD_AS_SENT.size,
                layout.MAGIC,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                0,
                0,
                sys_flag,
                born_ms,
                *born_host,
                0,
                bytes(4),
                0,
                attempts,
                0,
                len(body),
            ),
            body,
            name,
            len(stored).to_bytes(2, "big"),
            stored,
        )
        sizes.append(size)
    return NewRecords(b"".join(pieces), sizes)
