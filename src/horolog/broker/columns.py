"""Patch many records of a frame body at once (the fixed fields of `protocol.rocketmq.layout`).

A body is one buffer; `at` are the offsets of its records.  Fields of the stored layout are
big-endian and unaligned (`log.unaligned`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.log.record import HEAD_BYTES
from horolog.log.stored import MESSAGE, put_stored, stored
from horolog.log.unaligned import get, put
from horolog.protocol.rocketmq import layout


def queue_ids(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the queue id of each message record."""
    return stored(raw, at + HEAD_BYTES, "queue_id").astype(np.int64)


def queue_offsets(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the queue offset of each message record."""
    return stored(raw, at + HEAD_BYTES, "queue_offset").astype(np.int64)


def topics_at(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offset of the topic's length byte in each stored layout.

    The layouts must have been checked before.
    """
    hosts = raw[at + (layout.SYS_FLAG_AT + 3)] & (layout.BORN_HOST_V6 | layout.STORE_HOST_V6)
    sizes_at = at + (layout.HEAD.size - 4)
    if bool(hosts.any()):
        sizes_at = sizes_at + 12 * (
            (hosts & layout.BORN_HOST_V6 != 0).astype(np.int64)
            + (hosts & layout.STORE_HOST_V6 != 0)
        )
    size = get(raw, sizes_at, ">u4").astype(np.int64)
    found: npt.NDArray[np.int64] = sizes_at + 4 + size
    return found


def stamp(
    raw: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    *,
    base: int,
    queue_offset: npt.NDArray[np.int64],
    store_ms: int,
    store_host: bytes,
) -> None:
    """Write queue offset, log position, store time and store host into message records.

    base        log position of the body
    store_host  4 bytes of IPv4 and 4 of port; in a layout with an IPv6 born host the fields start
                12 bytes later, a layout with room for an IPv6 store host keeps the IPv4 address in
                its first 4 bytes
    """
    body = at + HEAD_BYTES
    put_stored(raw, body, "queue_offset", queue_offset)
    put_stored(raw, body, "position", at + base)
    flags = stored(raw, body, "sys_flag")
    if bool((flags & (layout.BORN_HOST_V6 | layout.STORE_HOST_V6)).any()):
        body = body + np.where(flags & layout.BORN_HOST_V6, 12, 0)
        port = np.where(flags & layout.STORE_HOST_V6, 12, 0)
        put(raw, body + layout.STORE_HOST_AT + 4 + port, _same(store_host[4:], len(at)))
        put(raw, body + layout.STORE_HOST_AT, _same(store_host[:4], len(at)))
    else:
        put(raw, body + layout.STORE_HOST_AT, _same(store_host, len(at)))
    put_stored(raw, body, "store_ms", np.full(len(at), store_ms))


def place(
    raw: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    heads: npt.NDArray[Any],
    queues: npt.NDArray[np.int64],
    *,
    base: int,
    queue_offset: npt.NDArray[np.int64],
    store_ms: int,
    store_host: bytes,
) -> None:
    """Write heads, queue ids and the fields of `stamp` into message records.

    Records with IPv4 hosts only are written with one copy.
    """
    put(raw, at, heads)
    rows = get(raw, at, MESSAGE)
    fields = rows["stored"]
    if bool((fields["sys_flag"] & (layout.BORN_HOST_V6 | layout.STORE_HOST_V6)).any()):
        put_stored(raw, at + HEAD_BYTES, "queue_id", queues)
        stamp(
            raw, at, base=base, queue_offset=queue_offset, store_ms=store_ms, store_host=store_host
        )
        return
    fields["queue_id"] = queues
    fields["queue_offset"] = queue_offset
    fields["position"] = at + base
    fields["store_ms"] = store_ms
    fields["store_address"] = np.void(store_host[:4])
    fields["store_port"] = int.from_bytes(store_host[4:], "big")
    put(raw, at, rows)


def _same(value: bytes, count: int) -> npt.NDArray[Any]:
    return np.full(count, np.frombuffer(value, f">u{len(value)}")[0], f">u{len(value)}")
