"""`horolog restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import AsJson
from horolog.cli.output import print_json
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.backup.copying import Progress
    from horolog.backup.manifest import Manifest


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of a backup.")],
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="New data directory; must be missing or empty.")
    ],
    accept_damage: Annotated[
        bool,
        typer.Option("--accept-damage", help="Copy damaged files too, and name them; exit code 6."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a data directory from a backup, checking every byte; then run `horolog serve` on it.

    No broker is needed. A damaged backup is refused, and nothing is left in DIR, unless damage is
    accepted: the broker repairs what it can at its start, and names the rest. Messages that were
    handed over after the backup was made are pending in the backup, and are handed over again.

    Example:
      horolog restore /var/backups/horolog --data-dir /var/lib/horolog
    """
    from horolog.cli.progress import size_text
    from horolog.places import local_place
    from horolog.units import format_time_ms

    backup = Path(local_place(backup, "BACKUP"))
    data_dir = Path(local_place(data_dir, "--data-dir"))
    manifest, done, damage = _copy(backup, data_dir, accepts_damage=accept_damage, quiet=as_json)
    known = [each.text for each in manifest.damaged]
    if as_json:
        print_json(
            {
                "backup": str(backup),
                "data_dir": str(data_dir),
                "number": manifest.number,
                "position": manifest.position,
                "made_ms": manifest.made_ms,
                "files": done.files_done,
                "bytes": done.bytes_done,
                "damaged": [*known, *damage],
            }
        )
    else:
        typer.echo(
            f"restored backup {manifest.number} into {data_dir}: "
            f"{counted(done.files_done, 'file')}, {size_text(done.bytes_done)}, as of "
            f"{format_time_ms(manifest.made_ms)}"
        )
        _print_damage("damaged already when it was backed up", known)
        _print_damage("damaged in the backup", damage)
    raise typer.Exit(_exit_of(damage))


def _copy(
    backup: Path, data_dir: Path, *, accepts_damage: bool, quiet: bool
) -> tuple[Manifest, Progress, list[str]]:
    """Copy a backup; return its manifest, what was copied, and the damage found meanwhile."""
    from horolog.backup.copying import Progress
    from horolog.backup.restoring import Restore, lock_target, open_backup
    from horolog.cli.progress import progress
    from horolog.storage.disk import Disk

    manifest, backup_lock = open_backup(backup, accepts_damage=accepts_damage)
    try:
        lock = lock_target(data_dir)
        try:
            done = Progress()
            with progress("restoring", quiet=quiet) as report:
                restoring = Restore(
                    Disk(backup, read_only=True),
                    Disk(data_dir),
                    manifest,
                    done,
                    lambda: report(f"{done.files_done}/{done.files}", done.bytes_done, done.bytes),
                    accepts_damage=accepts_damage,
                )
                restoring.run()
        finally:
            lock.release()
    finally:
        if backup_lock is not None:
            backup_lock.release()
    return manifest, done, restoring.damage


def _print_damage(what: str, damage: list[str]) -> None:
    for each in damage:
        typer.echo(f"{what}: {each}", err=True)


def _exit_of(damage: list[str]) -> Exit:
    return Exit.FAULTS if damage else Exit.OK
