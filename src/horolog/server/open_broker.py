"""Open a data directory: its lock, its `meta` file, and the shard in it.

`meta` is JSON, written once: format version, log id, shards, clock kind, segment bytes.  A later
start cannot change these (cluster settings, not node settings).
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import Literal

from horolog.broker.adopt.staging import ShardFiles
from horolog.broker.life.opening import Opened, ShardMeta, open_shard
from horolog.broker.life.salvaged_meta import repair_meta
from horolog.broker.life.unreadable import replace_unreadable
from horolog.broker.settings import ShardSettings
from horolog.calendar.rules import Zones
from horolog.clock import Clock, SimulatedClock, SystemClock
from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.serve.offloads import Offloads
from horolog.limits import SEGMENT_BYTES
from horolog.server.adoptions import Adoptions
from horolog.server.backups import Backups, Source
from horolog.server.group_commit import Flush
from horolog.server.loop import Engine
from horolog.server.simulated_time import clock_was
from horolog.storage.api import Storage, read_file, replace_file
from horolog.storage.crash_note import BUS_ERROR, LAST_NAME, NAME, CrashNote
from horolog.storage.disk import Disk
from horolog.storage.lock import DirectoryLock
from horolog.storage.meta import (
    FORMAT,
    META,
    RESTORING,
    SHARD,
    Meta,
    check_format,
    encode_meta,
    parse_meta,
)

_OWN_NAMES = ("lock", "meta.tmp", NAME, LAST_NAME, SHARD)  # may be there before `meta` is
_NO_DIRECTORY_SYNC = (
    "%s is on a file system that can sync no directory: a power cut of the machine that has the "
    "disk may take away the names of new files, and what is in them"
)
_log = logging.getLogger("horolog.server")
ClockKind = Literal["system", "simulated"]
_META_IS_WRONG = (  # errors of a start that a flipped bit in `meta` may cause
    ErrorCode.DIRECTORY_FOREIGN,
    ErrorCode.CLOCK_MISMATCH,
    ErrorCode.VERSION_UNSUPPORTED,
    ErrorCode.DAMAGED,
)


def open_meta(storage: Storage, clock: ClockKind, segment_bytes: int = SEGMENT_BYTES) -> Meta:
    """Read `meta`, or write it into an empty directory.

    Raise VERSION_UNSUPPORTED, CLOCK_MISMATCH or DIRECTORY_FOREIGN.
    """
    try:
        meta = parse_meta(read_file(storage, META))
    except FileNotFoundError:
        return _new_meta(storage, clock, segment_bytes)
    except ValueError as error:
        raise refused(
            "--data-dir",
            f"meta is not one of horolog's ({error}); `horolog salvage` writes a damaged one again",
            code=ErrorCode.DIRECTORY_FOREIGN,
        ) from error
    check_format(meta, "--data-dir")
    if meta.clock != clock:
        raise refused(
            "--clock",
            f"this data directory was made with the {meta.clock} clock; {clock} is refused",
            code=ErrorCode.CLOCK_MISMATCH,
        )
    if not storage.exists(f"{SHARD}/log"):
        raise refused(
            "--data-dir",
            f"there is meta, but no {SHARD}/log, which is made before it: is its disk mounted, and was all "
            "of the directory copied? For a new broker name an empty or new directory",
            code=ErrorCode.DAMAGED,
        )
    return meta


def _new_meta(storage: Storage, clock: ClockKind, segment_bytes: int) -> Meta:
    strange = [name for name in storage.list("") if name not in _OWN_NAMES]
    if RESTORING in strange:
        raise refused(
            "--data-dir",
            "a restore into it was interrupted; empty it, or name an empty or new one, and run "
            "`horolog restore` again",
            code=ErrorCode.DIRECTORY_FOREIGN,
        )
    has_log = bool(storage.list(f"{SHARD}/log"))
    if strange or has_log:
        do = "; `horolog salvage` writes a meta that was lost again" if has_log else ""
        raise refused(
            "--data-dir",
            f"not empty and without meta (found {(strange or [SHARD])[0]!r}){do}",
            code=ErrorCode.DIRECTORY_FOREIGN,
        )
    meta = Meta(FORMAT, secrets.randbits(64), 1, clock, segment_bytes)
    storage.make_dir(f"{SHARD}/log")  # first: a directory with `meta` and without it has lost it
    storage.sync_dir(SHARD)
    storage.sync_dir("")
    replace_file(storage, "", META, encode_meta(meta))
    return meta


async def open_engine(
    data_dir: Path,
    *,
    clock: ClockKind = "system",
    flush: Flush = "sync",
    settings: ShardSettings | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    start_ms: int | None = None,
    note: CrashNote | None = None,
) -> Engine:
    """Open or create a data directory and start its engine; `await engine.stop()` when done.

    segment_bytes  only for a new directory
    start_ms       wall time at which a simulated clock begins; by default it goes on where it was,
                   but never before the system's now at the first start
    note           of a process of its own: tells how the last process ended, and records a signal
                   that ends this one
    """
    lock = DirectoryLock(data_dir)
    try:
        storage = Disk(data_dir, check=lock.check)
        report = _how_it_ended(storage, note)
        try:
            found = _open(storage, clock, segment_bytes, start_ms, settings, report)
        except HorologError as error:
            if error.code not in _META_IS_WRONG or not repair_meta(storage, SHARD):
                raise
            report.append("meta: a flipped bit was put right, as the log says what was in it")
            found = _open(storage, clock, segment_bytes, start_ms, settings, report)
        meta, now, opened = found
        opened.report += report
        if not storage.syncs_directories:
            # `open_shard` has synced the directory, so the answer is known.
            _log.warning(_NO_DIRECTORY_SYNC, data_dir)
        if isinstance(now, SimulatedClock) and start_ms is None:
            # A broker killed while its clock was moved was further than the clock file says.
            now.step_wall(max(0, opened.broker.shard.store_ms - now.wall_ms()))
        engine = Engine(opened, storage, now, flush)
        _add_makers(engine, Source(storage, data_dir, SHARD, meta.log_id, meta.segment_bytes))
        if note is not None:
            engine.on_close(note.end)
        engine.on_close(lock.release)
        await engine.start()
    except BaseException:
        if note is not None:
            note.end()
        lock.release()
        raise
    return engine


def _open(
    storage: Storage,
    clock: ClockKind,
    segment_bytes: int,
    start_ms: int | None,
    settings: ShardSettings | None,
    report: list[str],
) -> tuple[Meta, Clock, Opened]:
    meta = open_meta(storage, clock, segment_bytes)
    now: Clock = SystemClock()
    if clock == "simulated":
        # Before the shard is read: the rest of a lease is counted by this clock.
        begin_ms = max(SystemClock().wall_ms(), clock_was(storage, report))
        now = SimulatedClock(begin_ms if start_ms is None else start_ms)
    opened = open_shard(
        storage,
        SHARD,
        ShardMeta(meta.log_id, 0, meta.segment_bytes),
        (settings or ShardSettings())._replace(calendar=Zones()),
        wall_ms=now.wall_ms(),
        mono_ms=now.monotonic_ms(),
    )
    return meta, now, opened


def _add_makers(engine: Engine, source: Source) -> None:
    """Add the parts that make or adopt files of a data directory: backups, offloads, adoptions."""
    engine.backups = Backups(engine, source)
    engine.offloads = Offloads(engine, engine.broker.shard.tier, source.data_dir)
    place = ShardFiles(source.storage, source.shard, source.log_id)
    engine.adoptions = Adoptions(engine, place, source.data_dir, source.segment_bytes)


def _how_it_ended(storage: Storage, note: CrashNote | None) -> list[str]:
    """Report the signal that ended the last process; after a bus error replace unreadable files."""
    said = note.begin() if note is not None else ""
    if not said:
        return []
    report = [f"a signal ended the last process: {said} ({LAST_NAME} has where)"]
    if BUS_ERROR in said:
        report += replace_unreadable(storage, SHARD)
    return report
