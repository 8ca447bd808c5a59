"""Open a shard: gather the facts, ask the recovery table, and carry out its answer.

`open_shard` returns a broker that has replayed all and durably begun a new epoch; it can serve at
once.  Nothing is changed before the whole tail of the log is read and the table has answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.broker.adopt.adoptions import committed
from horolog.broker.adopt.staging import ShardFiles, sweep_moved, sweep_staging
from horolog.broker.broker import Broker
from horolog.broker.consume.queued import unreadable_key
from horolog.broker.life import quarantine, retention
from horolog.broker.life.after_salvage import given_up_before
from horolog.broker.life.early_end import early_end
from horolog.broker.life.facts import Facts, ShardMeta, gather, why_not_reached
from horolog.broker.life.flipped_states import repair_states
from horolog.broker.life.key_restore import restore_keys
from horolog.broker.life.log_tail import cut_log, secure_log
from horolog.broker.life.refusals import refusal, why_refused
from horolog.broker.life.repair import repair
from horolog.broker.life.replay import Replay
from horolog.broker.life.restore import restore
from horolog.broker.life.sweeping import discard_derived, remove_newer, sweep_unnamed
from horolog.broker.settings import ShardSettings
from horolog.broker.shard import Shard
from horolog.delay.damage import Damaged
from horolog.delay.far.names import named_files
from horolog.errors import Problem
from horolog.log.checkpoint import NO_FRAME, Checkpoint
from horolog.log.commit_log import CommitLog
from horolog.log.control_records import encode_epoch
from horolog.log.recovery import Action, DerivedFound, Found, LogFound, Row, decide
from horolog.log.scan import Identity, LogEnd, LogScan, SalvageScan
from horolog.log.segment import (
    SegmentReader,
    SegmentWriter,
    bases_on_disk,
    check_access,
)
from horolog.storage.api import Storage

__all__ = ["Opened", "ShardMeta", "open_shard"]

_LOG_FOUND = {
    LogEnd.WHOLE: LogFound.WHOLE,
    LogEnd.TORN: LogFound.TORN,
    LogEnd.DAMAGED: LogFound.DAMAGED,
    LogEnd.FOREIGN: LogFound.FOREIGN,
}


@dataclass
class Opened:
    """A shard that is ready to serve."""

    broker: Broker
    writer: SegmentWriter
    report: list[str] = field(default_factory=list)  # sentences for the operator


class _Chosen(NamedTuple):
    """The checkpoint to go on from, and the shard restored from it, without damaged parts."""

    checkpoint: Checkpoint | None
    shard: Shard | None
    damaged: list[Damaged]
    derived: DerivedFound


def open_shard(
    storage: Storage,
    directory: str,
    meta: ShardMeta,
    settings: ShardSettings,
    *,
    wall_ms: int,
    mono_ms: int,
) -> Opened:
    """Recover and begin a new epoch; raise DAMAGED, VERSION_UNSUPPORTED or DIRECTORY_FOREIGN."""
    for part in ("log", "queues", "hours", "runs", "keys", "checkpoint", "staging"):
        storage.make_dir(f"{directory}/{part}")
    storage.sync_dir(directory)
    storage.sync_dir("")  # the entry of the shard's directory
    opening = _Opening(storage, directory, meta, settings, wall_ms, mono_ms)
    return opening.run()


class _Opening:
    def __init__(
        self,
        storage: Storage,
        directory: str,
        meta: ShardMeta,
        settings: ShardSettings,
        wall_ms: int,
        mono_ms: int,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._log = f"{directory}/log"
        self._meta = meta
        self._settings = settings
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self._identity = Identity(meta.log_id, meta.shard)
        self._reader = SegmentReader(storage, self._log, meta.segment_bytes)
        self._report: list[str] = []
        self._is_rotten_below = False  # the log cannot rebuild what is below the checkpoint
        self._notes = quarantine.read_notes(storage, directory)

    def run(self) -> Opened:
        facts = gather(self._storage, self._directory, self._meta, self._report)
        derived = DerivedFound.LONGER if facts.derived else DerivedFound.NONE
        if facts.hole:
            row = self._decide(LogFound.HOLE, False, facts, derived)
            raise refusal(self._directory, row, facts.hole)
        if not facts.bases:
            row = self._decide(LogFound.NONE, False, facts, derived)
            if row.action is Action.REFUSE:
                why = "there are files in the data directory, but no commit log"
                raise refusal(self._directory, row, why, has_log=False)
            return self._serve(self._new_shard(), 0, 0, -1, 0, row)
        check_access(self._storage, self._log, facts.bases)
        if not facts.checkpoints:
            return self._recover(_Chosen(None, None, [], derived), facts)
        why = why_not_reached(facts.checkpoints[0], facts, self._reader, self._meta.log_id)
        if why:
            row = self._decide(LogFound.SHORT, False, facts, derived)
            raise refusal(self._directory, row, why)
        return self._recover(self._choose(facts), facts)

    # --- choosing -------------------------------------------------------------------------------

    def _new_shard(self) -> Shard:
        log = CommitLog(
            self._storage,
            self._log,
            log_id=self._meta.log_id,
            shard=self._meta.shard,
            segment_bytes=self._meta.segment_bytes,
        )
        return Shard(self._storage, self._directory, log, self._settings)

    def _restored(self, checkpoint: Checkpoint, *, tolerant: bool = False) -> _Chosen:
        shard = self._new_shard()
        if tolerant:
            # Damage is searched for in the log, all of which is durable below a checkpoint.
            shard.log.start = retention.start_of(checkpoint) or 0
            shard.log.resume(end=checkpoint.position, epoch=checkpoint.epoch, last_frame=-1)
        aside = {n for note in self._notes if note.covers(checkpoint.position) for n in note.names}
        damaged = restore(
            shard, checkpoint, self._wall_ms, self._mono_ms, aside=aside, tolerant=tolerant
        )
        derived = DerivedFound.BAD if damaged else DerivedFound.AS_NAMED
        return _Chosen(checkpoint, shard, damaged, derived)

    def _choose(self, facts: Facts) -> _Chosen:
        """Choose the newest checkpoint, or, if damaged and the log is cut, an older intact one."""
        newest = self._restored(facts.checkpoints[0])
        self._report += [bad.why for bad in newest.damaged]
        if not newest.damaged or facts.bases[0] == 0:
            return newest
        log_begins = bases_on_disk(self._storage, self._log)[0]
        for older in facts.checkpoints[1:]:
            start = retention.start_of(older) or 0
            if start - start % self._meta.segment_bytes < log_begins:
                continue  # an older copy: those that are kept have their log
            if not why_not_reached(older, facts, self._reader, self._meta.log_id):
                other = self._restored(older)
                assert other.shard is not None
                if not other.damaged:
                    _close(newest.shard)
                    return other._replace(derived=DerivedFound.OLDER)
                other.shard.close()
        return newest

    def _decide(self, log: LogFound, has_tail: bool, facts: Facts, derived: DerivedFound) -> Row:
        from_zero = not facts.bases or (facts.bases[0] == 0 and not self._is_rotten_below)
        return decide(Found(log, has_tail, from_zero, facts.found, derived))

    # --- actions --------------------------------------------------------------------------------

    def _recover(self, chosen: _Chosen, facts: Facts) -> Opened:
        """Scan the whole tail, ask the table, and carry out its answer."""
        scan, used = self._scan_tail(chosen, facts)
        has_tail = scan.end > (used.position if used else 0)
        row = self._decide(_LOG_FOUND[scan.outcome], has_tail, facts, chosen.derived)
        if row.action is Action.REFUSE:
            raise refusal(self._directory, row, why_refused(row, scan, facts.bases[0]))
        for flipped in scan.flipped:
            self._reader.write_back(flipped.pieces)
        lost = early_end(self._storage, self._directory, self._meta.log_id, scan.end, self._wall_ms)
        shard = self._prepare(row, chosen, facts)
        shard.problems += lost
        shard.log.repairs.extend(each.repair for each in scan.flipped)
        self._report += restore_keys(shard, used, facts.bases[0], self._reader, self._identity)
        # A replay that meets damaged entries rebuilds them from the log, the tail included.
        shard.log.end = shard.log.commit_position = scan.end
        replay = Replay(shard, self._wall_ms, self._mono_ms)
        again = self._scan(used, facts, judge=False)
        for header, body in again.frames():
            replay.apply(header, body)
        self._sweep_adoptions(shard)
        if scan.outcome is LogEnd.TORN:
            cut_log(self._storage, self._log, self._meta.segment_bytes, scan.end, facts.bases)
            self._report.append(f"torn tail cut at log position {scan.end}")
        last = again.last_frame
        if last < 0 and used is not None and used.last_frame != NO_FRAME:
            last = used.last_frame
        epoch = max([again.epoch, *(checkpoint.epoch for checkpoint in facts.checkpoints)])
        known = max(scan.stated, used.position if used else 0)
        return self._serve(shard, again.end, epoch, last, known, row)

    def _scan_tail(self, chosen: _Chosen, facts: Facts) -> tuple[LogScan, Checkpoint | None]:
        """Scan to the end of the log; return the scan and the checkpoint it began at (None: 0).

        Bad files are rebuilt from the whole log if it begins at 0 and is readable.  If the log is
        damaged below the checkpoint too, its rest repairs all it can, as if its start were dropped.
        """
        used = None if chosen.damaged and facts.bases[0] == 0 else chosen.checkpoint
        scan = self._scan(used, facts)
        for _ in scan.frames():
            pass
        if used is not None or chosen.checkpoint is None:
            return scan, used
        is_below = scan.end < chosen.checkpoint.position
        if scan.outcome is not LogEnd.DAMAGED or not is_below:
            return scan, None
        self._is_rotten_below = True
        self._report.append(f"the commit log is damaged at log position {scan.end} as well")
        return self._scan_tail(chosen._replace(damaged=[]), facts)

    def _prepare(self, row: Row, chosen: _Chosen, facts: Facts) -> Shard:
        """Return a shard in the state of the used checkpoint, its files cut and repaired."""
        shard, used = chosen.shard, chosen.checkpoint
        if row.action is Action.REBUILD:
            self._report.append(f"derived files are rebuilt from the commit log: {row.reason}")
            _close(shard)
            discard_derived(self._storage, self._directory)
            return self._new_shard()
        assert shard is not None
        assert used is not None
        if row.action is Action.QUARANTINE:
            shard.close()
            repairs = repair_states(self._storage, self._directory, used, shard.delay.far.tier)
            tolerated = self._restored(used, tolerant=True)
            assert tolerated.shard is not None
            shard = tolerated.shard
            shard.delay.repairs += repairs
            self._set_aside(tolerated.damaged, used.position)
            shard.delay.cut()
            start = retention.start_of(used) or 0
            scan = SalvageScan(self._reader, self._identity, start=start, stop=used.position)
            tail = self._scan(used, facts, judge=False)
            self._notes, lost = repair(shard, tolerated.damaged, self._notes, used, scan, tail)
            self._report += lost
        else:
            remove_newer(self._storage, self._directory, used)
            shard.delay.cut()
        shard.delay.quarantined = [(note.first_hour, note.last_hour) for note in self._notes]
        shard.problems += [note.problem() for note in self._notes if note.lost]
        sweep_unnamed(shard, self._valid_checkpoints())
        return shard

    def _set_aside(self, damaged: list[Damaged], position: int) -> None:
        for bad in damaged:
            if bad.part in quarantine.PARTS and not quarantine.is_known(self._notes, bad, position):
                note = quarantine.set_aside(self._storage, self._directory, bad, position)
                self._notes.append(note)
                self._report.append(f"{bad.label}: set aside as {note.place}")

    def _scan(self, start: Checkpoint | None, facts: Facts, *, judge: bool = True) -> LogScan:
        return LogScan(
            self._reader,
            self._identity,
            start=start.position if start else facts.bases[0],
            limit=facts.bases[-1] + self._meta.segment_bytes,
            epoch=start.epoch if start else 0,
            # The job of a checkpoint syncs the log up to its position, whatever the flush policy.
            durable=facts.synced,
            judge=judge,
        )

    def _valid_checkpoints(self) -> list[Checkpoint]:
        return gather(self._storage, self._directory, self._meta, []).checkpoints

    def _sweep_adoptions(self, shard: Shard) -> None:
        """Remove staged files, set damaged ones aside: all committed adoptions are known now."""
        place = ShardFiles(self._storage, self._directory, self._meta.log_id)
        swept = sweep_staging(
            place, self._wall_ms, lambda app, version: version <= committed(shard, app)
        )
        self._report += [f"staged transaction {token} is swept" for token in swept]
        named = {f"{name}.run" for name in shard.delay.far.runs}
        for kept in self._valid_checkpoints():
            named |= named_files(kept.registry.get("far", {}))
        for gone in shard.delay.far.missing:
            if gone.left:
                damaged = gone.damaged()
                named |= set(damaged.names)
                self._set_aside([damaged], gone.position)
                text = f"{gone.why}; {gone.left} of its messages wait and cannot be handed over"
                self._report.append(text)
                names = damaged.names
                note = next(n for n in reversed(self._notes) if n.names == names)
                shard.problems.append(Problem(text, note.place, note.place))
        shard.delay.far.missing.clear()
        sweep_moved(place, named)

    def _serve(
        self, shard: Shard, end: int, epoch: int, last_frame: int, known: int, row: Row
    ) -> Opened:
        """Make durable what was read, begin a new epoch durably, and return the broker."""
        shard.problems += given_up_before(shard, self._reader)
        secure_log(self._storage, self._log, self._meta.segment_bytes, known, end)
        self._reader.close()
        writer = SegmentWriter(self._storage, self._log, self._meta.segment_bytes)
        log = shard.log
        log.resume(end=end, epoch=epoch + 1, last_frame=last_frame)
        shard.ready.epoch = log.epoch
        for topic, queue_id, _ in shard.topics.all_queues():  # their files are whole now
            shard.problems.remove(unreadable_key(topic.id, queue_id))
        shard.applied = end
        log.append(encode_epoch(), 1, self._wall_ms)
        writer.write(log.take_writes())
        writer.sync()
        writer.prepare_next()
        log.commit_position = log.durable_position = log.end
        self._report.append(f"recovery row {row.number}: {row.reason}; epoch {log.epoch}")
        return Opened(Broker(shard, self._mono_ms), writer, self._report)


def _close(shard: Shard | None) -> None:
    if shard is not None:
        shard.close()
