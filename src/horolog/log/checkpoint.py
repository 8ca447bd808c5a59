"""Checkpoints: the state of a shard at one log position, so that a start replays only the tail.

A checkpoint can be rebuilt from the log until a part of the log has been dropped; from then on it
is truth.  It is written atomically by `storage.api.replace_file` as `checkpoint/<position>.ckpt`;
the two newest are kept.  Little-endian.

======  =====  ====================  ===============================================================
offset  bytes  field                 meaning
======  =====  ====================  ===============================================================
0       4      magic                 b"HLCK"
4       2      version               2
6       2      incompatible flags    bit 0: has column `acked_runs`, with more acknowledged offsets;
                                     bit 1: has column `halves`, with open transactions; unknown
                                     bit: refuse
8       2      compatible flags
10      2      shard
12      4      epoch                 of the process that wrote the checkpoint
16      8      log id
24      8      position              log position whose state is described; a frame ends there
32      8      last frame            base of that frame; 2⁶⁴−1 if the log was empty
40      8      durable position      of the log, when the position was chosen
48      8      store ms              newest store time given to a message
56      4      length                bytes of the body
60      4      body CRC              CRC-32 of the body
64      4      header CRC            CRC-32 of bytes 0–63
======  =====  ====================  ===============================================================

Body: columns, each {name 16 bytes NUL-padded, length u64} and its bytes.  `registry` is JSON
(topics, groups, counters, where the log begins and how old its segments are, and the name, length
and state version of every hour); the other columns are arrays of the dtypes below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.log.control_records import Holder
from horolog.log.file_names import name_of, number_of
from horolog.storage.api import Storage, read_file

MAGIC = b"HLCK"
VERSION = 2  # version 1 had no retention: its log always begins at 0
_HEAD = struct.Struct("<4sHHHHIQQQQqII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 68
HAS_RUNS = 0x1
HAS_HALVES = 0x2
KNOWN_INCOMPATIBLE = HAS_RUNS | HAS_HALVES
_COLUMN = struct.Struct("<16sQ")
NO_FRAME = (1 << 64) - 1

QUEUE = np.dtype([("topic", "<u4"), ("queue", "<u4"), ("length", "<u8")])
FIRST = np.dtype([("topic", "<u4"), ("queue", "<u4"), ("first", "<u8")])  # queues cut by retention
PROGRESS = np.dtype(
    [("group", "<u4"), ("topic", "<u4"), ("queue", "<u4"), ("floor", "<u8"), ("next", "<u8")]
)
ACKED = np.dtype([("group", "<u4"), ("topic", "<u4"), ("queue", "<u4"), ("offset", "<u8")])
ACKED_RUN = np.dtype(  # two or more consecutive offsets: first … stop − 1
    [("group", "<u4"), ("topic", "<u4"), ("queue", "<u4"), ("first", "<u8"), ("stop", "<u8")]
)
LEASE = np.dtype(
    [
        ("group", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("attempt", "<u4"),
        ("grant", "<u8"),
        ("offset", "<u8"),
        ("granted_ms", "<i8"),
        ("duration_ms", "<i8"),
    ]
)
HELD = np.dtype(  # leases renewed while their client lives; client: an index of `clients`
    [
        ("group", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("client", "<u4"),
        ("offset", "<u8"),
        ("renewable_ms", "<u8"),
    ]
)
FAR_SETTLED = np.dtype([("buffer", "<u8"), ("index", "<u4"), ("state", "<u4")])
COLUMNS = {
    "queues": QUEUE,
    "firsts": FIRST,
    "progress": PROGRESS,
    "acked": ACKED,
    "leases": LEASE,
    "far_settled": FAR_SETTLED,
}
HALF = np.dtype(  # half messages of open transactions; group: an index of registry["half_groups"]
    [
        ("position", "<u8"),
        ("key", "<u8"),
        ("number", "<u8"),
        ("begun_ms", "<i8"),
        ("next_ms", "<i8"),
        ("topic", "<u4"),
        ("group", "<u4"),
        ("size", "<u4"),
        ("queue", "<u4"),
        ("checks", "<u4"),
    ]
)
HALF_OVER = np.dtype(  # the transactions that ended most recently
    [
        ("position", "<u8"),
        ("key", "<u8"),
        ("number", "<u8"),
        ("begun_ms", "<i8"),
        ("queue", "<u4"),
        ("outcome", "<u4"),
    ]
)
CLIENTS = np.dtype([("json", "u1")])  # bytes of JSON: a list of client ids
OPTIONAL_COLUMNS = {  # written only when they have rows
    "acked_runs": ACKED_RUN,
    "halves": HALF,
    "halves_over": HALF_OVER,
    "held": HELD,
    "clients": CLIENTS,
}


@dataclass
class Checkpoint:
    """The decoded content of a checkpoint file."""

    shard: int
    epoch: int
    log_id: int
    position: int
    last_frame: int
    durable: int
    store_ms: int
    registry: dict[str, Any]
    columns: dict[str, npt.NDArray[Any]]
    queues: int = 0  # count of queues when the checkpoint was decided; in the file a column


def checkpoint_name(position: int) -> str:
    """Return the file name of the checkpoint at `position`."""
    return name_of(position, "ckpt")


def position_of(name: str) -> int:
    """Return the log position in a checkpoint's file name; 0 for any other name."""
    return number_of(name, "ckpt") or 0


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint as the bytes of its file."""
    parts = []
    optional = [name for name in OPTIONAL_COLUMNS if len(checkpoint.columns.get(name, ()))]
    registry = orjson.dumps(checkpoint.registry, option=orjson.OPT_SORT_KEYS)
    for name, content in [
        ("registry", registry),
        *((name, checkpoint.columns[name].tobytes()) for name in COLUMNS),
        *((name, checkpoint.columns[name].tobytes()) for name in optional),
    ]:
        parts += [_COLUMN.pack(name.encode(), len(content)), content]
    body = b"".join(parts)
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        HAS_RUNS * ("acked_runs" in optional) | HAS_HALVES * ("halves" in optional),
        0,
        checkpoint.shard,
        checkpoint.epoch,
        checkpoint.log_id,
        checkpoint.position,
        checkpoint.last_frame,
        checkpoint.durable,
        checkpoint.store_ms,
        len(body),
        crc32(body),
    )
    return head + _CRC.pack(crc32(head)) + body


def newest_checkpoint(storage: Storage, directory: str, log_id: int) -> Checkpoint | None:
    """Read the newest intact checkpoint of the log `log_id`; None if there is none.

    For readers beside a running broker, which may remove old checkpoints meanwhile.
    """
    for name in reversed([name for name in storage.list(directory) if name.endswith(".ckpt")]):
        try:
            found = decode_checkpoint(read_file(storage, f"{directory}/{name}"))
        except FileNotFoundError:
            continue
        if found is not None and found.log_id == log_id:
            return found
    return None


def decode_checkpoint(content: bytes) -> Checkpoint | None:
    """Decode a checkpoint file; None if it is damaged.

    VERSION_UNSUPPORTED if a newer horolog wrote it.
    """
    if len(content) < HEADER_BYTES or content[:4] != MAGIC:
        return None
    if crc32(content[: _HEAD.size]) != _CRC.unpack_from(content, _HEAD.size)[0]:
        return None
    head = _HEAD.unpack_from(content)
    _, version, incompatible, _, shard, epoch, log_id, position, last, durable, store, n, crc = head
    if version > VERSION or incompatible & ~KNOWN_INCOMPATIBLE:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"checkpoint {position} has version {version} and incompatible flags "
            f"{incompatible:#x}; this horolog reads version {VERSION} and flags "
            f"{KNOWN_INCOMPATIBLE:#x}",
            field="checkpoint",
        )
    body = content[HEADER_BYTES : HEADER_BYTES + n]
    if len(body) != n or crc32(body) != crc:
        return None
    found: dict[str, bytes] = {}
    at = 0
    while at < n:
        name, length = _COLUMN.unpack_from(body, at)
        at += _COLUMN.size
        found[name.rstrip(b"\0").decode()] = body[at : at + length]
        at += length
    return Checkpoint(
        shard,
        epoch,
        log_id,
        position,
        last,
        durable,
        store,
        orjson.loads(found["registry"]),
        {
            name: np.frombuffer(found.get(name, b""), dtype)
            for name, dtype in {**COLUMNS, **OPTIONAL_COLUMNS}.items()
        },
    )


def held_columns(
    held: Iterable[tuple[int, int, int, int, str, int]],
) -> dict[str, npt.NDArray[Any]]:
    """Build the columns `held` and `clients` from renewed leases.

    held  (group, topic, queue, offset, client id, renewable ms) of each lease
    """
    clients: dict[str, int] = {}
    rows = [
        (group, topic, queue, clients.setdefault(client_id, len(clients)), offset, renewable_ms)
        for group, topic, queue, offset, client_id, renewable_ms in held
    ]
    ids = orjson.dumps(list(clients)) if clients else b""
    return {"held": np.array(rows, HELD), "clients": np.frombuffer(ids, CLIENTS)}


def held_leases(checkpoint: Checkpoint) -> dict[tuple[int, int, int, int], Holder]:
    """Return the holder of each renewed lease, by (group, topic, queue, offset)."""
    rows = checkpoint.columns["held"]
    if not len(rows):
        return {}
    clients = orjson.loads(checkpoint.columns["clients"].tobytes())
    return {
        (group, topic, queue, offset): Holder(clients[client], renewable_ms)
        for group, topic, queue, client, offset, renewable_ms in rows.tolist()
    }


def acked_columns(runs: Iterable[tuple[int, ...]]) -> dict[str, npt.NDArray[Any]]:
    """Build the columns of offsets that groups have acknowledged above their floors.

    runs  (group, topic, queue, first, stop) of each stretch of consecutive offsets
    """
    single, longer = [], []
    for run in runs:
        if run[4] - run[3] == 1:
            single.append(run[:4])
        else:
            longer.append(run)
    return {"acked": np.array(single, ACKED), "acked_runs": np.array(longer, ACKED_RUN)}


def acked_runs(checkpoint: Checkpoint) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the (group, topic, queue, first, stop) passed to `acked_columns`, in another order."""
    for group, topic, queue, offset in checkpoint.columns["acked"].tolist():
        yield group, topic, queue, offset, offset + 1
    yield from map(tuple, checkpoint.columns["acked_runs"].tolist())
