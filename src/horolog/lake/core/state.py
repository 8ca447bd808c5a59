"""The state of a shard's messages in the lake: counts by hour and topic, and recalled messages.

The messages themselves are in Parquet files of a table that the broker does not write.  Every
change follows from a record of the log, so a replay leads to the same state:

    begin      far buffers are sealed; the messages filed in the far store so far are *frozen*: no
               merge takes them
    frozen     all frozen messages are in runs; from here on recalls of them are remembered
               (`recalled_set`)
    commit     the table has the messages: they are cut from the runs, and counted here instead
    abort      the frozen messages stay in their runs, as if the offload had never begun
    recalled   rows of the table are recalled
    promotion  (the adoption of app `promote:<number>:<topic>`) an hour of a topic is in runs again

An offload always takes all messages due from a whole hour on, so a run is cut at one row and the
rest stays as it is.  A checkpoint has this state in its registry and in a file of its own
(`state_file`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.tier import state_name
from horolog.lake.core.counts import LakeCounts
from horolog.lake.core.recalled_set import RecalledSet
from horolog.lake.core.stages import TABLE, Event, Stage
from horolog.lake.core.state_file import COUNT, NAME, decode_lake, encode_lake
from horolog.limits import HOUR_MS
from horolog.state_table import after, allows
from horolog.storage.api import Storage
from horolog.storage.sectors import read_if_any


@dataclass
class Offload:
    """One offload; its id is never used again.  A checkpoint calls it `number`."""

    offload_id: int
    app: str
    from_ms: int  # it takes messages due from here on; a whole hour
    stage: Stage = Stage.SEALING
    uri: str = ""  # of the table
    rows: int = 0  # rows that went into the table
    last_hour: int = 0
    position: int = 0  # log position after its commit
    committed_ms: int = 0  # time of the commit; 0: none, or by a version that did not record it

    def row(self) -> dict[str, Any]:
        """Build the offload's row for the registry of a checkpoint."""
        fields = asdict(self)
        return {"number": fields.pop("offload_id"), **fields}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Offload:
        """Build an offload from its row in the registry; the inverse of `row`."""
        fields = {**row, "stage": Stage(row["stage"])}
        return cls(fields.pop("number"), **fields)


