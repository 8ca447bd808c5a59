"""`horolog topic create`, `set`, `delete`, `list` and `describe`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from horolog.cli.options import (
    ADMIN_DEFAULT,
    EPILOG,
    LONG_S,
    Admin,
    AsJson,
    connect,
    register,
    typed_as,
)
from horolog.cli.output import print_fields, print_json, print_table
from horolog.errors import refused
from horolog.units import counted

app = typer.Typer(
    help="Create, change, delete, list and describe topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


_BOTH = 6
_FLAGS = {
    "topic": "NAME",
    "name": "NAME",
    "queues": "--queues",
    "perm": "--perm",
    "multi_tag": "--multi-tag",
    "late": "--late",
    "late_after_ms": "--late-after",
    "read_queues": "--read-queues",
    "write_queues": "--write-queues",
    "order": "--order",
}
_CHANGES = "--queues, --perm, --late, --multi-tag, --read-queues, --write-queues and --order"
_MULTI_TAG = (
    "Messages may have several tags, joined by || or commas; a consumer gets messages with any tag "
    "it wants."
)
_PERM = "Who may use the topic: 2 senders, 4 consumers, 6 both."
_LATE = "What to do with messages that are too late to be handed over."
_LATE_AFTER = "With --late dead-letter or drop: how late is too late."


class Late(StrEnum):
    """Values of --late."""

    HAND_OVER = "hand-over"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"


class Type(StrEnum):
    """Values of --type: the types of topics that the broker creates."""

    NORMAL = "normal"
    DELAY = "delay"
    FIFO = "fifo"
    TRANSACTION = "transaction"
    MIXED = "mixed"


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, %, |, _ and -.")],
    type_: Annotated[
        Type,
        typer.Option("--type", case_sensitive=False, help="Kind of messages that the topic takes."),
    ] = Type.NORMAL,
    queues: Annotated[int, typer.Option(metavar="N", help="Number of queues, 1 to 1024.")] = 8,
    perm: Annotated[int, typer.Option(metavar="P", help=_PERM)] = 6,
    late: Annotated[Late | None, typer.Option("--late", help=_LATE)] = None,
    late_after: Annotated[str, typer.Option(metavar="TIME", help=_LATE_AFTER)] = "",
    multi_tag: Annotated[bool, typer.Option("--multi-tag", help=_MULTI_TAG)] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a topic.

    If the same topic exists, it stays as it is; a different one is refused, with the difference.

    Examples:
      horolog topic create reminders --type delay --queues 4
      horolog topic create audit
      horolog topic create archive --perm 4
      horolog topic create offers --type delay --late drop --late-after 5m
      horolog topic create events --multi-tag
    """
    from horolog.admin.client import path_of

    wanted: dict[str, Any] = {"name": name, "type": type_.value, "queues": queues}
    if perm != _BOTH:
        wanted["perm"] = perm
    if multi_tag:
        wanted["multi_tag"] = True
    wanted |= _late_fields(late, late_after)
    with typed_as({**_FLAGS, "type": "--type"}):
        view = connect(admin).post(path_of("topics"), wanted)
    _print_topic(view, as_json=as_json)


