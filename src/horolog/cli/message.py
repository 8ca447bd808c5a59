"""`horolog message find`, `show` and `search`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.listing import fetch_list
from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_cut, print_fields, print_json, print_table, printable

app = typer.Typer(
    help="Find and list messages, and show the history of one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)
_FLAGS = {
    "topic": "--topic",
    "id": "--id",
    "message_id": "--id",
    "key": "--key",
    "tag": "--tag",
    "from": "--from",
    "to": "--to",
    "state": "--state",
    "limit": "--limit",
}


def find(
    *,
    topic: Annotated[
        str, typer.Option(metavar="NAME", help="Topic of the messages; needed with --key.")
    ] = "",
    id_: Annotated[str, typer.Option("--id", metavar="ID", help="Message id.")] = "",
    key: Annotated[str, typer.Option(metavar="KEY", help="All messages with this key.")] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show the state of a message, found by id or key.

    The state is pending, delivered, recalled, moved, expired (too late for the late policy of its
    topic), ended (recalled or expired, long ago), lake or quarantined. A message that waits has a due
    time and a recall handle, a delivered one its place in a queue.

    Examples:
      horolog message find --id 01AB
      horolog message find --topic reminders --key UA1545
    """
    from horolog.errors import refused

    if bool(id_) == bool(key):
        raise refused("--id", "give either --id or --key")
    with typed_as(_FLAGS):
        result = connect(admin).get(
            "/v1/messages/find", {"topic": topic or None, "id": id_ or None, "key": key or None}
        )
    if as_json:
        print_json(result)
        return
    for i, found in enumerate(result["messages"]):
        if i:
            typer.echo()
        print_fields(_fields(found))


def _fields(found: dict[str, Any]) -> dict[str, object]:
    visible = found["queue_offset"] >= 0
    return {
        "message id": found["message_id"],
        "topic": found["topic"],
        "state": found["state"],
        "due": found["deliver_at"],
        "tag": found["tag"],
        "keys": " ".join(found["keys"]),
        "queue": f"{found['queue_id']}, offset {found['queue_offset']}" if visible else "",
        "origin": found["origin"],
        "recall handle": found["recall_handle"],
    }


def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Message id.")],
    *,
    topic: Annotated[
        str, typer.Option(metavar="NAME", help="Topic, if messages of several topics have the id.")
    ] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show one message: where it is, its payload, and its history.

    Example:
      horolog message show 01AB
    """
    from horolog.admin.client import path_of

    _check_has_path(id_)
    with typed_as({**_FLAGS, "id": "ID"}):
        shown = connect(admin).get(path_of("messages", id_), {"topic": topic or None})
    if as_json:
        print_json(shown)
        return
    print_fields(
        {
            **_fields(shown),
            "properties": " ".join(f"{name}={text}" for name, text in shown["properties"].items()),
            "size": f"{shown['size_bytes']} bytes",
            "body": printable(shown.get("body_text", f"base64 {shown['body']}"))[:_BODY_MAX],
        }
    )
    for group in shown["groups"]:
        lease = f", attempt {group['attempt']}" if group["attempt"] else ""
        until = f" until {group['leased_until']}" if group["state"] == "leased" else ""
        typer.echo(f"group {group['group']}: {group['state']}{lease}{until}")
    typer.echo()
    print_table(
        ("AT", "EVENT", "DETAIL"),
        [(row["at"] or "?", row["event"], _detail(row["detail"])) for row in shown["history"]],
    )
    if not shown["history_complete"]:
        typer.echo(
            "something may be missing: the log does not reach back, or is too long to be read"
        )


def _check_has_path(message_id: str) -> None:
    """Raise NOT_FOUND for an id that would lead to another path of the admin API."""
    from horolog.errors import ErrorCode, refused

    if "/" in message_id or message_id in ("find", "search"):
        raise refused(
            "ID",
            f"no message with id {message_id!r} can be shown; `horolog message find --id` looks "
            "for it",
            code=ErrorCode.NOT_FOUND,
        )


_BODY_MAX = 2_000  # characters of a body in a terminal; --json has all of it


def _detail(detail: dict[str, Any]) -> str:
    """Return the detail of an event as `group=g attempt=2`, with readable times."""
    from horolog.units import format_time_ms

    shown = []
    for name, value in detail.items():
        if name.endswith("due_ms") or name == "deliver_at_ms":
            value = format_time_ms(value) if value else "at once"
            name = name.removesuffix("_ms")
        shown.append(f"{name}={printable(value)}")
    return " ".join(shown)


def search(
    *,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Only messages of this topic.")] = "",
    tag: Annotated[str, typer.Option(help="Only messages with this tag.")] = "",
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Due (if visible: stored) at or after this time."
        ),
    ] = "",
    to: Annotated[
        str, typer.Option(metavar="TIME", help="Due (if visible: stored) before this time.")
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE",
            help="pending or delivered; by default both with --topic, pending without.",
        ),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="List at most this many messages.")] = 100,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List messages: pending ones in the order of hand-over, then visible ones, queue by queue.

    Examples:
      horolog message search --topic reminders --tag desk
      horolog message search --from 2026-03-08T10:00Z --to 2026-03-08T11:00Z --limit 20
    """
    given = {"topic": topic, "tag": tag, "from": from_, "to": to, "state": state}
    asked = {name: text for name, text in given.items() if text}
    with typed_as(_FLAGS):
        page = fetch_list(connect(admin), "/v1/messages/search", "messages", asked, limit=limit)
    rows = page["messages"]
    if as_json:
        print_json({"messages": rows})
        return
    print_table(
        ("MESSAGE ID", "TOPIC", "STATE", "DUE", "STORED", "TAG", "KEYS", "BYTES"),
        [
            (
                printable(row["message_id"]),
                row["topic"],
                row["state"],
                row["deliver_at"] or "",
                row["store"] or "",
                printable(row["tag"]),
                printable(" ".join(row["keys"])),
                row["size_bytes"],
            )
            for row in rows
        ],
    )
    if page["next"] is not None:
        print_cut(len(rows), "--limit lists more")


register(app, "find", find)
register(app, "show", show)
register(app, "search", search)
