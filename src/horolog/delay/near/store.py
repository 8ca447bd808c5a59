"""The near store: the hours that have files, each with delay log, delay index and states.

`Hour` files messages into an hour and reads a second; which hours exist, and what a checkpoint
states of them, is kept here.  The far store (`delay.far.store`) is its counterpart, and
`delay.store` joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from horolog.delay.damage import Damaged
from horolog.delay.entry import HANDED_BYTES
from horolog.delay.entry_files import RepairRows
from horolog.delay.near.hour import Hour
from horolog.delay.near.hours import damaged_hour
from horolog.delay.state import SECONDS, decode_state, encode_state, state_name
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_KEEP_MS, HOUR_MS
from horolog.storage.api import Storage
from horolog.storage.sectors import read_if_any
from horolog.units import parse_unsigned

Rows = list[dict[str, int]]  # rows of a checkpoint's registry
States = list[tuple[str, Callable[[], bytes]]]  # files to write


class NearStore:
    """All hours of a shard, by hour id (epoch ms // 3 600 000)."""

    def __init__(self, storage: Storage, directory: str, take_source_id: Callable[[], int]) -> None:
        self.hours: dict[int, Hour] = {}
        self.repair: RepairRows | None = None  # rebuilds damaged entries
        self._storage = storage
        self._directory = directory
        self._take_source_id = take_source_id

    def path(self, hour: int) -> str:
        """Return the directory of one hour."""
        return f"{self._directory}/{hour:010d}"

    def on_disk(self) -> list[int]:
        """Return the hours that have a directory."""
        hours = map(parse_unsigned, self._storage.list(self._directory))
        return [hour for hour in hours if hour is not None]

    def open(self, hour: int) -> Hour:
        """Return an hour, creating its files if there are none."""
        found = self.hours.get(hour)
        if found is None:
            self._storage.remove_dir(self.path(hour))  # files of an earlier use of this hour
            found = self.hours[hour] = self._new_hour(hour)
        return found

    def _new_hour(self, hour: int) -> Hour:
        made = Hour(self._storage, self.path(hour), hour, self._take_source_id())
        made.repair = self.repair
        return made

    def restore(self, row: dict[str, int], aside: Collection[str] = ()) -> Hour | Damaged:
        """Open an hour as a checkpoint's registry names it; return the damage if that fails.

        aside  names of hours that are in quarantine
        """
        hour_id, version = row["hour"], row["version"]
        path = self.path(hour_id)
        if path.rpartition("/")[2] in aside:
            return damaged_hour(row, f"hour {hour_id} is in quarantine")
        state = decode_state(read_if_any(self._storage, f"{path}/{state_name(version)}"))
        if state is None:
            return damaged_hour(row, f"state {version} of hour {hour_id} is missing or damaged")
        if not state.is_named_by(row):
            why = f"state {version} of hour {hour_id} is not the one that the checkpoint names"
            return damaged_hour(row, why)
        try:
            hour = self._new_hour(hour_id)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FAILED:
                raise
            return damaged_hour(row, error.message)  # such as a directory in the place of a file
        if not hour.restore(state, version):
            hour.close()
            return damaged_hour(
                row, f"the files of hour {hour_id} are not those that its checkpoint names"
            )
        self.hours[hour_id] = hour
        return hour

    def between(self, from_ms: int, to_ms: int) -> list[Hour]:
        """Return the hours that lie in [from_ms, to_ms), in order."""
        hour_ids = [n for n in self.hours if n * HOUR_MS < to_ms and from_ms < (n + 1) * HOUR_MS]
        return [self.hours[hour_id] for hour_id in sorted(hour_ids)]

    # --- what waits -----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Scheduled messages that wait in hours."""
        return sum(hour.waiting for hour in self.hours.values())

    def next_waiting(self, second: int) -> int | None:
        """Return the first second at or after `second` in which a message of an hour waits."""
        for hour_id in sorted(self.hours):
            hour = self.hours[hour_id]
            if (hour_id + 1) * SECONDS <= second or not hour.waiting:
                continue
            at = hour.next_waiting(max(0, second - hour_id * SECONDS))
            if at is not None:
                return hour_id * SECONDS + at
        return None

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the log bytes that handing over what is due before `to_ms` takes; nearly exact."""
        count = total = 0
        for hour_id, hour in self.hours.items():
            if hour_id * HOUR_MS >= to_ms or not hour.waiting:
                continue
            seconds = min(SECONDS, -(-(to_ms - hour_id * HOUR_MS) // 1000))
            waiting = int(hour.heads["waiting"][:seconds].sum())
            count += waiting
            total += waiting * hour.log_bytes // hour.count
        return total + count * HANDED_BYTES

    # --- checkpoint -----------------------------------------------------------------------------

    def capture(self) -> tuple[Rows, States, list[str]]:
        """Return, for a checkpoint: rows of its registry, files to write, files to sync before."""
        registry: Rows = []
        states: States = []
        sync: list[str] = []
        for hour_id in sorted(self.hours):
            hour = self.hours[hour_id]
            if hour.unsynced:
                sync += hour.sync_paths()
            if hour.changed:
                path, state = hour.capture()
                states.append((path, partial(encode_state, state)))
            registry.append(
                {
                    "hour": hour_id,
                    "version": hour.version,
                    "count": hour.count,
                    "log_bytes": hour.log_bytes,
                    "waiting": hour.waiting,
                }
            )
        return registry, states, sync

    def capture_failed(self) -> None:
        """Have the next checkpoint write and sync everything, since that of `capture` failed."""
        for hour in self.hours.values():
            hour.changed = hour.unsynced = True

    def finished(self, now_ms: int) -> list[int]:
        """Return the hours that are over for HOUR_KEEP_MS and in which nothing waits."""
        return [
            hour_id
            for hour_id, hour in self.hours.items()
            if (hour_id + 1) * HOUR_MS + HOUR_KEEP_MS <= now_ms and not hour.waiting
        ]

    def drop_finished(self, now_ms: int) -> list[int]:
        """Forget the finished hours; return their source ids.

        Their files go once no kept checkpoint names them.
        """
        dropped = [self.hours.pop(hour_id) for hour_id in self.finished(now_ms)]
        for hour in dropped:
            hour.close()
        return [hour.source_id for hour in dropped]

    def cut(self) -> None:
        """Cut the files, at start, to what was restored; later messages are filed again."""
        for hour in self.hours.values():
            hour.cut()

    def close(self) -> None:
        """Close all files."""
        for hour in self.hours.values():
            hour.close()
