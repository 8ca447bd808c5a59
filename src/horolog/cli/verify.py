"""`horolog verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import AsJson
from horolog.cli.output import print_json, print_table
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.verify.directory import Verdict


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip messages that a start does not read either.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Verify a data directory offline: every checksum and every cross-reference.

    Nothing is changed; the broker must be stopped. Parts that a start would cut off or rebuild are
    notes, all other faults are findings. Exit code 0: clean; 1: findings; 3: no data directory;
    4: in use.

    Examples:
      horolog verify /var/lib/horolog
      horolog verify /var/lib/horolog --quick --json
    """
    from horolog.cli.progress import progress
    from horolog.storage.disk import Disk
    from horolog.verify.directory import verify_directory
    from horolog.verify.offline import lock_directory

    lock = lock_directory(directory)
    try:
        with progress("verifying", quiet=as_json) as report:
            verdict = verify_directory(Disk(directory, read_only=True), quick=quick, report=report)
    finally:
        if lock is not None:
            lock.release()
    if as_json:
        print_json({"directory": str(directory), **verdict.as_json()})
    else:
        _show(directory, verdict)
    return Exit.OK if verdict.clean else Exit.FAILURE


def _show(directory: Path, verdict: Verdict) -> None:
    from horolog.cli.progress import size_text

    findings = verdict.findings
    if findings.kept:
        print_table(("FILE", "POSITION", "FINDING"), findings.kept)
    if findings.count > len(findings.kept):
        typer.echo(f"… and {findings.count - len(findings.kept)} more")
    for note in findings.notes:
        typer.echo(f"note: {note}")
    read = (
        ""  # counts that --quick has not made are not shown as 0
        if verdict.quick
        else f", {counted(verdict.records, 'record')}, {verdict.scheduled:,} scheduled"
    )
    what = "clean" if verdict.clean else counted(findings.count, "finding")
    typer.echo(
        f"{directory}: {what}; {size_text(verdict.bytes)}, log {verdict.log_start} to"
        f" {verdict.log_end}, {counted(verdict.frames, 'frame')}{read}"
    )
