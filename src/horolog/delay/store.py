"""Where every scheduled message is filed, and found again.

In this version all of them are near: one `Hour` each hour of the coming 24.  The far store (runs) will take what
lies beyond the near window; `file` is the place where the two part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.chain import ChainLoad
from horolog.delay.entry import entry_sums, record_crcs
from horolog.delay.hour import Filing, Hour
from horolog.delay.state import SECONDS, EntryState, HourState, decode_state, state_name
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_KEEP_MS, HOUR_MS
from horolog.storage.api import Storage, read_file


class Filed(NamedTuple):
    """Where a batch went: its hour, the due times and the global indexes."""

    hour: int
    due_ms: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]  # type: ignore[assignment]  # hides tuple.index


class Unfiled(NamedTuple):
    """Committed scheduled messages, in log order."""

    heads: npt.NDArray[Any]  # log.record.HEAD
    origins: npt.NDArray[np.uint64]
    records: memoryview  # one after the other


class Captured(NamedTuple):
    """What a checkpoint needs of the hours."""

    registry: list[dict[str, int]]
    states: list[tuple[str, HourState]]  # files to write
    sync: list[str]  # files to sync first


class DelayStore:
    """All hours of a shard."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self.hours: dict[int, Hour] = {}
        self.problems: list[str] = []

    def path(self, hour: int) -> str:
        """Directory of one hour."""
        return f"{self._directory}/{hour:010d}"

    def open_hour(self, hour: int) -> Hour:
        """The hour, made if it is not there."""
        found = self.hours.get(hour)
        if found is None:
            self._storage.remove_dir(self.path(hour))  # of a former life of this hour
            found = self.hours[hour] = Hour(self._storage, self.path(hour), hour)
        return found

    def restore_hour(self, row: dict[str, int]) -> str:
        """Open an hour as a checkpoint's registry names it; gives why it cannot ("" if it did)."""
        number, version = row["hour"], row["version"]
        path = self.path(number)
        try:
            state = decode_state(read_file(self._storage, f"{path}/{state_name(version)}"))
        except FileNotFoundError:
            state = None
        if state is None or state.count != row["count"]:
            return f"state {version} of hour {number} is missing or damaged"
        hour = Hour(self._storage, path, number)
        if not hour.restore(state, version):
            hour.close()
            return f"the files of hour {number} are shorter than its checkpoint says"
        self.hours[number] = hour
        return ""

    def on_disk(self) -> list[int]:
        """Hours that have a directory."""
        return [int(name) for name in self._storage.list(self._directory) if name.isdigit()]

    # --- filing -------------------------------------------------------------------------------

    def file(self, unfiled: Unfiled) -> tuple[list[Filed], Unfiled | None]:
        """File scheduled messages: where they went, and those for which the disk had no space."""
        heads, origins, records = unfiled
        sizes = heads["size"].astype(np.int64)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        slices = [records[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        crcs = record_crcs(slices, origins)
        hours = heads["due_ms"] // HOUR_MS
        if bool((hours == hours[0]).all()):
            groups = [(int(hours[0]), np.arange(len(hours)))]
        else:
            order = np.argsort(hours, kind="stable")
            cuts = np.flatnonzero(np.diff(hours[order])) + 1
            groups = [(int(hours[part[0]]), part) for part in np.split(order, cuts)]
        filed = []
        for at, (number, rows) in enumerate(groups):
            joined = (
                bytes(records)
                if len(rows) == len(hours)
                else b"".join([slices[i] for i in rows.tolist()])
            )
            due = heads["due_ms"][rows]
            filing = Filing(
                due,
                origins[rows],
                sizes[rows],
                heads["key"][rows],
                heads["topic"][rows],
                crcs[rows],
                joined,
            )
            try:
                filed.append(Filed(number, due, self.open_hour(number).file(filing)))
            except HorologError as error:
                if error.code is not ErrorCode.DISK_FULL:
                    raise
                left = np.sort(np.concatenate([group for _, group in groups[at:]]))
                rest = b"".join([slices[i] for i in left.tolist()])
                return filed, Unfiled(heads[left], origins[left], memoryview(rest))
        return filed, None

    # --- what the wheel asks --------------------------------------------------------------------

    def next_waiting(self, second: int) -> int | None:
        """The first second at or after `second` in which something waits."""
        for number in sorted(self.hours):
            hour = self.hours[number]
            if (number + 1) * SECONDS <= second or not hour.waiting:
                continue
            first = max(0, second - number * SECONDS)
            waiting = np.flatnonzero(hour.heads["waiting"][first:])
            if len(waiting):
                return number * SECONDS + first + int(waiting[0])
        return None

    def open_chain(self, second: int) -> ChainLoad:
        """Begin to load a second."""
        return ChainLoad(self.hours[second // SECONDS], second)

    # --- hand-over and recall -------------------------------------------------------------------

    def verified(
        self, hour: Hour, index: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], list[memoryview]]:
        """Of these entries those whose record verifies: (global indexes, ENTRY rows, records).

        The others are quarantined: reported, counted, never handed over.
        """
        entries = hour.entries(index)
        records = hour.records(entries)
        good = (record_crcs(records, entries["origin"]) == entries["crc"]) & (
            entry_sums(entries) == entries["sum"]
        )
        if not bool(good.all()):
            bad = index[~good]
            hour.settle(bad, EntryState.QUARANTINED)
            self.problems.append(
                f"hour {hour.hour}: {len(bad)} messages do not verify and are quarantined "
                f"(first: log position {int(entries['origin'][~good][0])})"
            )
            records = [r for r, ok in zip(records, good.tolist(), strict=True) if ok]
            index, entries = index[good], entries[good]
        return index, entries, records

    def find_key(
        self, key: int, topic: int, due_ms: int
    ) -> tuple[Hour, npt.NDArray[np.int64]] | None:
        """Entries of that topic, due time and key hash: their hour and global indexes; None if there are none.

        The caller compares message ids, since hashes may collide.
        """
        hour = self.hours.get(due_ms // HOUR_MS)
        if hour is None:
            return None
        found = hour.keys.find(key)
        if not found:
            return None
        index = np.array(found, np.int64)
        entries = hour.entries(index)
        same = (entries["due_ms"] == due_ms) & (entries["topic"] == topic)
        return (hour, index[same]) if bool(same.any()) else None

    def resolve(
        self, hour: int, origins: npt.NDArray[np.uint64]
    ) -> tuple[Hour, npt.NDArray[np.int64]]:
        """Replay: the entries of these origins; one that no file has is a broken invariant: DAMAGED."""
        found = self.hours.get(hour)
        index = found.find_origins(origins) if found else np.full(len(origins), -1, np.int64)
        if found is None or bool((index < 0).any()):
            missing = int(origins[np.argmax(index < 0)]) if len(origins) else 0
            raise HorologError(
                ErrorCode.DAMAGED,
                f"the commit log names a scheduled message at log position {missing} of hour {hour} "
                f"that the hour's files do not have",
                field=f"hours/{hour}",
            )
        return found, index

    # --- counts ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Scheduled messages that wait, all hours."""
        return sum(hour.waiting for hour in self.hours.values())

    def waiting_by_hour(self, topic: int | None) -> list[tuple[int, int]]:
        """(hour, count) with count > 0, in order."""
        rows = []
        for number in sorted(self.hours):
            hour = self.hours[number]
            n = hour.waiting if topic is None else hour.by_topic.get(topic, 0)
            if n:
                rows.append((number, n))
        return rows

    def waiting_by_second(self, number: int, topic: int | None) -> list[tuple[int, int]]:
        """(second of the epoch, count) with count > 0 of one hour, in order."""
        hour = self.hours.get(number)
        if hour is None:
            return []
        if topic is None:
            counts = hour.heads["waiting"]
        else:
            counts = np.zeros(SECONDS, np.int64)
            for first, entries in hour.scan():
                states = hour.states[first : first + len(entries)] & EntryState.SETTLED_BITS
                rows = (entries["topic"] == topic) & (states == EntryState.WAITING)
                seconds = entries["due_ms"][rows] // 1000 - number * SECONDS
                counts += np.bincount(seconds, minlength=SECONDS)
        return [(number * SECONDS + int(s), int(counts[s])) for s in np.flatnonzero(counts)]

    def waiting_between(
        self, from_ms: int, to_ms: int, topic: int | None
    ) -> Iterator[tuple[npt.NDArray[Any], memoryview]]:
        """(ENTRY row, record) of what waits and is due in [from_ms, to_ms), in hand-over order."""
        after = from_ms // 1000
        while (second := self.next_waiting(after)) is not None and second * 1000 < to_ms:
            chain = self.open_chain(second)
            while not chain.walk(1 << 20)[1]:
                pass
            hour = self.hours[second // SECONDS]
            index = chain.keys() & ((1 << 40) - 1)
            entries = hour.entries(index)
            rows = (entries["due_ms"] >= from_ms) & (entries["due_ms"] < to_ms)
            if topic is not None:
                rows &= entries["topic"] == topic
            for at in np.flatnonzero(rows):
                entry = entries[at : at + 1]
                yield entry[0], hour.records(entry)[0]
            after = second + 1

    # --- checkpoint -----------------------------------------------------------------------------

    def capture(self) -> Captured:
        """State of all hours as it is now: at a moment when everything filed lies below the position."""
        registry, states, sync = [], [], []
        for number in sorted(self.hours):
            hour = self.hours[number]
            if hour.unsynced:
                sync += hour.sync_paths()
            if hour.changed:
                states.append(hour.capture())
            registry.append(
                {
                    "hour": number,
                    "version": hour.version,
                    "count": hour.count,
                    "log_bytes": hour.log_bytes,
                }
            )
        return Captured(registry, states, sync)

    def drop_finished(self, now_ms: int) -> list[str]:
        """Forget hours that are over for HOUR_KEEP_MS and in which nothing waits; gives their directories.

        The caller removes them once no kept checkpoint names them.
        """
        gone = [
            number
            for number, hour in self.hours.items()
            if (number + 1) * HOUR_MS + HOUR_KEEP_MS <= now_ms and not hour.waiting
        ]
        for number in gone:
            self.hours.pop(number).close()
        return [self.path(number) for number in gone]

    def close(self) -> None:
        """Close all files."""
        for hour in self.hours.values():
            hour.close()
