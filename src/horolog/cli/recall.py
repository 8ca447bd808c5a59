"""horolog recall."""

from __future__ import annotations

from typing import Annotated

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_json


def recall(
    handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE", help="As `horolog send` or a RocketMQ client was given it."
        ),
    ],
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Cancel a scheduled message.

    The answer is the truth: CANCELLED (exit code 0), ALREADY_DELIVERED (4) or NOT_FOUND (3).

    Example:
      horolog recall djEgcmVtaW5kZXJzIGJyb2tlci1hIDE3NzI5NjUyMDAwMDEgMDFBQiA5Ng==
    """
    with typed_as({"recall_handle": "HANDLE"}):
        result = connect(admin).post("/v1/recall", {"handle": handle})
    if as_json:
        print_json(result)
    else:
        typer.echo(result["detail"])
