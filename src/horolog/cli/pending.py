"""`horolog pending`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_cut, print_json, print_table
from horolog.errors import refused

_LISTED = 100  # messages of a list, by default
_FLAGS = {
    "by": "--by",
    "hour": "--hour",
    "from": "--from",
    "to": "--to",
    "limit": "--limit",
    "topic": "--topic",
}


class By(StrEnum):
    """Values of --by."""

    DAY = "day"
    HOUR = "hour"
    SECOND = "second"
    TOPIC = "topic"


def pending(
    *,
    by: Annotated[
        By | None, typer.Option("--by", help="What to count by; by default the hour.")
    ] = None,
    hour: Annotated[
        str,
        typer.Option(metavar="TIME", help="Count per second of the hour that contains this time."),
    ] = "",
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List the messages, in hand-over order; those in a lake are only counted.",
        ),
    ] = False,
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="With --list: due at or after this time.")
    ] = "",
    to: Annotated[
        str, typer.Option(metavar="TIME", help="With --list: due before this time.")
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --list: at most N messages, by default 100."),
    ] = None,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Only messages of this topic.")] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Count scheduled messages that wait, by day, hour, second or topic, or list them; exact, in UTC.

    Examples:
      horolog pending
      horolog pending --by day
      horolog pending --hour 2026-03-08T10:00Z --topic reminders
      horolog pending --list --from 2026-03-08T10:00Z --to 2026-03-08T10:05Z
    """
    if list_:
        _list(admin, {"from": from_, "to": to, "topic": topic, "limit": limit}, as_json=as_json)
        return
    for flag, given in (("--from", from_), ("--to", to), ("--limit", limit is not None)):
        if given:
            raise refused(flag, "only with --list")
    with typed_as(_FLAGS):
        wanted = {"by": by.value if by else None, "hour": hour, "topic": topic}
        counts = connect(admin).get("/v1/pending", wanted)
    if as_json:
        print_json(counts)
        return
    shown = sum(row["count"] for row in counts["rows"])
    print_table(
        (counts["by"].upper(), "PENDING"),
        [*((_name(row), row["count"]) for row in counts["rows"]), ("total", shown)],
    )


def _name(row: dict[str, Any]) -> str:
    return str(row["topic"] if "topic" in row else row["start"]).replace(".000Z", "Z")


def _list(admin: str, parameters: dict[str, object], *, as_json: bool) -> None:
    with typed_as(_FLAGS):
        result = connect(admin).get("/v1/pending/messages", parameters)
    if as_json:
        print_json(result)
        return
    print_table(
        ("DUE", "TOPIC", "MESSAGE ID", "TAG", "BYTES"),
        [
            (row["deliver_at"], row["topic"], row["message_id"], row["tag"], row["size_bytes"])
            for row in result["messages"]
        ],
    )
    shown = len(result["messages"])
    if shown == (parameters["limit"] or _LISTED):
        print_cut(shown, "`horolog message search --state pending --limit N` lists any number")
