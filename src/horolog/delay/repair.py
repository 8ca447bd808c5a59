"""Repairing: what a derived file of the delay store has lost, from the commit log, while the broker runs.

A record whose CRC does not verify is read from the log at its origin.  If the log's copy has the CRC that the index
entry says (started from the origin, so it is the same message), it is handed over in its place and written back
where it belongs; the file is then what it was.  Rows of adopted runs have no copy in the log, and what retention has
dropped has none any more: those are quarantined.

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
from horolog.log.frame_reader import Hole
from horolog.storage.api import Storage
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.delay.store import DelayStore


def from_log(log: ReadableLog | None, entry: Any) -> bytes | None:
    """The record of a readable ENTRY row as the log has it; None if it has it no more."""
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
    """Which of these messages' records are as they were written, and what their entries say."""
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
    """Put bytes back where they were, durably; a disk that refuses keeps what it has."""
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
    """Replace in `records` those that are not `good` and that the log has; they are good then.

    entries  ENTRY rows; one that is not readable itself is left as it is
    """
    wanted = np.flatnonzero(~good & is_readable(entries))
    for source, at, _ in store.by_source(refs[wanted]):
        if source is None or isinstance(source, AdoptedRun):
            continue
        pieces = []
        for row in wanted[at].tolist():
            found = from_log(store.log, entries[row])
            if found is not None:
                records[row], good[row] = memoryview(found), True
                pieces.append((int(entries[row]["position"]), found, int(entries[row]["origin"])))
        if pieces:
            rewrite(store.storage, source.records_path, [piece[:2] for piece in pieces])
            reread(store, source)
            text = (
                f"{source.label}: repaired from the commit log: {counted(len(pieces), 'damaged record')} "
                f"(first: log position {pieces[0][2]})"
            )
            store.repairs.append(Repair(text, len(pieces)))


def reread(store: DelayStore, source: Any) -> None:
    """Views of its files may be copies: they are taken again."""
    if isinstance(source, FarRun):
        store.far.forget_file(source.info.name)
    else:
        source.reread()
