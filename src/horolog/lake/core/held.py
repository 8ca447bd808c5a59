"""What the shard knows of its messages in the lake: how many wait there, by hour and topic, and which were recalled.

The messages themselves are Parquet files of a table that the broker does not write.  Every change comes from a
record of the log, so a replay comes to the same state:

    begin      far buffers are sealed; what is filed in the far store so far is *frozen*: no merge takes it
    frozen     all of it lies in runs; from here on what is recalled of it is remembered (`gone`)
    commit     the table has it: it is cut from the runs, and counted here instead
    abort      as if nothing had been
    recalled   rows of the table are recalled
    promotion  (the adoption of app `promote:<number>:<topic>`) an hour of a topic is in runs again

Offloaded is always all that is due from a whole hour on, so a run is cut at a row and what is left of it goes on
as it is.  A checkpoint has all of it in its registry and in a file of its own (`state_file`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.tier import state_name
from horolog.lake.core.counts import LakeCounts
from horolog.lake.core.gone import GoneRows
from horolog.lake.core.stages import TABLE, Event, Stage
from horolog.lake.core.state_file import COUNT, NAME, decode_lake, encode_lake
from horolog.limits import HOUR_MS
from horolog.state_table import after, allows
from horolog.storage.api import Storage, read_file


@dataclass
class Offload:
    """One offload; its id is never used again.  A checkpoint calls it `number`."""

    offload_id: int
    app: str
    from_ms: int  # what is due from here on; a whole hour
    stage: Stage = Stage.SEALING
    uri: str = ""  # of the table
    rows: int = 0  # that went into the table
    last_hour: int = 0
    position: int = 0  # log position after its commit
    committed_ms: int = 0  # when that was; 0: not, or by a version that did not note it

    def row(self) -> dict[str, Any]:
        """What a checkpoint's registry says of it."""
        fields = asdict(self)
        return {"number": fields.pop("offload_id"), **fields}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Offload:
        """The inverse of `row`."""
        fields = {**row, "stage": Stage(row["stage"])}
        return cls(fields.pop("number"), **fields)


