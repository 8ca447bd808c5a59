"""horolog health."""

from __future__ import annotations

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect
from horolog.cli.output import print_json


def health(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Ask a running broker whether it is well: its named checks, one a line.

    Exit code 0: all are ok; 1: one is not; 5: no broker answers. A health check of a container or
    of a load balancer can run it; `horolog doctor` says what to do.

    Examples:
      horolog health
      horolog health --json
    """
    answer = connect(admin).get("/healthz")
    if as_json:
        print_json(answer)
    else:
        for check in answer["checks"]:
            state = "ok" if check["ok"] else f"not ok: {check['detail']}"
            typer.echo(f"{check['name']:<6} {state}")
    return Exit.OK if answer["healthy"] else Exit.FAILURE
