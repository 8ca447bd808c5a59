"""Encoder from columns to records: for many rows at once, the bytes that a send makes for one.

A record is a fixed head of 120 bytes (32 for the log, 88 of the stored layout), the body, the
topic, and the properties.  The heads are numpy rows, the properties are joined by Arrow.  Only the
two CRCs and the key hash are made row by row, in C, for a few rows at a time that are still in the
processor's cache.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, record_crcs
from horolog.log.record import HAS_KEYS, HEAD_BYTES, Kind
from horolog.protocol.rocketmq import properties as names
from horolog.protocol.rocketmq.layout import HEAD, MAGIC
from horolog.protocol.rocketmq.message import KEY_HASH_SEED
from horolog.protocol.rocketmq.tags import tags_code
from horolog.spark.sink_columns import Target
from horolog.spark.values import content_of, values_of

_FRONT = np.dtype(
    [
        ("size", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("reserved", "<u2"),
        ("due_ms", "<i8"),
        ("topic", "<u4"),
        ("tags", "<i4"),
        ("key", "<u8"),
        # the stored layout, big-endian
        ("layout_size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("position", ">i8"),
        ("sys_flag", ">u4"),
        ("born_ms", ">i8"),
        ("born_ip", "S4"),
        ("born_port", ">u4"),
        ("store_ms", ">i8"),
        ("store_host", "S8"),
        ("reconsume", ">u4"),
        ("prepared", ">i8"),
        ("body_size", ">u4"),
    ]
)
_FRONT_BYTES = HEAD_BYTES + HEAD.size
assert _FRONT.itemsize == _FRONT_BYTES
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ID_BYTES = 34


class Encoded(NamedTuple):
    """Encoded rows, ready for `RunWriter.add_joined`."""

    entries: npt.NDArray[Any]  # ENTRY
    content: memoryview  # the records, one after another


def encode_rows(
    table: pa.Table,
    due_ms: npt.NDArray[np.int64],
    ids: pa.Array,
    target: Target,
    *,
    first_row: int,
    first_queue: int,
) -> Encoded:
    """Encode checked rows, which are in the order of the run, as entries and records.

    table        columns as `sink_columns.normalised` returns them
    ids          the message ids (string)
    first_row    index of the first row in its run
    first_queue  row i goes to queue (first_queue + i) % queues
    """
    n = len(due_ms)
    topic = target.topic.encode()
    body = one_array(table.column("body"))
    stored = _stored_properties(table, ids, due_ms)
    body_sizes, stored_sizes = _lengths(body), _lengths(stored)
    tails = np.empty(n, np.dtype([("topic", f"S{1 + len(topic)}"), ("size", ">u2")]))
    tails["topic"] = bytes([len(topic)]) + topic
    tails["size"] = stored_sizes
    fronts = np.zeros(n, _FRONT)
    fronts["size"] = _FRONT_BYTES + body_sizes + tails.dtype.itemsize + stored_sizes
    fronts["kind"] = Kind.SCHEDULED
    fronts["flags"] = _has_keys(table, n) * HAS_KEYS
    fronts["due_ms"] = due_ms
    fronts["topic"] = target.topic_id
    fronts["tags"] = _tag_codes(table, n)
    fronts["key"] = key_hashes(ids, topic)
    fronts["layout_size"] = fronts["size"] - HEAD_BYTES
    fronts["magic"] = MAGIC
    fronts["body_crc"] = _body_crcs(body)
    fronts["queue"] = (first_queue + np.arange(n)) % target.queues
    fronts["born_ms"] = target.born_ms
    fronts["born_ip"] = target.born_host[0]
    fronts["born_port"] = target.born_host[1]
    fronts["body_size"] = body_sizes
    records = pc.binary_join_element_wise(_fixed(fronts), body, _fixed(tails), stored, b"")
    entries = np.zeros(n, ENTRY)
    for name in ("size", "due_ms", "key", "topic"):
        entries[name] = fronts[name]
    entries["local"] = fronts["tags"].view("<u4") if n == 0 else fronts["tags"].astype("<u4")
    entries["row"] = np.arange(first_row, first_row + n)
    entries["crc"] = record_crcs(values_of(records), entries["origin"], entries["row"])
    return Encoded(entries, content_of(records))


def made_ids(job: int, partition: int, first: int, count: int) -> pa.Array:
    """Make ids for rows without one: 34 hex digits, as clients make theirs.

    A task that is tried again makes equal ids.
    job  64 bits that stand for the transaction
    """
    text = np.empty((count, _ID_BYTES), np.uint8)
    text[:, :24] = np.frombuffer(f"01{job:016X}{partition & 0xFFFFFF:06X}".encode(), np.uint8)
    rows = np.arange(first, first + count, dtype=np.int64)
    for digit in range(10):
        text[:, 24 + digit] = _HEX[(rows >> (36 - 4 * digit)) & 15]
    offsets = np.arange(0, _ID_BYTES * (count + 1), _ID_BYTES, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def key_hashes(ids: pa.Array, topic: bytes) -> npt.NDArray[np.uint64]:
    """Return `message.key_hash` of each id."""
    whole = pc.binary_join_element_wise(pa.scalar(topic + b"\0"), ids.cast(pa.binary()), b"")
    digests = map(xxh64_intdigest, values_of(whole), itertools.repeat(KEY_HASH_SEED))
    return np.fromiter(digests, np.uint64, len(whole))


def _body_crcs(body: pa.Array) -> npt.NDArray[np.uint32]:
    found = np.fromiter(map(crc32, values_of(body)), np.uint32, len(body))
    return found & np.uint32(0x7FFFFFFF)


def _stored_properties(table: pa.Table, ids: pa.Array, due_ms: npt.NDArray[np.int64]) -> pa.Array:
    """Return the stored properties, in the order in which `message.encode` writes them."""
    n = len(due_ms)
    pieces: list[Any] = []
    columns = set(table.column_names)
    if "properties" in columns:
        pieces.append(user_properties(one_array(table.column("properties"))))
    pieces += [_text(f"{names.IN_REGION.decode()}{names.UNIQ_KEY}\x01"), ids]
    if "tag" in columns:
        pieces += [_text("\x02"), _optional(names.TAGS, one_array(table.column("tag")))]
    else:
        pieces.append(_text("\x02"))
    if "keys" in columns:
        pieces.append(_optional(names.KEYS, _joined_keys(one_array(table.column("keys")))))
    due = pa.array(due_ms).cast(pa.string())
    pieces += [_text(f"{names.TIMER_DELIVER_MS}\x01"), due, _text("\x02")]
    stored = pc.binary_join_element_wise(*pieces, "").cast(pa.binary())
    assert len(stored) == n
    return stored


def _optional(name: str, values: pa.Array) -> pa.Array:
    """Return `name`, value and separators for rows with a value, and nothing for the others."""
    joined = pc.binary_join_element_wise(_text(f"{name}\x01"), values, _text("\x02"), "")
    return pc.fill_null(joined, "")


def _joined_keys(keys: pa.Array) -> pa.Array:
    """Join the keys of each row with spaces; null for a row without keys."""
    count = pc.list_value_length(keys)
    return pc.if_else(pc.greater(count, 0), pc.binary_join(keys, " "), pa.scalar(None, pa.string()))


def user_properties(maps: pa.Array) -> pa.Array:
    """Return the stored form of each row's properties; empty for a null."""
    lists = maps.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int32)
    flat = lists.flatten()
    pieces = pc.binary_join_element_wise(
        flat.field("key"), _text("\x01"), flat.field("value"), _text("\x02"), ""
    )
    offsets = np.zeros(len(maps) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), "")


def _has_keys(table: pa.Table, n: int) -> npt.NDArray[np.uint8]:
    if "keys" not in table.column_names:
        return np.zeros(n, np.uint8)
    counts = pc.fill_null(pc.list_value_length(one_array(table.column("keys"))), 0)
    return (np.asarray(counts) > 0).astype(np.uint8)


def _tag_codes(table: pa.Table, n: int) -> npt.NDArray[np.int32]:
    if "tag" not in table.column_names:
        return np.zeros(n, np.int32)
    coded = pc.fill_null(one_array(table.column("tag")), "").dictionary_encode()
    codes = np.array([tags_code(tag) for tag in coded.dictionary.to_pylist()], np.int32)
    chosen: npt.NDArray[np.int32] = codes[np.asarray(coded.indices)]
    return chosen


def _fixed(rows: npt.NDArray[Any]) -> pa.Array:
    """Return fixed-width rows as a binary array."""
    width = rows.dtype.itemsize
    offsets = np.arange(0, width * (len(rows) + 1), width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.view(np.uint8))]
    )


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.string())


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.asarray(pc.binary_length(array)).astype(np.int64)
    return found


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Join all chunks of a column into one array."""
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
