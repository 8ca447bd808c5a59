"""More pending messages than can be sent within a minute: an adopted run, made as columns.

load(broker, "orders", dues_ms)     # seconds for a million
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from horolog.admin.client import AdminClient
from horolog.delay.entry import ENTRY
from horolog.log.record import DUE_AT, KEY_AT
from horolog.protocol.rocketmq.layout import QUEUE_ID_AT
from horolog.protocol.rocketmq.message import KEY_HASH_SEED, encode
from horolog.protocol.send_commands import MessageType
from horolog.storage.disk import Disk
from horolog.testing.adopted_runs import HEAD_BYTES, made_record, write_entries
from horolog.testing.broker import BrokerProcess

_ID = "{:012d}"


def load(broker: BrokerProcess, topic: str, dues_ms: npt.NDArray[np.int64], body: bytes) -> None:
    """Schedule one message for each due time (13 digits each), with ids "<topic>-000000000000", …."""
    admin = AdminClient(broker.admin_url)
    begun = admin.post("/v1/adoptions/begin", {"app": topic, "version": 1, "topic": topic})
    ordered = np.sort(dues_ms)
    rows, records = _columns(topic, ordered, body, begun["topic_number"], begun["queues"])
    claim = write_entries(
        Disk(Path(begun["staging"])), "", "many", rows, records, log_id=int(begun["log_id"], 16)
    )
    wanted = {"app": topic, "version": 1, "topic": topic, "token": begun["token"]}
    admin.post("/v1/adoptions/commit", {**wanted, "files": [claim._asdict()]})


def _columns(
    topic: str, dues_ms: npt.NDArray[np.int64], body: bytes, topic_id: int, queues: int
) -> tuple[npt.NDArray[Any], list[bytes]]:
    """Return index entries and records: copies of one record with other id, due time, hash and queue."""
    n = len(dues_ms)
    first_id, first_due = f"{topic}-{_ID.format(0)}", 1_000_000_000_000
    made = encode(
        topic=topic, body=body, message_id=first_id, due_ms=first_due, type=MessageType.DELAY
    )
    pattern = made_record(made, topic_id)
    size = len(pattern)
    table = np.frombuffer(pattern, np.uint8)[None].repeat(n, axis=0)
    ids = [f"{topic}-{_ID.format(i)}".encode() for i in range(n)]
    front = topic.encode() + b"\0"
    keys = np.array([xxh64_intdigest(front + each, KEY_HASH_SEED) for each in ids], np.uint64)
    digits = np.char.mod("%013d", dues_ms).astype("S13").view(np.uint8).reshape(n, 13)
    _put(
        table,
        pattern.index(first_id.encode()),
        np.frombuffer(b"".join(ids), np.uint8).reshape(n, -1),
    )
    _put(table, pattern.index(str(first_due).encode()), digits)
    _put(table, DUE_AT, dues_ms.astype("<i8").view(np.uint8).reshape(n, 8))
    _put(table, KEY_AT, keys.astype("<u8").view(np.uint8).reshape(n, 8))
    in_queue = (np.arange(n) % queues).astype(">i4").view(np.uint8).reshape(n, 4)
    _put(table, HEAD_BYTES + QUEUE_ID_AT, in_queue)
    entries = np.zeros(n, ENTRY)
    entries["size"], entries["topic"] = size, topic_id
    entries["row"], entries["due_ms"], entries["key"] = np.arange(n), dues_ms, keys
    entries["local"] = np.int32(made.tags_code).astype(np.uint32)
    whole = table.tobytes()
    return entries, [whole[at : at + size] for at in range(0, n * size, size)]


def _put(table: npt.NDArray[np.uint8], at: int, columns: npt.NDArray[np.uint8]) -> None:
    table[:, at : at + columns.shape[1]] = columns


def year_of_dues(now_ms: int, n: int, seed: int = 7) -> npt.NDArray[np.int64]:
    """Return due times of a year as in business: more by day than by night, and less on weekends.

    They are thinner the farther away, with a few peaks.
    """
    chance = np.random.default_rng(seed)
    hour_ms = 3_600_000
    hours = np.arange(365 * 24)
    of_day = (hours + now_ms // hour_ms) % 24
    weekday = ((hours + now_ms // hour_ms) // 24 + 4) % 7
    weight = (1.2 + np.sin((of_day - 7) / 24 * 2 * np.pi)) * np.where(weekday % 6 == 0, 0.4, 1.0)
    weight *= np.exp(-hours / (120 * 24))
    weight[chance.choice(hours, 12, replace=False)] *= 25
    hour = chance.choice(hours, n, p=weight / weight.sum())
    start_ms = (now_ms // hour_ms + 1) * hour_ms
    found: npt.NDArray[np.int64] = start_ms + hour * hour_ms + chance.integers(0, hour_ms, n)
    whole = chance.random(n) < 0.3  # people choose whole minutes
    found[whole] = found[whole] // 60_000 * 60_000
    return found
