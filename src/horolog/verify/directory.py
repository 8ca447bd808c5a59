"""Verification of a whole data directory.

    meta → checkpoints → log and queues → hours, far buffers, runs → balance of pending messages

Only what the newest intact checkpoint names is compared: the next start cuts longer files to the
length in the checkpoint, and fills them again from the log after it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from horolog.broker.key_columns import key_columns
from horolog.broker.life.retention import firsts_of, start_of
from horolog.errors import HorologError
from horolog.limits import HOUR_MS
from horolog.log.checkpoint import Checkpoint, checkpoint_name
from horolog.log.record import Kind
from horolog.log.segment import segment_name
from horolog.storage.api import Storage
from horolog.storage.meta import SHARD
from horolog.verify.adoptions import AdoptionCheck
from horolog.verify.balance import Balance
from horolog.verify.checkpoints import check_older, check_progress, read_checkpoints
from horolog.verify.far import check_buffer, check_run
from horolog.verify.findings import Findings
from horolog.verify.frames import LogWalk
from horolog.verify.holes import Holes
from horolog.verify.hours import HourCheck, read_state
from horolog.verify.keys import KeyIndexCheck
from horolog.verify.lake import LakeCheck
from horolog.verify.offline import read_meta
from horolog.verify.queues import QueueCheck
from horolog.verify.reading import LogBytes, Reading, Report
from horolog.verify.recorded_damage import find_early_end, report_recorded_damage
from horolog.verify.records import RecordCheck, Records


@dataclass
class Verdict:
    """The findings of a verification, and how much was read."""

    findings: Findings = field(default_factory=Findings)
    log_start: int = 0
    log_end: int = 0
    checkpoint: int = -1  # log position of the newest intact checkpoint; −1: there is none
    frames: int = 0
    quick: bool = False  # records were not read, so `records` and `scheduled` are not known
    records: int = 0
    scheduled: int = 0
    bytes: int = 0
    holes: int = 0  # stretches of the log that cannot be read
    hole_bytes: int = 0
    lost: int = 0  # queue offsets whose messages lie in holes

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings.count

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for --json."""
        return {
            "clean": self.clean,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "checkpoint": self.checkpoint,
            "frames": self.frames,
            "records": None if self.quick else self.records,
            "scheduled": None if self.quick else self.scheduled,
            "bytes": self.bytes,
            "holes": self.holes,
            "hole_bytes": self.hole_bytes,
            "lost": self.lost,
            "finding_count": self.findings.count,
            "findings": [finding.as_json() for finding in self.findings.kept],
            "notes": self.findings.notes,
        }


def verify_directory(
    storage: Storage, *, quick: bool = False, report: Report = lambda what, done, total: None
) -> Verdict:
    """Read everything and collect what is wrong; changes nothing.

    The caller holds the directory's lock.  Errors are those of `read_meta`.
    """
    verdict = Verdict(quick=quick)
    log_id, segment_bytes = read_meta(storage, verdict.findings)
    reading = Reading(storage, verdict.findings, quick=quick, report=report)
    return _Verification(reading, verdict, log_id, segment_bytes).run()


def _topic_names(checkpoint: Checkpoint) -> dict[int, str]:
    """Return names of existing topics, and of deleted topics whose messages the log may have."""
    rows = checkpoint.registry["topics"] + checkpoint.registry.get("dropped_topics", [])
    return {row["number"]: row["name"] for row in rows}