class Lake:
    """Offloads of a shard, and what waits in the lake."""

    def __init__(self) -> None:
        self.offloads: dict[int, Offload] = {}
        self.next = 1
        self.version = 0
        self.changed = False
        self._last = 0  # version that was ever given: an older checkpoint may name it
        self._counts = LakeCounts()
        self.gone = GoneRows()

    @property
    def open(self) -> Offload | None:
        """The offload that is under way; there is one at most."""
        for offload in self.offloads.values():
            if offload.stage is not Stage.LAKE:
                return offload
        return None

    @property
    def waiting(self) -> int:
        """Messages that wait in the lake."""
        return self._counts.total

    @property
    def next_hour(self) -> int | None:
        """The first hour of which something waits."""
        return self._counts.first_hour()

    def check_invariants(self) -> None:
        """At most one offload is open; what waits or is gone is of an offload that the table has."""
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
        """Hour → what waits."""
        return self._counts.by_hour(topic)

    def in_hour(self, hour: int, topic: int | None) -> int:
        """What waits of one hour."""
        return self._counts.in_hour(hour, topic)

    def by_topic(self) -> dict[int, int]:
        """Topic → what waits."""
        found: dict[int, int] = {}
        for (_, _, topic), n in self._counts.items():
            found[topic] = found.get(topic, 0) + n
        return found

    def left(self, to_hour: int) -> list[tuple[int, int, int, int]]:
        """(offload, hour, topic, waiting) of the hours before one, ascending."""
        return sorted((*key, n) for key, n in self._counts.items() if key[1] < to_hour)

    def count(self, offload_id: int, hour: int, topic: int) -> int:
        """What waits of one offload, hour and topic."""
        return self._counts.get((offload_id, hour, topic))

    def first_hour(self, offload_id: int, topic: int) -> int | None:
        """The first hour of which something waits."""
        return self._counts.first_of(offload_id, topic)

    def may_hold(self, topic: int, from_ms: int, to_ms: int) -> bool:
        """Whether something of that topic, due in hours of [from_ms, to_ms), waits in the lake."""
        if to_ms - from_ms < HOUR_MS:  # one message: asked for at every recall
            hours = {from_ms // HOUR_MS, (to_ms - 1) // HOUR_MS}
            return any(self._counts.has(hour, topic) for hour in hours)
        return any(
            from_ms < (hour + 1) * HOUR_MS and hour * HOUR_MS < to_ms
            for hour in self._counts.by_hour(topic)
        )

    def waits(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these GONE rows, all of the table, wait still: their hour is there and they are not gone."""
        hours, at = np.unique(_hours_of(rows), return_inverse=True)
        there = np.array([self.count(*hour) > 0 for hour in hours.tolist()], bool)[at]
        there[there] = ~self.gone.knows(rows[there])
        return there

    def gone_of(self, offload_id: int, hour: int | None = None) -> npt.NDArray[Any]:
        """GONE rows of an offload (and hour)."""
        rows: npt.NDArray[Any] = self.gone.all
        rows = rows[rows["number"] == offload_id]
        return rows if hour is None else rows[rows["due_ms"] // HOUR_MS == hour]

    # --- steps --------------------------------------------------------------------------------------

    def stage_of(self, offload_id: int) -> Stage:
        """How far an offload is; NONE if there is none of that id."""
        offload = self.offloads.get(offload_id)
        return Stage.NONE if offload is None else offload.stage

    def happened(self, offload_id: int, event: Event) -> None:
        """An event of the table (`lake.core.stages`) that changes nothing but the stage."""
        self.offloads[offload_id].stage = after(TABLE, self.stage_of(offload_id), event)

    def begin(self, offload_id: int, app: str, from_ms: int, *, is_whole: bool = True) -> None:
        """An offload is under way; `is_whole`: all that it freezes is filed."""
        assert self.open is None, (offload_id, self.open)
        assert offload_id >= self.next, (offload_id, self.next)
        event = Event.BEGIN if is_whole else Event.BEGIN_UNFILED
        stage = after(TABLE, self.stage_of(offload_id), event)
        self.offloads[offload_id] = Offload(offload_id, app, from_ms, stage)
        self.next = offload_id + 1

    def abort(self, offload_id: int) -> None:
        """It is not."""
        assert after(TABLE, self.stage_of(offload_id), Event.ABORT) is Stage.NONE
        del self.offloads[offload_id]
        self._drop_gone(self.gone.all["number"] == offload_id)

    def commit(
        self, offload_id: int, fields: dict[str, Any], position: int, counts: npt.NDArray[Any]
    ) -> None:
        """The table has it, and these (COUNT rows) of it wait; `fields` are the record's, `position` is after that."""
        self.happened(offload_id, Event.COMMIT)
        offload = self.offloads[offload_id]
        offload.position, offload.uri, offload.rows = position, fields["uri"], fields["rows"]
        offload.committed_ms = fields.get("at_ms", 0)
        self.take(offload_id, counts)

    def take(self, offload_id: int, counts: npt.NDArray[Any]) -> None:
        """These (COUNT rows) wait in the lake from here on."""
        offload = self.offloads[offload_id]
        for row in counts.tolist():
            self._counts.put(row[:3], row[3])
        offload.last_hour = int(counts["hour"].max()) if len(counts) else 0
        self.changed = True

    def note_gone(self, rows: npt.NDArray[Any]) -> None:
        """GONE rows that were recalled while they were frozen: they are not counted, but the table has them."""
        if len(rows):
            self.gone.add(rows)
            self.changed = True

    def recall(self, rows: npt.NDArray[Any]) -> int:
        """GONE rows of the table that are recalled: how many of them still waited."""
        fresh = rows[~self.gone.knows(rows)]
        done = 0
        hours, counts = np.unique(_hours_of(fresh), return_counts=True)
        for hour, n in zip(hours.tolist(), counts.tolist(), strict=True):
            left = self.count(*hour)
            self._counts.put(tuple(hour), left - min(left, n))
            done += min(left, n)
        self.note_gone(fresh)
        return done

    def promoted(self, offload_id: int, hour: int, topic: int) -> int:
        """What waited of an hour and topic is in runs again; gives how many that were."""
        self.happened(offload_id, Event.PROMOTE)
        n = self._counts.put((offload_id, hour, topic), 0)
        rows = self.gone.all
        mine = (rows["number"] == offload_id) & (rows["due_ms"] // HOUR_MS == hour)
        self._drop_gone(mine & (rows["topic"] == topic))
        self.changed = True
        return n

    def forget(self, log_start: int) -> None:
        """Drop offloads of which nothing waits any more and that the log does not speak of."""
        offload_ids = {key[0] for key, _ in self._counts.items()}
        for offload_id, offload in list(self.offloads.items()):
            is_needed = offload_id in offload_ids or offload.position > log_start
            if allows(TABLE, offload.stage, Event.OVER) and not is_needed:
                del self.offloads[offload_id]

    def _drop_gone(self, rows: npt.NDArray[np.bool_]) -> None:
        if self.gone.drop(rows):
            self.changed = True

    # --- checkpoint ---------------------------------------------------------------------------------

    def capture(self) -> bytes | None:
        """The next state file if one is needed; `version` and `registry` speak of it."""
        if not self.changed:
            return None
        self.changed = False
        if not len(self._counts) and not len(self.gone):
            self.version = 0
            return None
        self._last += 1
        self.version = self._last
        return self.encode()

    def encode(self) -> bytes:
        """The state file."""
        counts = np.array([(*key, n) for key, n in sorted(self._counts.items())], COUNT)
        return encode_lake(counts, self.gone.all)

    def registry(self) -> dict[str, Any]:
        """What a checkpoint's registry says."""
        offloads = [offload.row() for offload in self.offloads.values()]
        fields = {"next": self.next, "version": self.version, "last": self._last}
        return {**fields, "offloads": offloads}

    def restore(self, registry: dict[str, Any], content: bytes | None) -> str:
        """Take over what a checkpoint names; gives why not ("" if it did)."""
        self.next = registry.get("next", 1)
        self.version = registry.get("version", 0)
        self._last = registry.get("last", 0)
        for row in registry.get("offloads", []):
            self.offloads[row["number"]] = Offload.of(row)
        if not self.version:
            return ""
        if content is None or not self._decode(content):
            return f"state {self.version} of the lake is missing or damaged"
        return ""

    def _decode(self, content: bytes) -> bool:
        tables = decode_lake(content)
        if tables is None:
            return False
        counts, gone = tables
        self._counts = LakeCounts((row[:3], row[3]) for row in counts.tolist())
        self.gone = GoneRows(gone)
        return True


def _hours_of(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(number, hour, topic) of GONE rows."""
    found = np.empty(len(rows), [(name, "<u8") for name in ("number", "hour", "topic")])
    found["number"], found["topic"] = rows["number"], rows["topic"]
    found["hour"] = rows["due_ms"] // HOUR_MS
    return found


def restore_lake(
    lake: Lake, storage: Storage, directory: str, registry: dict[str, Any]
) -> list[Damaged]:
    """Put a fresh one into the state of a checkpoint; gives what cannot be read."""
    name = state_name(NAME, registry.get("version", 0))
    path = f"{directory}/{name}"
    content = read_file(storage, path) if storage.exists(path) else None
    why = lake.restore(registry, content)
    return [Damaged("runs", name, (name,), why, are_files=True)] if why else []
