"""Making and restoring backups in one process, for the tests of both."""

from __future__ import annotations

import asyncio
from pathlib import Path

from horolog.backup.copying import Progress
from horolog.backup.manifest import Manifest
from horolog.backup.restoring import Restore, lock_target, open_backup
from horolog.backup.status import BackupState, BackupView
from horolog.server.loop import Engine
from horolog.storage.disk import Disk


async def back_up(engine: Engine, directory: Path, *, full: bool = False) -> BackupView:
    """Make a backup and wait until it has ended."""
    assert engine.backups is not None
    await engine.backups.begin(str(directory), full=full)
    while (view := engine.backups.view()).state is BackupState.RUNNING:
        await asyncio.sleep(0)
    return view


def restore(backup: Path, data_dir: Path) -> Manifest:
    """As `horolog restore`."""
    manifest, backup_lock = open_backup(backup)
    lock = lock_target(data_dir)
    try:
        Restore(Disk(backup, read_only=True), Disk(data_dir), manifest, Progress()).run()
    finally:
        lock.release()
        if backup_lock is not None:
            backup_lock.release()
    return manifest
