"""Make backups of the running broker.

    lock the backup directory → pin (no file is removed from here on) → take a checkpoint → in a
    thread: copy the files that it names → unpin

The core goes on meanwhile.  Later checkpoints are taken, and the files that they would have removed
are removed by the first checkpoint after the backup.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import NamedTuple, Protocol

from horolog import __version__
from horolog.backup.copying import Cancelled, Copy, Progress, frame_at, header_crc, same_history
from horolog.backup.directory import BackupDirectory, open_backup_directory
from horolog.backup.manifest import UNREADABLE, Damaged, Manifest
from horolog.backup.status import BackupState, BackupView
from horolog.broker.life.named_files import NamedFile, named_files
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, refused
from horolog.log.checkpoint import Checkpoint, checkpoint_name, decode_checkpoint
from horolog.log.segment import SegmentReader
from horolog.server.remoting.kv_table import FILE as KV_FILE
from horolog.server.threads import in_pool, in_thread
from horolog.storage.api import Storage, read_file
from horolog.storage.meta import META

_log = logging.getLogger("horolog.backup")
ROOT_FILES = (META, "clock", KV_FILE)  # of the data directory, beside its shard


class Source(NamedTuple):
    """The data directory of the running broker."""

    storage: Storage
    data_dir: Path
    shard: str
    log_id: int
    segment_bytes: int


class Pinning(Protocol):
    """The methods of the engine that a backup uses."""

    clock: Clock

    def pin(self) -> None:
        """Keep every file that a checkpoint names until `unpin`."""
        ...

    def unpin(self) -> None:
        """Let checkpoints remove files again."""
        ...

    async def checkpoint(self) -> int:
        """Take a checkpoint of all commands answered; return its position when it is durable."""
        ...


class Backups:
    """Makes one backup at a time.  Belongs to the event loop's thread, except the copying."""

    def __init__(self, engine: Pinning, source: Source) -> None:
        self._engine = engine
        self._source = source
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._opening = False
        self._progress = Progress()
        self._view = BackupView()

    def view(self) -> BackupView:
        """Return the state of the newest backup of this process."""
        progress = self._progress
        return self._view._replace(
            files=progress.files,
            files_done=progress.files_done,
            bytes=progress.bytes,
            bytes_done=progress.bytes_done,
            copied_files=progress.copied_files,
            copied_bytes=progress.copied_bytes,
        )

    async def begin(self, directory: str, *, full: bool = False) -> BackupView:
        """Start a backup into a directory of this machine; `view` returns its progress.

        full  copy everything again, also files that the directory has already

        Raise TOO_MANY_REQUESTS while another backup runs, or an error of `open_backup_directory`.
        """
        if self._opening or (self._task is not None and not self._task.done()):
            raise refused(
                "backup",
                f"one into {self._view.directory or directory} is under way",
                "1 at a time",
                code=ErrorCode.TOO_MANY_REQUESTS,
            )
        self._opening = True
        try:
            place = await in_pool(
                open_backup_directory, directory, self._source.data_dir, self._source.log_id
            )
        finally:
            self._opening = False
        self._stop.clear()
        self._progress = Progress()
        self._view = BackupView(
            BackupState.RUNNING, str(place.directory), number=place.former.number + 1
        )
        self._task = asyncio.create_task(self._run(place, full=full))
        return self.view()

    async def close(self) -> None:
        """End a backup that runs; the backup before it stays valid."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self, place: BackupDirectory, *, full: bool) -> None:
        _log.info("backup begins directory=%s number=%d", place.directory, self._view.number)
        self._engine.pin()
        # If nothing was logged since the last checkpoint, that one is used, and is up to date.
        begun_ms = self._engine.clock.wall_ms()
        try:
            position = await self._engine.checkpoint()
            made = await in_thread(
                "horolog-backup", lambda: self._copy(place, position, begun_ms, full)
            )
        except HorologError as error:
            self._fail(error)
        except Cancelled:
            self._fail(HorologError(ErrorCode.INTERNAL, "backup: the broker was stopped"))
        except Exception as error:  # noqa: BLE001 - a backup must not end the broker
            _log.error("backup failed", exc_info=error)
            self._fail(HorologError(ErrorCode.INTERNAL, f"backup: {type(error).__name__}: {error}"))
        else:
            self._view = self._view._replace(
                state=BackupState.DONE,
                position=made.position,
                made_ms=made.made_ms,
                damaged=tuple(each.text for each in made.damaged),
            )
            for damage in self._view.damaged:
                _log.error("backup copied damage directory=%s %s", place.directory, damage)
            _log.info(
                "backup done directory=%s number=%d position=%d copied_bytes=%d",
                place.directory, made.number, made.position, self._progress.copied_bytes,
            )  # fmt: skip
        finally:
            self._engine.unpin()
            place.lock.release()

    def _fail(self, error: HorologError) -> None:
        self._view = self._view._replace(state=BackupState.FAILED, error=error)
        _log.error("backup failed directory=%s %s", self._view.directory, error)

    # --- in the thread ----------------------------------------------------------------------------

    def _copy(self, place: BackupDirectory, position: int, begun_ms: int, full: bool) -> Manifest:
        storage, shard = self._source.storage, self._source.shard
        path = f"{shard}/checkpoint/{checkpoint_name(position)}"
        checkpoint = decode_checkpoint(read_file(storage, path))
        if checkpoint is None:
            raise HorologError(ErrorCode.DAMAGED, f"{path} is not intact", field=path)
        made_ms = max(int(checkpoint.registry["wall_ms"]), begun_ms)
        self._view = self._view._replace(position=position, made_ms=made_ms)
        log = SegmentReader(storage, f"{shard}/log", self._source.segment_bytes)
        try:
            manifest = self._manifest(log, checkpoint, made_ms)
            reuse = not full and same_history(log, place.former)
        finally:
            log.close()
        named = [
            *(NamedFile(name, None, rebuilt=name != META) for name in ROOT_FILES),
            *named_files(storage, shard, self._source.segment_bytes, checkpoint),
        ]
        copy = Copy(
            storage,
            place.disk,
            place.former,
            segment_bytes=self._source.segment_bytes,
            reuse=reuse,
            progress=self._progress,
            stopped=self._stop.is_set,
        )
        return copy.run(named, manifest)

    def _manifest(self, log: SegmentReader, checkpoint: Checkpoint, made_ms: int) -> Manifest:
        header = frame_at(log, checkpoint.last_frame)
        crc = 0  # without a header: the next backup copies everything again
        damaged = []
        if header is not None:
            crc = header_crc(log, header)
        else:
            what = "the frame where the checkpoint ends has no intact header"
            place = f"{self._source.shard}/log"
            damaged.append(Damaged(place, UNREADABLE, checkpoint.last_frame, what))
        return Manifest(
            0,
            self._source.log_id,
            __version__,
            made_ms,
            checkpoint.position,
            checkpoint.last_frame,
            crc,
            [],
            damaged,
        )
