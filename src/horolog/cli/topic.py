"""horolog topic create | change | delete | list | describe."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_fields, print_json, print_table
from horolog.units import counted

app = typer.Typer(
    help="Create, change, delete, list and describe topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


_BOTH = 6
_PERM = "Who may use it: 2 senders, 4 consumers, 6 both."


class Type(StrEnum):
    """Values of --type: those of which the broker makes topics."""

    DELAY = "delay"
    NORMAL = "normal"
    FIFO = "fifo"
    TRANSACTION = "transaction"
    MIXED = "mixed"


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, %, |, _ and -.")],
    type_: Annotated[Type, typer.Option("--type", help="Which messages it takes.")] = Type.DELAY,
    queues: Annotated[int, typer.Option(metavar="N", help="Number of queues, 1 to 1024.")] = 8,
    perm: Annotated[int, typer.Option(metavar="P", help=_PERM)] = 6,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a topic.

    One that exists just so is left alone; one that differs is refused, with the difference.

    Examples:
      horolog topic create reminders --type delay --queues 4
      horolog topic create audit --type normal
      horolog topic create archive --perm 4
    """
    from horolog.admin.client import path_of

    wanted: dict[str, Any] = {"name": name, "type": type_.value, "queues": queues}
    if perm != _BOTH:
        wanted["perm"] = perm
    typed = {"topic": "NAME", "type": "--type", "queues": "--queues", "perm": "--perm"}
    with typed_as(typed):
        view = connect(admin).post(path_of("topics"), wanted)
    _print_topic(view, as_json=as_json)


def change(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    queues: Annotated[
        int | None, typer.Option(metavar="N", help="Number of queues it shall have, up to 1024.")
    ] = None,
    perm: Annotated[int | None, typer.Option(metavar="P", help=_PERM)] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Add queues to a topic, or change who may use it.

    It cannot have fewer queues: messages would be left in them.  What waits is handed over whatever the permission.

    Examples:
      horolog topic change reminders --queues 8
      horolog topic change reminders --perm 4
    """
    from horolog.admin.client import path_of

    given = {"queues": queues, "perm": perm}
    wanted = {field: value for field, value in given.items() if value is not None}
    with typed_as({"topic": "NAME", "queues": "--queues", "perm": "--perm"}):
        view = connect(admin).patch(path_of("topics", name), wanted)
    _print_topic(view, as_json=as_json)


def delete(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a topic, its messages and the progress of consumer groups in it.

    Refused while messages of it wait to be handed over: recall them first.  A topic that is created with this name
    later is another one, and begins empty.

    Example:
      horolog topic delete reminders
    """
    from horolog.admin.client import path_of

    with typed_as({"topic": "NAME"}):
        result = connect(admin).delete(path_of("topics", name))
    if as_json:
        print_json(result)
    else:
        typer.echo(f"topic {name}: deleted")


def _print_topic(view: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    queues = counted(view["queues"], "queue")
    perm = "" if view["perm"] == _BOTH else f", permission {view['perm']}"
    typer.echo(f"topic {view['name']}: type {view['type']}, {queues}{perm}")


def list_topics(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """List all topics: type, queues, messages that were visible so far, messages that wait.

    Example:
      horolog topic list
    """
    from horolog.admin.client import path_of

    result = connect(admin).get(path_of("topics"))
    if as_json:
        print_json(result)
        return
    print_table(
        ("TOPIC", "TYPE", "QUEUES", "VISIBLE", "PENDING"),
        [_row(topic) for topic in result["topics"]],
    )


def _row(topic: dict[str, Any]) -> tuple[object, ...]:
    visible = sum(topic["queue_offsets"])
    return topic["name"], topic["type"], topic["queues"], visible, topic["pending"]


def describe(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    group: Annotated[
        str, typer.Option(metavar="G", help="Also the progress of this consumer group.")
    ] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Describe one topic, and the progress of a consumer group on it.

    Examples:
      horolog topic describe reminders
      horolog topic describe reminders --group me
    """
    from horolog.admin.client import path_of

    client = connect(admin)
    view = client.get(path_of("topics", name))
    if group:
        view["group"] = client.get(path_of("topics", name, "groups", group))
    if as_json:
        print_json(view)
        return
    print_fields(
        {
            "topic": view["name"],
            "type": view["type"],
            "queues": view["queues"],
            "permission": view["perm"],
            "visible": sum(view["queue_offsets"]),
            "pending": view["pending"],
            "open transactions": view["open_transactions"],
        }
    )
    typer.echo()
    if group:
        _print_group(view["group"])
    else:
        print_table(("QUEUE", "NEXT OFFSET"), enumerate(view["queue_offsets"]))


def _print_group(group: dict[str, Any]) -> None:
    names = ("queue_id", "ack_floor", "next_offset", "leased", "max_offset")
    print_table(
        ("QUEUE", "CONSUMED BELOW", "NEXT TO LEASE", "LEASED", "END"),
        [tuple(queue[name] for name in names) for queue in group["queues"]],
    )


register(app, "create", create)
register(app, "change", change)
register(app, "delete", delete)
register(app, "list", list_topics)
register(app, "describe", describe)