class Lake:
    """The offloads of a shard, and its messages in the lake."""

    def __init__(self) -> None:
        self.offloads: dict[int, Offload] = {}
        self.next = 1
        self.version = 0
        self.changed = False
        self._last = 0  # highest version ever used: an older checkpoint may name it
        self._counts = LakeCounts()
        self.recalled_set = RecalledSet()

    @property
    def open(self) -> Offload | None:
        """The offload under way, of which there is one at most; None: no offload is under way."""
        for offload in self.offloads.values():
            if offload.stage is not Stage.LAKE:
                return offload
        return None

    @property
    def waiting(self) -> int:
        """Count of messages that wait in the lake."""
        return self._counts.total

    @property
    def next_hour(self) -> int | None:
        """The first hour with messages in the lake; None: there are none."""
        return self._counts.first_hour()

    def check_invariants(self) -> None:
        """Assert that at most one offload is open, and that counts are of committed offloads."""
        stages = {offload_id: offload.stage for offload_id, offload in self.offloads.items()}
        assert sum(stage is not Stage.LAKE for stage in stages.values()) <= 1, stages
        assert all(0 < offload_id < self.next for offload_id in stages), (stages, self.next)
        for offload_id, offload in self.offloads.items():
            assert offload.offload_id == offload_id, (offload.offload_id, offload_id)
            assert not offload.from_ms % HOUR_MS, offload.from_ms
            assert (offload.position > 0) == (offload.stage is Stage.LAKE), offload
        for (offload_id, hour, _), n in self._counts.items():
            assert n > 0, (offload_id, hour, n)
            assert stages.get(offload_id) is Stage.LAKE, (offload_id, hour)
            assert self.offloads[offload_id].from_ms <= hour * HOUR_MS, (offload_id, hour)
        self._counts.check_invariants()
        assert 0 <= self.version <= self._last, (self.version, self._last)

    def by_hour(self, topic: int | None) -> dict[int, int]:
        """Return the counts by hour, of one topic or (None) of all."""
        return self._counts.by_hour(topic)

    def in_hour(self, hour: int, topic: int | None) -> int:
        """Return the count of an hour, of one topic or (None) of all."""
        return self._counts.in_hour(hour, topic)

    def by_topic(self) -> dict[int, int]:
        """Return the counts by topic."""
        found: dict[int, int] = {}
        for (_, _, topic), n in self._counts.items():
            found[topic] = found.get(topic, 0) + n
        return found

    def counts_before(self, to_hour: int) -> list[tuple[int, int, int, int]]:
        """Return (offload, hour, topic, count) of the hours before `to_hour`, ascending."""
        return sorted((*key, n) for key, n in self._counts.items() if key[1] < to_hour)

    def count(self, offload_id: int, hour: int, topic: int) -> int:
        """Return the count of an offload, hour and topic."""
        return self._counts.get((offload_id, hour, topic))

    def first_hour(self, offload_id: int, topic: int) -> int | None:
        """Return the first hour with messages of an offload and topic; None: there are none."""
        return self._counts.first_of(offload_id, topic)

    def may_hold(self, topic: int, from_ms: int, to_ms: int) -> bool:
        """Return whether messages of a topic wait in the lake in the hours of [from_ms, to_ms)."""
        if to_ms - from_ms < HOUR_MS:  # one message: every recall asks for it
            hours = {from_ms // HOUR_MS, (to_ms - 1) // HOUR_MS}
            return any(self._counts.has(hour, topic) for hour in hours)
        return any(
            from_ms < (hour + 1) * HOUR_MS and hour * HOUR_MS < to_ms
            for hour in self._counts.by_hour(topic)
        )

    def waits(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the LAKE_ROW rows (all of the table) that still wait.

        Such a row's hour is still counted, and the row is not recalled.
        """
        hours, at = np.unique(_hours_of(rows), return_inverse=True)
        there = np.array([self.count(*hour) > 0 for hour in hours.tolist()], bool)[at]
        there[there] = ~self.recalled_set.knows(rows[there])
        return there

    def recalled_of(self, offload_id: int, hour: int | None = None) -> npt.NDArray[Any]:
        """Return the recalled LAKE_ROW rows of an offload, of one hour or (None) of all."""
        rows: npt.NDArray[Any] = self.recalled_set.all
        rows = rows[rows["number"] == offload_id]
        return rows if hour is None else rows[rows["due_ms"] // HOUR_MS == hour]

    # --- steps ------------------------------------------------------------------------------------

    def stage_of(self, offload_id: int) -> Stage:
        """Return the stage of an offload; NONE if there is no offload of that id."""
        offload = self.offloads.get(offload_id)
        return Stage.NONE if offload is None else offload.stage

    def happened(self, offload_id: int, event: Event) -> None:
        """Apply an event of the state table (`lake.core.stages`) that changes only the stage."""
        self.offloads[offload_id].stage = after(TABLE, self.stage_of(offload_id), event)

    def begin(self, offload_id: int, app: str, from_ms: int, *, is_whole: bool = True) -> None:
        """Begin an offload; `is_whole`: all messages that it freezes have been filed."""
        assert self.open is None, (offload_id, self.open)
        assert offload_id >= self.next, (offload_id, self.next)
        event = Event.BEGIN if is_whole else Event.BEGIN_UNFILED
        stage = after(TABLE, self.stage_of(offload_id), event)
        self.offloads[offload_id] = Offload(offload_id, app, from_ms, stage)
        self.next = offload_id + 1

    def abort(self, offload_id: int) -> None:
        """Remove an aborted offload and the recalls remembered for it."""
        assert after(TABLE, self.stage_of(offload_id), Event.ABORT) is Stage.NONE
        del self.offloads[offload_id]
        self._drop_recalled(self.recalled_set.all["number"] == offload_id)

    def commit(
        self, offload_id: int, fields: dict[str, Any], position: int, counts: npt.NDArray[Any]
    ) -> None:
        """Commit an offload: the table has its messages.

        fields    of the record
        position  log position after the record
        counts    COUNT rows: the messages that wait
        """
        self.happened(offload_id, Event.COMMIT)
        offload = self.offloads[offload_id]
        offload.position, offload.uri, offload.rows = position, fields["uri"], fields["rows"]
        offload.committed_ms = fields.get("at_ms", 0)
        self.add_waiting(offload_id, counts)

    def add_waiting(self, offload_id: int, counts: npt.NDArray[Any]) -> None:
        """Count messages (COUNT rows) of an offload as waiting in the lake from here on."""
        offload = self.offloads[offload_id]
        for row in counts.tolist():
            self._counts.put(row[:3], row[3])
        offload.last_hour = int(counts["hour"].max()) if len(counts) else 0
        self.changed = True

    def remember_recalled(self, rows: npt.NDArray[Any]) -> None:
        """Remember LAKE_ROW rows recalled while frozen: in the table, but not counted."""
        if len(rows):
            self.recalled_set.add(rows)
            self.changed = True

    def recall(self, rows: npt.NDArray[Any]) -> int:
        """Recall LAKE_ROW rows of the table; return how many of them still waited."""
        fresh = rows[~self.recalled_set.knows(rows)]
        done = 0
        hours, counts = np.unique(_hours_of(fresh), return_counts=True)
        for hour, n in zip(hours.tolist(), counts.tolist(), strict=True):
            left = self.count(*hour)
            self._counts.put(tuple(hour), left - min(left, n))
            done += min(left, n)
        self.remember_recalled(fresh)
        return done

    def apply_promotion(self, offload_id: int, hour: int, topic: int) -> int:
        """Stop counting an hour of a topic, now in runs again; return how many waited."""
        self.happened(offload_id, Event.PROMOTE)
        n = self._counts.put((offload_id, hour, topic), 0)
        rows = self.recalled_set.all
        mine = (rows["number"] == offload_id) & (rows["due_ms"] // HOUR_MS == hour)
        self._drop_recalled(mine & (rows["topic"] == topic))
        self.changed = True
        return n

    def forget(self, log_start: int) -> None:
        """Drop offloads without waiting messages whose commit is not in the log any more."""
        offload_ids = {key[0] for key, _ in self._counts.items()}
        for offload_id, offload in list(self.offloads.items()):
            is_needed = offload_id in offload_ids or offload.position > log_start
            if allows(TABLE, offload.stage, Event.OVER) and not is_needed:
                del self.offloads[offload_id]

    def _drop_recalled(self, rows: npt.NDArray[np.bool_]) -> None:
        if self.recalled_set.drop(rows):
            self.changed = True

    # --- checkpoint -------------------------------------------------------------------------------

    def capture(self) -> bytes | None:
        """Encode the next state file if one is needed; `version` and `registry` name it."""
        if not self.changed:
            return None
        self.changed = False
        if not len(self._counts) and not len(self.recalled_set):
            self.version = 0
            return None
        self._last += 1
        self.version = self._last
        return self.encode()

    def encode(self) -> bytes:
        """Encode the state file."""
        counts = np.array([(*key, n) for key, n in sorted(self._counts.items())], COUNT)
        return encode_lake(counts, self.recalled_set.all)

    def registry(self) -> dict[str, Any]:
        """Build the lake's part of a checkpoint's registry."""
        offloads = [offload.row() for offload in self.offloads.values()]
        fields = {"next": self.next, "version": self.version, "last": self._last}
        counts = {"waiting": self.waiting, "recalled": len(self.recalled_set)}
        return {**fields, **counts, "offloads": offloads}

    def restore(self, registry: dict[str, Any], content: bytes) -> str:
        """Restore the state that a checkpoint names; return why it failed, "" if it did not."""
        self.next = registry.get("next", 1)
        self.version = registry.get("version", 0)
        self._last = registry.get("last", 0)
        for row in registry.get("offloads", []):
            self.offloads[row["number"]] = Offload.of(row)
        if not self.version:
            return ""
        why = f"state {self.version} of the lake is missing or damaged"
        if self._decode(content):
            # Versions begin again after a rebuild; an older horolog did not write these counts.
            has = {"waiting": self.waiting, "recalled": len(self.recalled_set)}
            if all(registry.get(name, count) == count for name, count in has.items()):
                return ""
            why = f"state {self.version} of the lake is not the one that the checkpoint names"
        self._counts, self.recalled_set = LakeCounts(), RecalledSet()
        self.changed = True  # the next checkpoint must not name that file again
        return why

    def _decode(self, content: bytes) -> bool:
        tables = decode_lake(content)
        if tables is None:
            return False
        counts, recalled = tables
        self._counts = LakeCounts((row[:3], row[3]) for row in counts.tolist())
        self.recalled_set = RecalledSet(recalled)
        return True


def _hours_of(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows (number, hour, topic) of LAKE_ROW rows."""
    found = np.empty(len(rows), [(name, "<u8") for name in ("number", "hour", "topic")])
    found["number"], found["topic"] = rows["number"], rows["topic"]
    found["hour"] = rows["due_ms"] // HOUR_MS
    return found


def restore_lake(
    lake: Lake, storage: Storage, directory: str, registry: dict[str, Any]
) -> list[Damaged]:
    """Restore a new `Lake` to the state of a checkpoint; return what cannot be read."""
    name = state_name(NAME, registry.get("version", 0))
    why = lake.restore(registry, read_if_any(storage, f"{directory}/{name}"))
    if not why:
        return []
    there = [each for each in lake.offloads.values() if each.stage is Stage.LAKE]
    waiting = registry.get("waiting", sum(each.rows for each in there))  # at most
    first = min((each.from_ms // HOUR_MS for each in there), default=0)
    last = max((each.last_hour for each in there), default=0)
    return [Damaged("runs", name, (name,), why, waiting, first, last, are_files=True)]