class _Verification:
    def __init__(self, reading: Reading, verdict: Verdict, log_id: int, segment_bytes: int) -> None:
        self._reading = reading
        self._verdict = verdict
        self._log_id = log_id
        self._segment_bytes = segment_bytes
        self._balance = Balance(0)
        self._adoptions = AdoptionCheck()
        self._holes = Holes()
        self._queues: QueueCheck | None = None
        self._keys: KeyIndexCheck | None = None

    def run(self) -> Verdict:
        reading, verdict = self._reading, self._verdict
        checkpoints = read_checkpoints(reading, f"{SHARD}/checkpoint", log_id=self._log_id, shard=0)
        newest = checkpoints[0] if checkpoints else None
        verdict.checkpoint = newest.position if newest else -1
        reading.total = verdict.bytes = self._measure()
        log_is_whole = self._check_log(newest)
        if newest is None:
            self._note_no_checkpoint()
        else:
            self._check_named(newest, checkpoints[1:], log_is_whole)
        report_recorded_damage(reading, SHARD, newest)
        return verdict

    def _check_named(self, newest: Checkpoint, older: list[Checkpoint], log_is_whole: bool) -> None:
        """Check what the checkpoints name."""
        reading = self._reading
        path = f"{SHARD}/checkpoint/{checkpoint_name(newest.position)}"
        check_progress(reading, path, newest)
        self._check_delayed(newest)
        for each in older:
            check_older(reading, SHARD, self._segment_bytes, each)
        if not reading.quick:
            self._check_balance(log_is_whole)

    def _measure(self) -> int:
        """Return the bytes of all files, for the progress; find files in place of directories."""
        reading, total = self._reading, 0
        for part in ("log", "queues", "keys", "hours", "runs", "checkpoint"):
            place = f"{SHARD}/{part}"
            if reading.storage.is_file(place):
                reading.findings.add(place, 0, "is a file, not a directory")
            for name in reading.storage.list(place):
                path = f"{place}/{name}"
                inside: list[str] = []
                if "." not in name or "buffer" in name:
                    with suppress(HorologError):  # a stray file, not a directory
                        inside = reading.storage.list(path)
                for each in [f"{path}/{inner}" for inner in inside] or [path]:
                    total += reading.size(each)
        return total

    def _note_no_checkpoint(self) -> None:
        findings = self._verdict.findings
        if self._verdict.log_start:
            findings.add(
                f"{SHARD}/checkpoint",
                0,
                "there is no intact checkpoint, and the log begins after 0",
            )
        else:
            findings.note(
                "no checkpoint: queues, hours and runs were not read, a start rebuilds them"
            )

    # --- the log ----------------------------------------------------------------------------------

    def _check_log(self, newest: Checkpoint | None) -> bool:
        reading, verdict = self._reading, self._verdict
        place = f"{SHARD}/log"
        walk = LogWalk(
            reading,
            place,
            self._segment_bytes,
            log_id=self._log_id,
            shard=0,
            replayed_from=newest.position if newest else 0,
        )
        verdict.log_start = max(walk.start, start_of(newest) or 0)
        self._balance = Balance(verdict.log_start, walk.holes)
        self._lake = LakeCheck({})
        self._adoptions = AdoptionCheck()
        self._holes = walk.holes
        if newest is not None:
            self._make_log_checks(newest, walk.start)
        ends_at_frame = self._read_frames(walk, newest)
        verdict.log_end = walk.end
        whole = walk.report_bad_frames(newest.position if newest else 0)
        if whole:
            find_early_end(reading, SHARD, self._log_id, walk.end)
        if newest is not None and not ends_at_frame and whole:
            verdict.findings.add(
                f"{SHARD}/checkpoint/{checkpoint_name(newest.position)}",
                newest.position,
                "no frame ends at its log position",
            )
        reaches = newest is not None and (
            walk.end >= newest.position or walk.holes.has(newest.position - 1)
        )
        if self._queues is not None and not reading.quick and (whole or reaches):
            self._queues.finish()
        if self._keys is not None and (whole or reaches):
            self._keys.finish()
        verdict.holes, verdict.hole_bytes = len(walk.holes), walk.holes.bytes
        verdict.lost = self._queues.lost if self._queues is not None else 0
        return whole

    def _read_frames(self, walk: LogWalk, newest: Checkpoint | None) -> bool:
        """Read the whole log; return whether a frame ends at the newest checkpoint's position."""
        verdict = self._verdict
        names = {} if newest is None else _topic_names(newest)
        check = RecordCheck(names, self._report_record)
        ends_at_frame = False
        for header, body in walk.frames():
            verdict.frames += 1
            ends_at_frame |= newest is not None and header.end == newest.position
            if not header.count or self._reading.quick:
                continue
            records = check.read(header, body)
            verdict.records += header.count
            if records is None:
                continue
            if len(records.at):
                verdict.scheduled += int((records.heads["kind"] == Kind.SCHEDULED).sum())
            inside = newest is not None and header.end <= newest.position
            if inside and header.base >= verdict.log_start:
                self._take(header.end, records, body)
        return ends_at_frame

    def _report_record(self, position: int, what: str) -> None:
        segment = segment_name(position - position % self._segment_bytes)
        self._verdict.findings.add(f"{SHARD}/log/{segment}", position, what)

    def _make_log_checks(self, newest: Checkpoint, start: int) -> None:
        """Make the checks that compare files with the log while it is read."""
        reading, stated = self._reading, start_of(newest) or 0
        if start > stated:
            self._verdict.findings.add(
                f"{SHARD}/log/{segment_name(stated)}", stated, "the segment is missing"
            )
        lengths = {(t, q): n for t, q, n in newest.columns["queues"].tolist()}
        dropped = frozenset(row["number"] for row in newest.registry.get("dropped_topics", []))
        self._queues = QueueCheck(
            reading, f"{SHARD}/queues", lengths, firsts_of(newest), self._holes, dropped
        )
        if "keys" in newest.registry:
            self._keys = KeyIndexCheck(
                reading,
                f"{SHARD}/keys",
                newest.registry["keys"],
                log_id=self._log_id,
                start=self._verdict.log_start,
                holes=self._holes,
            )

    def _take(self, end: int, records: Records, body: bytes) -> None:
        keyed = key_columns(records.heads, records.at, records.base, body)
        if self._keys is not None and keyed is not None:
            self._keys.take(end, keyed.keys, keyed.positions)
        if len(records.at):
            if self._queues is not None:
                self._queues.take(records)
            rows = np.flatnonzero(records.heads["kind"] == Kind.SCHEDULED)
            self._balance.add(
                records.heads["due_ms"][rows] // HOUR_MS, records.at[rows] + records.base, 1
            )
        self._adoptions.take(records.adoptions)
        self._adoptions.offload(records.offloaded)
        for hours, origins in records.settled:
            mine = self._adoptions.settle(origins)
            self._balance.add(hours[mine], origins["position"][mine], -1)

    # --- what was scheduled -----------------------------------------------------------------------

    def _check_delayed(self, newest: Checkpoint) -> None:
        reading = self._reading
        log = LogBytes(
            reading,
            f"{SHARD}/log",
            self._segment_bytes,
            start=self._verdict.log_start,
            holes=self._holes,
        )
        try:
            for row in newest.registry["hours"]:
                directory = f"{SHARD}/hours/{row['hour']:010d}"
                state = read_state(reading, directory, row)
                if state is not None:
                    HourCheck(reading, directory, row, state).run(log, self._balance)
            far = newest.registry.get("far", {})
            settled = newest.columns["far_settled"]
            place = f"{SHARD}/runs"
            for row in far.get("buffers", []):
                mine = settled[settled["buffer"] == row["number"]]
                check_buffer(reading, place, row, mine, log, self._balance)
            for row in far.get("runs", []):
                check_run(
                    reading,
                    place,
                    row,
                    log_id=self._log_id,
                    log=log,
                    balance=self._balance,
                    adoptions=self._adoptions,
                )
            self._lake = LakeCheck(far.get("lake", {}))
            self._lake.run(reading, place)
            if not reading.quick:
                named = {row["name"] for row in far.get("runs", [])}
                self._adoptions.finish(self._verdict.findings, place, named)
        finally:
            log.close()

    def _check_balance(self, log_is_whole: bool) -> None:
        """Compare the messages that the log leaves pending with those in files."""
        findings = self._verdict.findings
        damaged = findings.under(f"{SHARD}/hours") or findings.under(f"{SHARD}/runs")
        if damaged or not log_is_whole:
            findings.note(
                "what waits was not compared with the log as a whole: one of them is damaged"
            )
            return
        for hour, missing in self._balance.faults():
            if self._lake.has_taken(hour):
                # The log does not name what went to the lake, and what came back has other origins.
                continue
            what = f"{missing} messages are missing" if missing > 0 else f"{-missing} are too many"
            if not missing:
                what = "the messages that wait are not those that the log has left"
            findings.add(f"{SHARD}/hours/{hour:010d}", 0, f"hour {hour}: {what}")
