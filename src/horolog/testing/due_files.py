"""Run files of numbered messages, for tests and measurements of the code that reads runs.

The body of each message begins with its number in 16 digits, and the last 16 digits of its id are
the same number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.run.reader import RunInfo
from horolog.delay.run.writer import RunWriter
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.protocol.rocketmq.layout import AT
from horolog.protocol.rocketmq.layout import HEAD as LAYOUT_HEAD
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.storage.disk import Disk

LOG_ID = 0xD0E
_NUMBER = "9" * 16
_ID = "F" * 16 + _NUMBER
_BODY_CRC_AT = HEAD_BYTES + AT["body_crc"]
_BODY_AT = HEAD_BYTES + LAYOUT_HEAD.size
_ADD_ROWS = 65_536


def write_run(
    directory: Path,
    name: str,
    due_ms: npt.NDArray[np.int64],
    *,
    first: int = 0,
    topic: str = "t",
    body_bytes: int = 16,
) -> RunInfo:
    """Write `<name>.run` with messages `first`, `first` + 1 … due at these ascending times.

    The file appears under its name only when it is complete.
    """
    hidden = directory / f".{name}"
    hidden.mkdir()
    writer = RunWriter(Disk(hidden), "", name, log_id=LOG_ID, rows=len(due_ms))
    for at in range(0, len(due_ms), _ADD_ROWS):
        entries, records = numbered(
            due_ms[at : at + _ADD_ROWS],
            first=first + at,
            topic=topic,
            body_bytes=body_bytes,
            row=at,
        )
        writer.add(entries, records)
    found = writer.finish()
    (hidden / f"{name}.run").rename(directory / f"{name}.run")
    hidden.rmdir()
    return found


def numbered(
    due_ms: npt.NDArray[np.int64], *, first: int, topic: str, body_bytes: int, row: int
) -> tuple[npt.NDArray[Any], list[memoryview]]:
    """Return ENTRY rows and records of numbered messages; `row` is the row of the first one."""
    body = _NUMBER.encode() + bytes(max(0, body_bytes - 16))
    blank = encode(topic=topic, body=body, message_id=_ID, due_ms=10**12).record
    raw = np.tile(np.frombuffer(blank, np.uint8), (len(due_ms), 1))
    numbers = [b"%016d" % number for number in range(first, first + len(due_ms))]
    digits = np.frombuffer(b"".join(numbers), np.uint8).reshape(-1, 16)
    raw[:, _BODY_AT : _BODY_AT + 16] = digits
    at = blank.index(_ID.encode()) + 16
    raw[:, at : at + 16] = digits
    at = blank.index(b"1000000000000")
    dues = b"".join([b"%013d" % moment for moment in due_ms.tolist()])
    raw[:, at : at + 13] = np.frombuffer(dues, np.uint8).reshape(-1, 13)
    rest = body[16:]
    crcs = [crc32(rest, crc32(number)) & 0x7FFFFFFF for number in numbers]
    raw[:, _BODY_CRC_AT : _BODY_CRC_AT + 4] = np.array(crcs, ">u4").view(np.uint8).reshape(-1, 4)
    heads = np.zeros(len(due_ms), HEAD)
    heads["size"], heads["kind"], heads["due_ms"] = len(blank), Kind.SCHEDULED, due_ms
    heads["topic"] = 1
    ids = [_ID[:16] + number.decode() for number in numbers]
    heads["key"] = [key_hash(topic, message_id) for message_id in ids]
    raw[:, :HEAD_BYTES] = heads.view(np.uint8).reshape(-1, HEAD_BYTES)
    view = memoryview(raw.tobytes())
    records = [view[at : at + len(blank)] for at in range(0, len(view), len(blank))]
    entries = np.zeros(len(due_ms), ENTRY)
    entries["size"], entries["due_ms"], entries["key"] = len(blank), due_ms, heads["key"]
    entries["topic"], entries["row"] = 1, np.arange(row, row + len(due_ms))
    entries["crc"] = record_crcs(records, entries["origin"], entries["row"])
    entries["sum"] = entry_sums(entries)
    return entries, records
