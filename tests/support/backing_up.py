"""Backups made and restored in one process, for the tests of both."""

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


def restore(backup: Path, data_dir: Path, damage: list[str] | None = None) -> Manifest:
    """Restore as `horolog restore` does; with `damage`, accept damage and collect its description."""
    manifest, backup_lock = open_backup(backup, accepts_damage=damage is not None)
    lock = lock_target(data_dir)
    source, target = Disk(backup, read_only=True), Disk(data_dir)
    try:
        restoring = Restore(source, target, manifest, Progress(), accepts_damage=damage is not None)
        restoring.run()
    finally:
        lock.release()
        if backup_lock is not None:
            backup_lock.release()
    if damage is not None:
        damage += restoring.damage
    return manifest
