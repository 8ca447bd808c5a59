"""Repair of damaged records of the delay store from the commit log, while the broker runs.

A record whose CRC does not verify is read from the log at its origin.  If the log's copy has the
CRC that the index entry states (started from the origin, so it is the same message), the copy is
handed over in place of the record and written back, so that the file is what it was.  Rows of
adopted runs have no copy in the log, and retention drops copies: in a record without a copy, one
flipped bit is put right by that CRC, and other damage is quarantined.

A write that fails leaves the file as it is: the copy is handed over all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import is_readable, origin_seed, record_crcs
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.run import FarRun
from horolog.delay.repair_from_log import ReadableLog
from horolog.errors import HorologError, Repair
from horolog.log.flipped_frame import holds_its_body
from horolog.log.frame_reader import Hole
from horolog.log.record import HEAD, HEAD_BYTES
from horolog.storage.api import Storage
from horolog.storage.flipped_bit import flipped_bit
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.delay.store import DelayStore


def record_from_log(log: ReadableLog | None, entry: Any) -> bytes | None:
    """Read the record of a readable ENTRY row from the log; None if the log no longer has it."""
    if log is None or entry["row"]:
        return None
    origin = int(entry["origin"])
    found = log.record(origin, int(entry["size"]))
    if isinstance(found, Hole):
        return None
    return found if crc32(found, origin_seed(origin)) == entry["crc"] else None


def are_intact(
    store: DelayStore,
    refs: npt.NDArray[np.int64],
    entries: npt.NDArray[Any],
    records: Sequence[memoryview],
) -> npt.NDArray[np.bool_]:
    """Return which records are as they were written, and agree with their entries."""
    origins, origin_rows = entries["origin"].copy(), entries["row"].copy()
    adopted = []
    for source, at, _ in store.by_source(refs):
        if isinstance(source, AdoptedRun):
            origins[at], origin_rows[at] = source.crc_origins(entries[at])
            adopted.append((source, np.arange(len(refs))[at]))
    good: npt.NDArray[np.bool_] = record_crcs(records, origins, origin_rows) == entries["crc"]
    for run, rows in adopted:
        good[rows] &= run.agree(entries[rows], [records[row] for row in rows.tolist()])
    return good


def rewrite(storage: Storage, path: str, pieces: Iterable[tuple[int, bytes]]) -> None:
    """Write bytes back in place, durably; if the disk refuses, the file keeps what it has."""
    with contextlib.suppress(HorologError, FileNotFoundError):
        file = storage.open(path)
        try:
            for offset, content in pieces:
                file.write(offset, content)
            file.sync()
        finally:
            file.close()


def repair_records(
    store: DelayStore,
    refs: npt.NDArray[np.int64],
    entries: npt.NDArray[Any],
    records: list[memoryview],
    good: npt.NDArray[np.bool_],
) -> None:
    """Repair those `records` that are not `good`, where possible, and mark them as good.

    entries  ENTRY rows; the record of an unreadable entry is left as it is
    """
    wanted = np.flatnonzero(~good & is_readable(entries))
    for source, at, _ in store.by_source(refs[wanted]):
        if source is None:
            continue
        rows = wanted[at]
        seeds = _seeds(source, entries[rows])
        from_the_log, flipped = {}, {}
        for row, seed in zip(rows.tolist(), seeds, strict=True):
            entry = entries[row]
            log = None if isinstance(source, AdoptedRun) else store.log
            if (found := record_from_log(log, entry)) is not None:
                from_the_log[row] = found
            elif (found := _flipped_back(entry, bytes(records[row]), seed)) is not None:
                flipped[row] = found
        _write_back(store, source, entries, from_the_log, "repaired from the commit log")
        _write_back(store, source, entries, flipped, "a flipped bit put right by its check sum")
        for row, found in (from_the_log | flipped).items():
            records[row], good[row] = memoryview(found), True


def _seeds(source: Any, entries: npt.NDArray[Any]) -> list[int]:
    """Return the start values for the CRCs of these entries' records."""
    origins, rows = entries["origin"], entries["row"]
    if isinstance(source, AdoptedRun):
        origins, rows = source.crc_origins(entries)
    return [origin_seed(*each) for each in zip(origins.tolist(), rows.tolist(), strict=True)]


def _flipped_back(entry: Any, record: bytes, seed: int) -> bytes | None:
    """Return the record with its one flipped bit put right; None if the damage is not one bit.

    How a flipped bit is told from other damage: `log.flipped_frame`.
    """
    at = flipped_bit(record, int(entry["crc"]), seed)
    if at is None or not HEAD_BYTES <= len(record) == entry["size"] or at[0] >= len(record):
        return None
    whole = bytearray(record)
    whole[at[0]] ^= 1 << at[1]
    head = np.frombuffer(whole, HEAD, 1)[0]
    is_its = all(head[name] == entry[name] for name in ("size", "due_ms", "topic", "key"))
    try:
        return bytes(whole) if is_its and holds_its_body(bytes(whole)) else None
    except HorologError:
        return None


def _write_back(
    store: DelayStore, source: Any, entries: npt.NDArray[Any], found: dict[int, bytes], how: str
) -> None:
    """Write repaired records back in place."""
    if not found:
        return
    pieces = [(int(entries[row]["position"]), record) for row, record in found.items()]
    rewrite(store.storage, source.records_path, pieces)
    drop_views(store, source)
    text = (
        f"{source.label}: {how}: {counted(len(found), 'damaged record')} "
        f"(first: log position {entries[next(iter(found))]['origin']})"
    )
    store.repairs.append(Repair(text, len(found)))


def drop_views(store: DelayStore, source: Any) -> None:
    """Drop the views of a source's files, which may be copies; the next use maps them again."""
    if isinstance(source, FarRun):
        store.far.unmap_file(source.info.name)
    else:
        source.drop_views()
