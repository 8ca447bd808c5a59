"""horolog group set | show."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_fields, print_json

app = typer.Typer(
    help="Show consumer groups, and change how they consume.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


def set_(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The group; made if it is not there.")
    ],
    orderly: Annotated[
        bool | None,
        typer.Option(
            "--orderly/--no-orderly", help="Consume each message group in order, or everything."
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Further attempts before a message is a dead letter."),
    ] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a consumer group, or change how it consumes; what is not named stays as it is.

    Examples:
      horolog group set billing --orderly
      horolog group set billing --retries 5
    """
    from horolog.admin.client import path_of

    wanted: dict[str, Any] = {}
    if orderly is not None:
        wanted["orderly"] = orderly
    if retries is not None:
        wanted["retry_max"] = retries
    with typed_as({"consumer group": "NAME", "retry_max": "--retries"}):
        view = connect(admin).put(path_of("groups", name), wanted)
    _print_group(view, as_json=as_json)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show how a consumer group consumes.

    Examples:
      horolog group show billing
      horolog group show billing --json
    """
    from horolog.admin.client import path_of

    with typed_as({"consumer group": "NAME"}):
        view = connect(admin).get(path_of("groups", name))
    _print_group(view, as_json=as_json)


def _print_group(view: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    print_fields(
        {
            "group": view["group"],
            "in order": "yes, by message group" if view["orderly"] else "no",
            "retries": str(view["retry_max"]),
        }
    )


register(app, "set", set_)
register(app, "show", show)
