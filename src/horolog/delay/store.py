"""The delay store: keeps and finds all scheduled messages, near ones in hours, far ones in runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged, quarantine_problem
from horolog.delay.entry import ENTRY, ENTRY_BYTES, is_readable
from horolog.delay.far import checkpoint as far_checkpoint
from horolog.delay.far.adopted import Adoption
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.compaction import FarSettings
from horolog.delay.far.run import FarRun
from horolog.delay.far.store import FarStore
from horolog.delay.filing import Filed, Unfiled, file_by_due_time
from horolog.delay.near.hour import Hour
from horolog.delay.near.store import NearStore
from horolog.delay.repair import are_intact, repair_records
from horolog.delay.repair_entries import repair_rows
from horolog.delay.repair_from_log import ReadableLog
from horolog.delay.source import ROW_BITS, ROW_MASK, Rows, Wanted, refs_of
from horolog.delay.span import SpanLoad, open_span
from horolog.delay.state import EntryState
from horolog.delay.tier import Tier
from horolog.errors import Problem, Repair
from horolog.limits import HOUR_MS
from horolog.storage.api import Storage


class Captured(NamedTuple):
    """What a checkpoint needs of the hours and of the far store."""

    registry: list[dict[str, int]]
    far: dict[str, Any]
    settled: npt.NDArray[Any]  # log.checkpoint.FAR_SETTLED
    states: list[tuple[str, Callable[[], bytes]]]  # files to write
    sync: list[str]  # files to sync first


class DelayStore:
    """All hours of a shard, and its far store."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        tier: Tier,
        far_directory: str = "runs",
        log_id: int = 0,
        far_settings: FarSettings | None = None,
    ) -> None:
        self.storage = storage
        self.quarantined: list[tuple[int, int]] = []  # (first, last) hours of what was set aside
        self.given_up: list[tuple[int, int]] = []  # log ranges of which a salvage left nothing
        self.problems: list[Problem] = []
        self.repairs: list[Repair] = []
        self.log: ReadableLog | None = None  # the source of repairs
        # (source id, first row, stop row) of damaged entries that the log does not have
        self.not_in_log: set[tuple[int, int, int]] = set()
        self.stalled: list[Unfiled] = []  # committed messages for which the disk had no space
        self._sources: dict[int, Hour | FarBuffer | FarRun] = {}
        self._last_source_id = 0
        self.near = NearStore(storage, directory, self._take_source_id)
        self.hours = self.near.hours
        self.far = FarStore(
            storage,
            far_directory,
            log_id,
            self._take_source_id,
            far_settings or FarSettings(),
            tier,
        )
        self.near.repair = self.far.repair = partial(repair_rows, self)

    def _take_source_id(self) -> int:
        self._last_source_id += 1
        return self._last_source_id

    def path(self, hour: int) -> str:
        """Return the directory of one hour."""
        return self.near.path(hour)

    def restore_hour(self, row: dict[str, int], aside: Collection[str] = ()) -> Damaged | None:
        """Open an hour as a checkpoint's registry names it; return the damage if that fails."""
        found = self.near.restore(row, aside)
        if isinstance(found, Damaged):
            return found
        self._sources[found.source_id] = found
        return None

    def cut(self) -> None:
        """Cut all files, at start, to what was restored; later messages are filed again."""
        self.near.cut()
        for buffer in self.far.buffers:
            buffer.cut()

    def on_disk(self) -> list[int]:
        """Return the hours that have a directory."""
        return self.near.on_disk()

    def unsynced(self) -> Iterator[tuple[str, int]]:
        """Yield the files that the next checkpoint will sync: their paths and lengths in bytes."""
        for files in chain(self.hours.values(), self.far.buffers):
            if files.unsynced:
                yield files.records_path, files.log_bytes
                yield files.index_path, files.count * ENTRY_BYTES

    # --- filing -------------------------------------------------------------------------------

    def file(self, unfiled: Unfiled) -> tuple[Filed, Unfiled | None]:
        """File scheduled messages; return where they went, and those the disk had no space for."""
        filed, rest, sources = file_by_due_time(self.near, self.far, unfiled)
        for source in sources:
            self._sources[source.source_id] = source
        return filed, rest

    # --- references -----------------------------------------------------------------------------

    def by_source(
        self, refs: npt.NDArray[np.int64]
    ) -> Iterator[tuple[Hour | FarBuffer | FarRun | None, npt.NDArray[np.int64] | slice, Rows]]:
        """Yield (source, its places in `refs`, its rows) for each source; None: it is gone."""
        if not len(refs):
            return
        source_ids = refs >> ROW_BITS
        first = int(source_ids[0])
        if len(refs) == 1 or bool((source_ids == first).all()):
            yield self._source(first), slice(None), refs & ROW_MASK
            return
        for source_id in np.unique(source_ids).tolist():
            at = np.flatnonzero(source_ids == source_id)
            yield self._source(source_id), at, refs[at] & ROW_MASK

    def _source(self, source_id: int) -> Hour | FarBuffer | FarRun | None:
        found = self._sources.get(source_id)
        if found is None:
            for source in self.far.sources():  # made by a job, and not asked for before
                self._sources[source.source_id] = source
            found = self._sources.get(source_id)
        return found

    def forget_source(self, source_id: int) -> None:
        """Forget a source that no longer exists."""
        self._sources.pop(source_id, None)

    def states(self, refs: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the `EntryState` of each, with in-flight bits; HANDED_OVER: the source is gone."""
        states = np.full(len(refs), EntryState.HANDED_OVER, np.uint8)
        for source, at, rows in self.by_source(refs):
            if source is not None:
                states[at] = source.states_at(rows)
        return states

    def entries(self, refs: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the ENTRY rows of references whose sources are there, not verified."""
        found = np.empty(len(refs), ENTRY)
        for source, at, rows in self.by_source(refs):
            assert source is not None
            entries = source.entries(rows)
            if isinstance(at, slice):
                return entries
            found[at] = entries
        return found

    def records(self, refs: npt.NDArray[np.int64], entries: npt.NDArray[Any]) -> list[memoryview]:
        """Return the records of these entries, not verified."""
        found: list[memoryview] = [memoryview(b"")] * len(refs)
        for source, at, _ in self.by_source(refs):
            assert source is not None
            records = source.records(entries[at])
            if isinstance(at, slice):
                return records
            for i, record in zip(at.tolist(), records, strict=True):
                found[i] = record
        return found

    def mark_inflight(self, refs: npt.NDArray[np.int64], bits: EntryState) -> None:
        """Mark messages for which a change is appended but not yet committed."""
        for source, _, rows in self.by_source(refs):
            assert source is not None
            source.mark_inflight(rows, bits)

    def settle(self, refs: npt.NDArray[np.int64], state: EntryState) -> None:
        """Settle these waiting messages for good."""
        for source, _, rows in self.by_source(refs):
            assert source is not None
            source.settle(rows, state)

    # --- what the wheel asks --------------------------------------------------------------------

    def next_waiting(self, second: int) -> int | None:
        """Return the first second at or after `second` in which something waits."""
        near, far = self.near.next_waiting(second), self.far.next_waiting(second)
        return min((at for at in (near, far) if at is not None), default=None)

    def open_span(
        self, second: int, stop: int, rows: int, wanted: Wanted | None = None
    ) -> SpanLoad:
        """Begin to load `second`, and later ones before `stop` until about `rows` rows wait."""
        far = self.far.sources_waiting_between(second, stop)
        return open_span(self.hours, far, second, stop, rows, wanted)

    # --- hand-over and recall -------------------------------------------------------------------

    def read_intact(
        self, refs: npt.NDArray[np.int64], entries: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], list[memoryview]]:
        """Return the messages whose records verify: (references, ENTRY rows, records).

        Others are repaired from the log, or quarantined: reported, counted, never handed over.
        """
        records, good = self.read_repaired(refs, entries)
        if not bool(good.all()):
            self.quarantine(refs[~good], entries[~good])
            records = [r for r, ok in zip(records, good.tolist(), strict=True) if ok]
            refs, entries = refs[good], entries.compress(good)
        return refs, entries, records

    def read_repaired(
        self, refs: npt.NDArray[np.int64], entries: npt.NDArray[Any]
    ) -> tuple[list[memoryview], npt.NDArray[np.bool_]]:
        """Return the records, repaired from the log where possible, and which of them verify.

        entries  ENTRY rows; rebuilt ones are replaced in place
        """
        readable = is_readable(entries)
        if not bool(readable.all()):
            self.repair_entries(refs[~readable])
            entries[~readable] = self.entries(refs[~readable])
        records = self.records(refs, entries)
        good = are_intact(self, refs, entries, records)
        good &= is_readable(entries)
        if not bool(good.all()):
            repair_records(self, refs, entries, records, good)
        return records, good

    def repair_entries(self, refs: npt.NDArray[np.int64]) -> None:
        """Rebuild these damaged entries from their records, where possible."""
        for source, _, rows in self.by_source(refs):
            assert source is not None
            repair_rows(self, source, rows)

    def quarantine(self, refs: npt.NDArray[np.int64], entries: npt.NDArray[Any]) -> None:
        """Quarantine messages that cannot be repaired: settle them in place, and report them."""
        for source, at, rows in self.by_source(refs):
            assert source is not None
            source.settle(rows, EntryState.QUARANTINED)
            self.problems.append(quarantine_problem(source, int(entries["origin"][at][-1])))

    def find_key(self, key: int, topic: int, due_ms: int | None) -> npt.NDArray[np.int64]:
        """Return references of messages of a topic, key hash and due time (None: any) in log order.

        The caller compares message ids, since hashes may collide.
        """
        found = []
        near = self.hours if due_ms is None else {due_ms // HOUR_MS}
        for hour_id in near:
            hour = self.hours.get(hour_id)
            if hour is not None:
                found.append(refs_of(hour.source_id, np.array(hour.keys.find(key), np.int64)))
        for source in self.far.sources():
            rows = source.find_key(key, due_ms)
            if len(rows):
                self._sources[source.source_id] = source
                found.append(refs_of(source.source_id, rows))
        if not found:
            return np.empty(0, np.int64)
        refs = np.concatenate(found)
        entries = self.entries(refs)
        readable = is_readable(entries)
        if not bool(readable.all()):
            self.repair_entries(refs[~readable])
            entries = self.entries(refs)
            readable = is_readable(entries)
        same = readable & (entries["topic"] == topic) & (entries["key"] == np.uint64(key))
        if due_ms is not None:
            same &= entries["due_ms"] == due_ms
        refs, entries = refs[same], entries.compress(same)
        ordered: npt.NDArray[np.int64] = refs[np.lexsort((entries["row"], entries["origin"]))]
        return ordered

    def sources_between(self, from_ms: int, to_ms: int) -> list[Hour | FarBuffer | FarRun]:
        """Return the hours that lie in [from_ms, to_ms), in order, then far buffers and runs."""
        return [*self.near.between(from_ms, to_ms), *self.far.sources()]

    # --- checkpoint -----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Scheduled messages that wait, near, far and in the tier."""
        return self.near.waiting + self.far.waiting + self.far.tier.waiting

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of far messages that are still to be written as runs."""
        return self.far.unflushed_bytes

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the log bytes that handing over what is due before `to_ms` takes; nearly exact."""
        return self.near.bytes_due_before(to_ms) + self.far.bytes_due_before(to_ms)

    def capture(self) -> Captured:
        """Capture the present state; all that was filed must lie below the checkpoint."""
        registry, states, sync = self.near.capture()
        far = far_checkpoint.capture(self.far)
        return Captured(registry, far.registry, far.settled, states + far.states, sync + far.sync)

    def capture_failed(self) -> None:
        """Have the next checkpoint write and sync everything, since that of `capture` failed."""
        self.near.capture_failed()
        far_checkpoint.capture_failed(self.far)

    def drop_finished(self, now_ms: int, position: int) -> None:
        """Forget hours and runs that are over for HOUR_KEEP_MS and in which nothing waits.

        Their files go once no kept checkpoint names them; `position`: see `FarStore.drop_finished`.
        """
        gone = [*self.near.drop_finished(now_ms), *self.far.drop_finished(now_ms, position)]
        for source_id in gone:
            self._sources.pop(source_id, None)

    def adopt(self, adoption: Adoption) -> int | None:
        """Take over adopted runs; return the first due time that they bring, if any."""
        self.far.adopt(adoption)
        return self.far.compaction.take_moved()

    def finish_job(self) -> int | None:
        """Take over a finished job; return the first due time that changed its source, if any."""
        if self.far.compaction.finish():
            self._sources = {hour.source_id: hour for hour in self.hours.values()}
            return self.far.compaction.take_moved()
        return None

    def close(self) -> None:
        """Close all files."""
        self.near.close()
        self.far.close()
