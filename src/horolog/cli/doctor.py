"""`horolog doctor`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson
from horolog.cli.output import print_json, printable

if TYPE_CHECKING:
    from horolog.cli.checkup.check import Check

_TIMEOUT_S = 5.0
_WIDTH = 100
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "wrong": "red"}


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Check the data directory of a stopped broker instead."),
    ] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Say what is wrong with a broker, and what to do about it.

    A running broker is checked for health, problems, clock, lateness, disk, groups and dead letters;
    on this machine also for open files and for ports that other machines can reach. With --data-dir
    the directory of a stopped broker is verified quickly. Nothing is changed. Exit code 0: all is
    well, or there are only notes; 1: there is something to do.

    Examples:
      horolog doctor
      horolog doctor --json
      horolog doctor --data-dir /var/lib/horolog
    """
    from horolog.cli.checkup.check import is_well

    checks = _running(admin) if data_dir is None else _stopped(data_dir, quiet=as_json)
    well = is_well(checks)
    if as_json:
        print_json({"well": well, "checks": [check.as_json() for check in checks]})
    else:
        _show(checks)
        typer.echo("all is well" if well else "there is something to do")
    return Exit.OK if well else Exit.FAILURE


def _running(admin: str) -> list[Check]:
    from horolog.admin.client import AdminClient
    from horolog.cli.checkup.running import check_running

    return check_running(AdminClient(admin, timeout_s=_TIMEOUT_S))


def _stopped(directory: Path, *, quiet: bool) -> list[Check]:
    from horolog.cli.checkup.stopped import check_stopped
    from horolog.cli.progress import progress

    with progress("verifying", quiet=quiet) as report:
        return check_stopped(directory, report)


def _show(checks: list[Check]) -> None:
    """Print one paragraph per check: state, name and what was seen, and below what to do."""
    name_width = max(len(check.name) for check in checks)
    indent = " " * (9 + name_width + 2)
    for check in checks:
        state = typer.style(f"{check.state.value:<9}", fg=_COLOURS[check.state.value])
        seen = textwrap.fill(
            printable(check.seen), _WIDTH, initial_indent=indent, subsequent_indent=indent
        ).lstrip()
        typer.echo(f"{state}{check.name.ljust(name_width)}  {seen}")
        if check.do:
            do = f"→ {printable(check.do)}"
            typer.echo(
                textwrap.fill(
                    do, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
                    break_on_hyphens=False, break_long_words=False,
                )
            )  # fmt: skip
