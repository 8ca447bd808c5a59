"""Runs for adoption, written without Spark; a test stages them and commits their manifest rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.run.format import FOOTER_BYTES, run_path
from horolog.delay.run.writer import RunWriter
from horolog.log.record import HAS_KEYS, HEAD, HEAD_BYTES, Kind
from horolog.protocol.adoption_commands import FileRow
from horolog.protocol.commands import NewMessage
from horolog.protocol.rocketmq.layout import QUEUE_ID_AT
from horolog.storage.api import Storage


def made_record(message: NewMessage, topic: int, queue: int = 0) -> bytes:
    """Build the SCHEDULED record of an encoded message."""
    record = bytearray(message.record)
    head = np.zeros(1, HEAD)
    head["size"], head["kind"] = len(record), Kind.SCHEDULED
    head["flags"] = HAS_KEYS if message.has_keys else 0
    head["due_ms"], head["topic"] = message.due_ms, topic
    head["tags"], head["key"] = message.tags_code, message.key_hash
    record[:HEAD_BYTES] = head.tobytes()
    at = HEAD_BYTES + QUEUE_ID_AT
    record[at : at + 4] = queue.to_bytes(4, "big")
    return bytes(record)


def write_adopted(
    storage: Storage,
    directory: str,
    name: str,
    messages: Sequence[NewMessage],
    *,
    log_id: int,
    topic: int,
    queues: int = 1,
    adopted: bool = True,
    changed: Mapping[str, Any] | None = None,
) -> FileRow:
    """Write `<name>.run` with these messages, sorted by due time, and return its manifest row.

    changed  columns of the index to overwrite, before the checksums are computed
    """
    ordered = sorted(messages, key=lambda message: message.due_ms)
    records = [made_record(message, topic, i % queues) for i, message in enumerate(ordered)]
    entries = np.zeros(len(records), ENTRY)
    entries["size"] = [len(record) for record in records]
    entries["row"] = np.arange(len(records))
    entries["due_ms"] = [message.due_ms for message in ordered]
    entries["key"] = [message.key_hash for message in ordered]
    entries["local"] = np.array([message.tags_code for message in ordered], "<i4").view("<u4")
    entries["topic"] = topic
    return write_entries(
        storage, directory, name, entries, records, log_id=log_id, adopted=adopted, changed=changed
    )


def write_entries(
    storage: Storage,
    directory: str,
    name: str,
    entries: np.ndarray,
    records: Sequence[bytes],
    *,
    log_id: int,
    adopted: bool = True,
    changed: Mapping[str, Any] | None = None,
) -> FileRow:
    """Write `<name>.run` with these records in due order; CRCs and sums are computed here."""
    entries["crc"] = record_crcs(records, entries["origin"], entries["row"])
    for column, value in (changed or {}).items():
        entries[column] = value
    entries["sum"] = entry_sums(entries)
    writer = RunWriter(storage, directory, name, log_id=log_id, rows=len(records), adopted=adopted)
    writer.add(entries, records)
    info = writer.finish()
    return FileRow(
        f"{name}.run",
        info.rows,
        info.size,
        info.first_ms,
        info.last_ms,
        footer_crc(storage, directory, name),
    )


def footer_crc(storage: Storage, directory: str, name: str) -> int:
    """Return the CRC of the last 128 bytes of a run."""
    file = storage.open(run_path(directory, name))
    try:
        return crc32(file.read(file.size() - FOOTER_BYTES, FOOTER_BYTES))
    finally:
        file.close()