def set_(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    queues: Annotated[
        int | None, typer.Option(metavar="N", help="New number of queues, up to 1024.")
    ] = None,
    perm: Annotated[int | None, typer.Option(metavar="P", help=_PERM)] = None,
    late: Annotated[Late | None, typer.Option("--late", help=_LATE)] = None,
    late_after: Annotated[str, typer.Option(metavar="TIME", help=_LATE_AFTER)] = "",
    multi_tag: Annotated[
        bool | None, typer.Option("--multi-tag/--single-tag", help=_MULTI_TAG)
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option(metavar="N", help="Queues that are shown to consumers; 0: all.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(metavar="N", help="Queues that take new messages; 0: all.")
    ] = None,
    order: Annotated[
        bool | None,
        typer.Option("--order/--no-order", help="Tell 4.x clients to use queues in order."),
    ] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Change the settings of a topic; settings that are not given stay as they are.

    Queues can be added but not removed: messages would be left in them. Pending messages are handed
    over whatever the permission.

    Examples:
      horolog topic set reminders --queues 8
      horolog topic set reminders --perm 4
      horolog topic set reminders --late hand-over
      horolog topic set events --multi-tag
    """
    from horolog.admin.client import path_of

    given: dict[str, Any] = {
        "queues": queues,
        "perm": perm,
        "multi_tag": multi_tag,
        "read_queues": read_queues,
        "write_queues": write_queues,
        "order": order,
    }
    wanted = {field: value for field, value in given.items() if value is not None}
    wanted |= _late_fields(late, late_after)
    if not wanted:
        raise refused("--queues", f"give one or more of {_CHANGES}")
    with typed_as(_FLAGS):
        view = connect(admin).patch(path_of("topics", name), wanted)
    _print_topic(view, as_json=as_json)


class Pending(StrEnum):
    """Values of --pending."""

    REFUSE = "refuse"
    RECALL = "recall"


def delete(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    pending: Annotated[
        Pending,
        typer.Option(
            "--pending",
            help="If messages wait: refuse to delete the topic, or recall them first.",
        ),
    ] = Pending.REFUSE,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a topic, its messages and the progress of consumer groups in it.

    Refused while messages of the topic wait to be handed over, unless --pending recall is given; the
    same command continues an interrupted deletion. A topic created with this name later is a new
    one, and begins empty.

    Examples:
      horolog topic delete reminders
      horolog topic delete reminders --pending recall
    """
    from horolog.admin.client import path_of

    asked = "" if pending is Pending.REFUSE else f"?pending={pending.value}"
    with typed_as({"topic": "NAME", "pending": "--pending"}):
        path = path_of("topics", name) + asked
        result = connect(admin, timeout_s=LONG_S).delete(path)
    if as_json:
        print_json(result)
    else:
        recalled = result.get("recalled", 0)
        also = f", {counted(recalled, 'message')} recalled" if recalled else ""
        typer.echo(f"topic {name}: deleted{also}")


def _late_fields(late: Late | None, late_after: str) -> dict[str, Any]:
    """Return the API fields for --late and --late-after."""
    from horolog.units import parse_duration_ms

    fields: dict[str, Any] = {} if late is None else {"late": late.value}
    if late_after and late is None:
        raise refused("--late-after", "goes with --late only")
    if late in (Late.DEAD_LETTER, Late.DROP) and not late_after:
        raise refused("--late-after", f"is needed with --late {late.value}: how late is too late")
    if late_after:
        fields["late_after_ms"] = parse_duration_ms(late_after, field="--late-after")
    return fields


def _late_text(view: dict[str, Any]) -> str:
    from horolog.units import format_duration_ms

    after = view.get("late_after_ms", 0)
    return f"{view['late']} after {format_duration_ms(after)}" if after else ""


def _print_topic(view: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    queues = counted(view["queues"], "queue")
    perm = "" if view["perm"] == _BOTH else f", permission {view['perm']}"
    late = _late_text(view)
    late = f", late messages: {late}" if late else ""
    tags = ", several tags a message" if view["multi_tag"] else ""
    typer.echo(f"topic {view['name']}: type {view['type']}, {queues}{perm}{late}{tags}")


def list_topics(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """List all topics: type, queues, messages that became visible so far, messages that wait.

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
    """Describe one topic, and the progress of a consumer group in it.

    Examples:
      horolog topic describe reminders
      horolog topic describe reminders --group me
    """
    from horolog.admin.client import path_of

    client = connect(admin)
    with typed_as({"topic": "NAME", "consumer group": "--group", "group": "--group"}):
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
            "late messages": _late_text(view),
            "several tags": "yes" if view["multi_tag"] else "no",
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
register(app, "set", set_)
register(app, "change", set_, hidden=True)
register(app, "delete", delete)
register(app, "list", list_topics)
register(app, "describe", describe)
