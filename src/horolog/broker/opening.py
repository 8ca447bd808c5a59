"""Opening a shard: gather the facts, ask the recovery table, carry its answer out.

`open_shard` gives a broker that has replayed everything and begun a new epoch durably; it can serve at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.replay import Replay
from horolog.broker.shard import Settings, Shard
from horolog.broker.snapshot import restore
from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import NO_FRAME, Checkpoint, decode_checkpoint
from horolog.log.commit_log import CommitLog
from horolog.log.frame import HEADER_BYTES, body_intact, parse
from horolog.log.record import encode_epoch
from horolog.log.recovery import (
    Action,
    CheckpointFound,
    DerivedFound,
    Found,
    LogFound,
    Row,
    decide,
)
from horolog.log.scan import Identity, LogEnd, LogScan
from horolog.log.segment import SegmentReader, SegmentWriter, segment_bases, segment_name
from horolog.storage.api import Storage, read_file


class ShardMeta(NamedTuple):
    """What `meta` says about this data directory."""

    log_id: int
    shard: int
    segment_bytes: int


@dataclass
class Opened:
    """A shard that is ready to serve."""

    broker: Broker
    writer: SegmentWriter
    row: Row  # of the recovery table
    report: list[str] = field(default_factory=list)  # sentences for the operator


class _Facts(NamedTuple):
    bases: list[int]
    hole: str
    checkpoint: Checkpoint | None
    found: CheckpointFound
    derived_exists: bool


def open_shard(
    storage: Storage,
    directory: str,
    meta: ShardMeta,
    settings: Settings,
    *,
    wall_ms: int,
    mono_ms: int,
) -> Opened:
    """Recover and begin a new epoch; refusals are DAMAGED, VERSION_UNSUPPORTED or DIRECTORY_FOREIGN."""
    for part in ("log", "queues", "hours", "runs", "checkpoint"):
        storage.make_dir(f"{directory}/{part}")
    storage.sync_dir(directory)
    storage.sync_dir("")  # the shard's own name
    opening = _Opening(storage, directory, meta, settings, wall_ms, mono_ms)
    return opening.run()


class _Opening:
    def __init__(
        self,
        storage: Storage,
        directory: str,
        meta: ShardMeta,
        settings: Settings,
        wall_ms: int,
        mono_ms: int,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._meta = meta
        self._settings = settings
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self._reader = SegmentReader(storage, f"{directory}/log", meta.segment_bytes)
        self._report: list[str] = []

    def run(self) -> Opened:
        facts = self._gather()
        derived = DerivedFound.NONE if not facts.derived_exists else DerivedFound.LONGER
        if facts.hole:
            self._refuse(self._decide(LogFound.HOLE, False, facts, derived), facts.hole)
        if not facts.bases:
            row = self._decide(LogFound.NONE, False, facts, derived)
            if row.action is Action.REFUSE:
                self._refuse(row, "there are files in the data directory, but no commit log")
            return self._serve(self._new_shard(), 0, 0, -1, row)
        checkpoint = facts.checkpoint
        if checkpoint is not None:
            why = self._reaches(checkpoint, facts)
            if why:
                self._refuse(self._decide(LogFound.SHORT, False, facts, derived), why)
            shard = self._new_shard()
            why = restore(shard, checkpoint, self._wall_ms, self._mono_ms)
            if not why:
                return self._replay(shard, checkpoint, facts, DerivedFound.AS_NAMED)
            shard.close()
            self._report.append(why)
            derived = DerivedFound.BAD
        return self._replay(None, checkpoint, facts, derived)

    # --- facts ----------------------------------------------------------------------------------

    def _gather(self) -> _Facts:
        hole, bases = "", []
        try:
            bases = segment_bases(self._storage, f"{self._directory}/log", self._meta.segment_bytes)
        except HorologError as error:
            hole = error.message
        checkpoint, found = self._newest_checkpoint()
        derived = any(self._storage.list(f"{self._directory}/{d}") for d in ("hours", "queues"))
        return _Facts(bases, hole, checkpoint, found, derived)

    def _newest_checkpoint(self) -> tuple[Checkpoint | None, CheckpointFound]:
        place = f"{self._directory}/checkpoint"
        names = [name for name in self._storage.list(place) if name.endswith(".ckpt")]
        for age, name in enumerate(reversed(names)):
            checkpoint = decode_checkpoint(read_file(self._storage, f"{place}/{name}"))
            if checkpoint is None:
                self._report.append(f"checkpoint {name} is not intact and was passed over")
                continue
            if checkpoint.log_id != self._meta.log_id or checkpoint.shard != self._meta.shard:
                raise HorologError(
                    ErrorCode.DIRECTORY_FOREIGN,
                    f"checkpoint {name} belongs to log {checkpoint.log_id:016x} shard "
                    f"{checkpoint.shard}, this directory to log {self._meta.log_id:016x} shard "
                    f"{self._meta.shard}",
                    field="checkpoint",
                )
            return checkpoint, CheckpointFound.OLDER if age else CheckpointFound.NEWEST
        return None, CheckpointFound.BAD if names else CheckpointFound.NONE

    def _reaches(self, checkpoint: Checkpoint, facts: _Facts) -> str:
        """Why the log does not reach the checkpoint; "" if it does."""
        if checkpoint.last_frame == NO_FRAME:
            return ""
        short = f"the commit log ends before the checkpoint at log position {checkpoint.position}"
        if not facts.bases or facts.bases[-1] + self._meta.segment_bytes < checkpoint.position:
            return short
        header = parse(self._reader.bytes_at(checkpoint.last_frame, HEADER_BYTES))
        if (
            header is None
            or header.base != checkpoint.last_frame
            or header.log_id != self._meta.log_id
            or not body_intact(
                header, self._reader.bytes_at(header.base + HEADER_BYTES, header.length)
            )
        ):
            return f"{short}: its last frame, at {checkpoint.last_frame}, is not there"
        return ""

    def _decide(self, log: LogFound, behind: bool, facts: _Facts, derived: DerivedFound) -> Row:
        from_zero = not facts.bases or facts.bases[0] == 0
        return decide(Found(log, behind, from_zero, facts.found, derived))

    def _refuse(self, row: Row, why: str) -> None:
        code = ErrorCode.DIRECTORY_FOREIGN if row.number == 7 else ErrorCode.DAMAGED
        raise HorologError(
            code,
            f"{self._directory}: {why} (recovery row {row.number}: {row.reason}); nothing was changed",
            field="--data-dir",
        )

    # --- actions --------------------------------------------------------------------------------

    def _new_shard(self) -> Shard:
        log = CommitLog(
            self._storage,
            f"{self._directory}/log",
            log_id=self._meta.log_id,
            shard=self._meta.shard,
            segment_bytes=self._meta.segment_bytes,
        )
        return Shard(self._storage, self._directory, log, self._settings)

    def _replay(
        self,
        shard: Shard | None,
        checkpoint: Checkpoint | None,
        facts: _Facts,
        derived: DerivedFound,
    ) -> Opened:
        """Scan from the checkpoint (or from 0 with an empty shard); look at the whole tail before a change."""
        scan = self._scan(checkpoint if shard else None, checkpoint, facts)
        for _ in scan.frames():
            pass
        log = {
            LogEnd.WHOLE: LogFound.WHOLE,
            LogEnd.TORN: LogFound.TORN,
            LogEnd.DAMAGED: LogFound.DAMAGED,
            LogEnd.FOREIGN: LogFound.FOREIGN,
        }[scan.outcome]
        start = checkpoint.position if checkpoint is not None and shard is not None else 0
        row = self._decide(log, scan.end > start, facts, derived)
        if row.action in (Action.REFUSE, Action.QUARANTINE):
            self._refuse(row, self._bad_frame(scan))
        if row.action is Action.REBUILD:
            self._report.append(f"derived files are rebuilt from the commit log: {row.reason}")
            self._discard_derived(shard)
            shard = self._new_shard()
        assert shard is not None
        self._sweep(shard)
        replay = Replay(shard, self._wall_ms, self._mono_ms)
        used = checkpoint if row.action is not Action.REBUILD else None
        again = self._scan(used, used, facts, judge=False)
        for header, body in again.frames():
            replay.apply(header, body)
        if scan.outcome is LogEnd.TORN:
            self._cut(scan.end, facts.bases)
            self._report.append(f"torn tail cut at log position {scan.end}")
        last = again.last_frame
        if last < 0 and used is not None and used.last_frame != NO_FRAME:
            last = used.last_frame
        epoch = max(again.epoch, checkpoint.epoch if checkpoint else 0)
        return self._serve(shard, again.end, epoch, last, row)

    def _scan(
        self,
        start: Checkpoint | None,
        newest: Checkpoint | None,
        facts: _Facts,
        *,
        judge: bool = True,
    ) -> LogScan:
        return LogScan(
            self._reader,
            Identity(self._meta.log_id, self._meta.shard),
            start=start.position if start else facts.bases[0],
            limit=facts.bases[-1] + self._meta.segment_bytes,
            epoch=start.epoch if start else 0,
            durable=newest.durable if newest else 0,
            judge=judge,
        )

    def _bad_frame(self, scan: LogScan) -> str:
        if scan.outcome is LogEnd.FOREIGN:
            return f"the frame at log position {scan.end} belongs to another log or shard"
        by = "the checkpoint" if scan.stated_by < 0 else f"the frame at {scan.stated_by}"
        return f"the commit log is damaged at log position {scan.end}, which {by} says was durable"

    def _discard_derived(self, shard: Shard | None) -> None:
        if shard is not None:
            shard.close()
        for part in ("hours", "queues", "checkpoint"):
            for name in self._storage.list(f"{self._directory}/{part}"):
                path = f"{self._directory}/{part}/{name}"
                if part == "checkpoint":
                    self._storage.remove(path)
                else:
                    self._storage.remove_dir(path)
            self._storage.sync_dir(f"{self._directory}/{part}")

    def _sweep(self, shard: Shard) -> None:
        """Remove hours that the checkpoint does not name: what they held is filed anew."""
        for hour in shard.delay.on_disk():
            if hour not in shard.delay.hours:
                self._storage.remove_dir(shard.delay.path(hour))

    def _cut(self, end: int, bases: list[int]) -> None:
        self._reader.close()
        size = self._meta.segment_bytes
        for base in bases:
            if base + size <= end:
                continue
            file = self._storage.open(f"{self._directory}/log/{segment_name(base)}")
            try:
                file.truncate(max(0, end - base))
                file.allocate(size)
                file.sync()
            finally:
                file.close()

    def _serve(self, shard: Shard, end: int, epoch: int, last_frame: int, row: Row) -> Opened:
        """Sync what was read, begin a new epoch durably, and give the broker."""
        self._reader.close()
        writer = SegmentWriter(self._storage, f"{self._directory}/log", self._meta.segment_bytes)
        for base in range(end - end % self._meta.segment_bytes, -1, -self._meta.segment_bytes):
            if base + self._meta.segment_bytes <= shard.checkpoint_position:
                break  # a process that was killed may have left frames that were never synced
            if self._storage.exists(f"{self._directory}/log/{segment_name(base)}"):
                file = self._storage.open(f"{self._directory}/log/{segment_name(base)}")
                file.sync()
                file.close()
        log = shard.log
        log.resume(end=end, epoch=epoch + 1, last_frame=last_frame)
        shard.ready.epoch = log.epoch
        shard.applied = end
        log.append(encode_epoch(), 1, self._wall_ms)
        writer.write(log.take_writes())
        writer.sync()
        writer.prepare_next()
        log.commit_position = log.durable_position = log.end
        self._report.append(f"recovery row {row.number}: {row.reason}; epoch {log.epoch}")
        return Opened(Broker(shard), writer, row, self._report)
