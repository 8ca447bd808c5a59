"""Repair of index entries from their records.

One flipped bit of an entry is put right by the entry's own sum.  For other damage there is the
record: records lie one after another, so the record of a damaged entry begins where the previous
entry's record ends, and the record has all that the entry states: size, due time, topic and key in
the head, the origin (the log position) in the stored layout.  An entry made in this way is accepted
only if the log has the very same record at that origin, or if record and origin give the CRC that
the damaged entry states.

Where the record is damaged as well, and for the damaged entries after it, hours and far buffers
search the log (`repair_from_log`).  The records of adopted runs do not know their origins, so
damaged rows of adopted runs are left alone, except for a flipped bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, ENTRY_BYTES, entry_sums, is_readable, origin_seed
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.run import FarRun
from horolog.delay.near.hour import Hour
from horolog.delay.repair import drop_views, record_from_log, rewrite
from horolog.delay.repair_from_log import Found, Gap, ReadableLog, find_rows
from horolog.delay.source import Rows
from horolog.errors import Repair
from horolog.limits import HOUR_MS, REPAIR_ROWS_MAX, REPAIR_SEARCH_BYTES
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.protocol.rocketmq import layout
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.delay.far.buffer import FarBuffer
    from horolog.delay.store import DelayStore

_Place: TypeAlias = tuple[int, int, int]
_REMEMBERED_MAX = 10_000  # gaps that the log does not have; when full, all are forgotten
_FLIPPED_ROWS = 256  # if more rows are damaged together, more than a bit has flipped
_DUES_READ = 1 << 16  # entries read at a time, 4 MiB
_NEAR_ROWS = 1 << 13  # the previous entry of the same second is mostly among so many rows
_LEAST_BYTES = HEAD_BYTES + layout.POSITION_AT + 8


class _Chains:
    """The chains of an hour's seconds: which entry precedes a row in its second.

    The due seconds of all entries are read once: an hour may have millions of entries, and a page
    of its index many damaged ones.
    """

    def __init__(self, hour: Hour) -> None:
        self._hour = hour
        self._seconds = np.zeros(0, np.int16)  # within the hour, of the rows looked at so far

    def link(self, row: int, due_ms: int) -> tuple[int, int]:
        """Return (index in its second, previous entry there or −1) of a row that is due then."""
        same = self._read(row)[:row] == self._second(due_ms)
        count = int(np.count_nonzero(same))
        near = max(0, row - _NEAR_ROWS)
        found = np.flatnonzero(same[near:])
        if len(found):
            return count, near + int(found[-1])
        return count, int(np.flatnonzero(same)[-1]) if count else -1

    def put(self, row: int, due_ms: int) -> None:
        """Note that a damaged row is known to be due at `due_ms`."""
        self._read(row + 1)[row] = self._second(due_ms)

    def _second(self, due_ms: int) -> int:
        return due_ms // 1000 - self._hour.hour * (HOUR_MS // 1000)

    def _read(self, stop: int) -> npt.NDArray[np.int16]:
        known = len(self._seconds)
        if known < stop:
            found, start = [self._seconds], self._hour.hour * HOUR_MS
            for first in range(known, stop, _DUES_READ):
                rows = np.arange(first, min(first + _DUES_READ, stop))
                within = (self._hour.entries(rows)["due_ms"] - start) // 1000
                # A damaged entry may state any due time, so it belongs to no second.
                found.append(
                    np.where((within >= 0) & (within < 3_600), within, -1).astype(np.int16)
                )
            self._seconds = np.concatenate(found)
        return self._seconds


def repair_rows(store: DelayStore, source: Hour | FarBuffer | FarRun, rows: Rows) -> None:
    """Rebuild and write the entries of these rows where possible, at most REPAIR_ROWS_MAX rows."""
    wanted = np.unique(rows).tolist()[:REPAIR_ROWS_MAX]
    flipped = _flipped_back(source, wanted[:_FLIPPED_ROWS])
    if flipped:
        _write(store, source, flipped)
        what = f"{source.label}: a flipped bit of an index entry was put right by its sum"
        store.repairs.append(Repair(what, len(flipped)))
    wanted = [row for row in wanted if row not in flipped]
    if isinstance(source, AdoptedRun) or not wanted:
        return
    made: dict[int, Any] = {}
    chains = _Chains(source) if isinstance(source, Hour) else None
    for row in wanted:
        entry = _rebuilt_entry(store, source, row, made, chains)
        if entry is not None:
            made[row] = entry
            if chains is not None:
                chains.put(row, int(entry["due_ms"][0]))
    if made:
        _write(store, source, made)
        what = f"{source.label}: {len(made)} damaged index entries were rebuilt from their records"
        store.repairs.append(Repair(what, len(made)))
    if len(made) < len(wanted) and not isinstance(source, FarRun):
        _repair_from_log(store, source, [row for row in wanted if row not in made], chains)


def _flipped_back(source: Hour | FarBuffer | FarRun, rows: list[int]) -> dict[int, Any]:
    """Return the entries of these rows that have one flipped bit, as they were before.

    Only one of the 512 possible flips gives the right sum.
    """
    found = {}
    of_file = source.file if isinstance(source, FarRun) else source
    bits = np.arange(8 * ENTRY_BYTES)
    for row in rows:
        each = np.repeat(of_file.entries(np.array([row])), len(bits))
        raw = each.view(np.uint8).reshape(len(bits), ENTRY_BYTES)
        raw[bits, bits // 8] ^= (1 << bits % 8).astype(np.uint8)
        good = np.flatnonzero(is_readable(each))
        if len(good) == 1:
            found[row] = each[good]
    return found


def _write(store: DelayStore, source: Hour | FarBuffer | FarRun, made: dict[int, Any]) -> None:
    at = source.index_at
    pieces = [(at + ENTRY_BYTES * row, entry.tobytes()) for row, entry in made.items()]
    rewrite(store.storage, source.index_path, pieces)
    drop_views(store, source)


def _repair_from_log(
    store: DelayStore, source: Hour | FarBuffer, rows: list[int], chains: _Chains | None
) -> None:
    """Rebuild these entries and their records from the log, with damaged entries beside them."""
    log, made = store.log, dict[int, Any]()
    if log is None:
        return
    for row in rows:
        gap = None if row in made else _gap(log, source, row)
        if gap is None:
            continue
        place = source.source_id, gap.first, gap.stop
        found = [] if place in store.not_in_log else find_rows(log, source, gap)
        if not found:
            _remember(store.not_in_log, place)
        for each in found:
            _complete(each, made, chains)
        pieces = [(int(each.entry["position"][0]), each.record) for each in found]
        rewrite(store.storage, source.records_path, pieces)
    if made:
        _write(store, source, made)
        what = (
            f"{source.label}: {counted(len(made), 'message')} with damaged index entries: made "
            "again from the log"
        )
        store.repairs.append(Repair(what, len(made)))


def _remember(places: set[_Place], place: _Place) -> None:
    if len(places) >= _REMEMBERED_MAX:
        places.clear()
    places.add(place)


def _complete(found: Found, made: dict[int, Any], chains: _Chains | None) -> None:
    """Add the fields that depend on the file to an entry, and its sum."""
    row, entry = found.row, found.entry
    if chains is not None:
        due_ms = int(entry["due_ms"][0])
        entry["local"], entry["previous"] = chains.link(row, due_ms)
        chains.put(row, due_ms)
    else:
        head = np.frombuffer(found.record[:HEAD_BYTES], HEAD)[0]
        entry["local"] = np.uint32(int(head["tags"]) & 0xFFFFFFFF)
    entry["sum"] = entry_sums(entry)
    made[row] = entry


def _gap(log: ReadableLog, source: Hour | FarBuffer, row: int) -> Gap | None:
    """Return the damaged rows around a row; None if the row is sound, or there are too many."""
    low, high = max(0, row - REPAIR_ROWS_MAX), row + REPAIR_ROWS_MAX + 1
    bad = set(source.damaged_between(low, high).tolist())
    if row not in bad:
        return None
    first, stop = row, row + 1
    while first - 1 in bad:
        first -= 1
    while stop in bad:
        stop += 1
    if stop - first > REPAIR_ROWS_MAX:
        return None
    at, end = source.records_at, source.log_bytes
    start, limit = log.start, log.commit_position
    before = source.entries(np.array([first - 1]))[0] if first else None
    after = source.entries(np.array([stop]))[0] if stop < source.count else None
    if before is not None:
        at, start = int(before["position"]) + int(before["size"]), int(before["origin"])
        limit = min(limit, start + REPAIR_SEARCH_BYTES)
    if after is not None:
        end, limit = int(after["position"]), int(after["origin"])
        start = max(start, limit - REPAIR_SEARCH_BYTES) if before is None else start
    return Gap(first, stop, at, end, max(start, log.start), limit)


def _rebuilt_entry(
    store: DelayStore,
    source: Hour | FarBuffer | FarRun,
    row: int,
    made: dict[int, Any],
    chains: _Chains | None,
) -> npt.NDArray[Any] | None:
    position = source.records_at
    if row:
        before = _readable_entry(source, row - 1, made)
        if before is None:
            return None
        position = int(before["position"]) + int(before["size"])
    head = np.frombuffer(_bytes_at(source, position, HEAD_BYTES).ljust(HEAD_BYTES), HEAD)[0]
    size = int(head["size"])
    after = _readable_entry(source, row + 1, made) if row + 1 < source.count else None
    if size < _LEAST_BYTES or head["kind"] != Kind.SCHEDULED:
        return None
    if after is not None and position + size != int(after["position"]):
        return None
    record = _bytes_at(source, position, size)
    if len(record) != size:
        return None
    entry = np.zeros(1, ENTRY)
    at = HEAD_BYTES + layout.POSITION_AT
    origin = int.from_bytes(record[at : at + 8], "big")
    entry["position"], entry["size"], entry["origin"] = position, size, origin
    for name in ("due_ms", "key", "topic"):
        entry[name] = head[name]
    entry["crc"] = crc32(record, origin_seed(origin))
    if isinstance(source, Hour) and int(head["due_ms"]) // HOUR_MS != source.hour:
        return None
    if chains is not None:
        entry["local"], entry["previous"] = chains.link(row, int(head["due_ms"]))
    else:
        entry["local"] = np.uint32(int(head["tags"]) & 0xFFFFFFFF)
    entry["sum"] = entry_sums(entry)
    was = source.entries(np.array([row]))[0]
    if was["crc"] != entry["crc"][0] and record_from_log(store.log, entry[0]) != record:
        return None
    return entry


def _readable_entry(source: Any, row: int, made: dict[int, Any]) -> Any:
    """Return an ENTRY row, if it can be read or was rebuilt; else None."""
    if row in made:
        return made[row][0]
    entry = source.entries(np.array([row]))
    return entry[0] if is_readable(entry) else None


def _bytes_at(source: Any, position: int, size: int) -> bytes:
    entry = np.zeros(1, ENTRY)
    entry["position"], entry["size"] = position, size
    return bytes(source.records(entry)[0])
