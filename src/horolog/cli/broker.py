"""`horolog broker`."""

from __future__ import annotations

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect
from horolog.cli.output import print_json

_SHOWN = {
    "pending": "scheduled messages that wait",
    "handed_over": "handed over since the data directory was made",
    "recalled": "recalled or moved",
    "expired": "too late",
    "topics": "topics",
    "groups": "consumer groups",
    "parked_polls": "polls that wait",
    "log_start": "log position (bytes) at which the log begins",
    "log_end": "log position at which it ends",
    "checkpoint_position": "log position of the newest checkpoint",
    "repairs": "damaged parts repaired",
    "holes": "messages that could not be read since the start",
}


def broker(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Show the figures of a running broker, and its problems.

    Exit code 0: no problem; 1: at least one, as in `/healthz`.

    Examples:
      horolog broker
      horolog broker --json
    """
    view = connect(admin).get("/v1/broker")
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{view['broker_name']}, horolog {view['version']}, epoch {view['epoch']}")
        for name, meaning in _SHOWN.items():
            typer.echo(f"{view[name]:>16}  {meaning}")
        for problem in view["problems"]:
            typer.echo(f"problem: {problem}")
    return Exit.FAILURE if view["problems"] else Exit.OK
