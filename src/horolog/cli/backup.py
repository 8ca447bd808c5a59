"""`horolog backup`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_json
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient

_LOOK_S = 0.1
_FLAGS = {"directory": "DIR"}


def backup(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory on the broker's machine.")
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Copy everything again, also data that DIR already has.")
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Back up a running broker into a directory; the broker keeps running.

    The backup holds everything that was acknowledged when the command began. DIR is created, or
    holds an earlier backup of the same broker: then only new data is copied. An interrupted backup
    leaves the earlier one as it was. Damaged data is copied as it is, and reported: exit code 6
    means that the backup was made, and that some of its data cannot be read.

    Examples:
      horolog backup /var/backups/horolog
      horolog backup /var/backups/horolog --json
    """
    client = connect(admin)
    with typed_as(_FLAGS):
        begun = client.post("/v1/backup", {"directory": _absolute(directory), "full": full})
    ended = _wait(client, begun, quiet=as_json)
    if as_json:
        print_json(ended)
        return Exit.FAULTS if ended["damaged"] else Exit.OK
    from horolog.cli.progress import size_text

    typer.echo(
        f"backup {ended['number']} into {ended['directory']}: {counted(ended['files'], 'file')},"
        f" {size_text(ended['bytes'])}, of which {size_text(ended['copied_bytes'])} copied;"
        f" log position {ended['position']}, {ended['made']}"
    )
    for damage in ended["damaged"]:
        typer.echo(f"damaged when it was copied: {damage}", err=True)
    return Exit.FAULTS if ended["damaged"] else Exit.OK


def _absolute(directory: Path) -> str:
    """Return the absolute path of DIR, as text for a request."""
    from horolog.errors import refused
    from horolog.places import local_place

    try:
        path = str(Path(local_place(directory, "DIR")).absolute())
        path.encode()
    except OSError as error:
        raise refused("DIR", f"the current directory is gone ({error.strerror})") from None
    except UnicodeEncodeError:
        raise refused("DIR", f"{path!r} is not UTF-8 text") from None
    return path


def _wait(client: AdminClient, begun: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Wait until the backup has ended; return its view, or raise the error of a failed one."""
    from horolog.admin.status import error_from_body
    from horolog.cli.progress import progress
    from horolog.errors import ErrorCode, HorologError

    with progress("backing up", quiet=quiet) as report:
        view = begun
        while view["state"] == "running":
            time.sleep(_LOOK_S)
            view = client.get("/v1/backup")
            report(
                f"{view['files_done']}/{counted(view['files'], 'file')}",
                view["bytes_done"],
                view["bytes"],
            )
    if view["error"] is not None:
        raise error_from_body({"error": view["error"]})
    if (view["directory"], view["number"]) != (begun["directory"], begun["number"]):
        raise HorologError(ErrorCode.INTERNAL, "backup: another one has been made meanwhile")
    return view
