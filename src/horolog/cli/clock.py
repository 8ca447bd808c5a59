"""`horolog clock show` and `advance`."""

from __future__ import annotations

from typing import Annotated

import typer

from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register
from horolog.cli.output import print_json

app = typer.Typer(
    help="Show the broker's clock; move a simulated one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


def _print(clock: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(clock)
    else:
        typer.echo(f"{clock['wall']} ({clock['kind']})")


def show(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """Print the broker's time in UTC, and the kind of its clock.

    Example:
      horolog clock show
    """
    _print(connect(admin).get("/v1/clock"), as_json)


def advance(
    by: Annotated[str, typer.Argument(metavar="DURATION", help="90s, 24h, 30d, 1500ms …")],
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Move the clock of a broker with --clock simulated forward.

    Returns when all messages that became due are handed over.

    Example:
      horolog clock advance 30d
    """
    from horolog.units import parse_duration_ms

    client = connect(admin)
    _print(client.advance(parse_duration_ms(by, field="DURATION")), as_json)


register(app, "show", show)
register(app, "advance", advance)
