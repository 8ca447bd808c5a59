"""`horolog health`."""

from __future__ import annotations

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect
from horolog.cli.output import print_json


def health(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Check the health of a running broker: print its named checks, one per line.

    Exit code 0: all checks are ok; 1: one is not; 5: no broker answers. Use it as the health check
    of a container or a load balancer; `horolog doctor` says what to do.

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
