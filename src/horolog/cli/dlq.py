"""`horolog dlq list` and `redrive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.listing import fetch_list
from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_json, print_table
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient

app = typer.Typer(
    help="List dead letters; send them once more.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)
_FLAGS = {
    "consumer group": "GROUP",
    "group": "GROUP",
    "topic": "--to",
    "to": "--to",
    "limit": "--limit",
    "ids": "--id",
    "in_ms": "--delay",
    "delivery_timestamp": "--delay",
    "rate": "--rate",
}
_PIECE = 10_000  # dead letters per request


def list_letters(
    group: Annotated[
        str,
        typer.Argument(
            metavar="[GROUP]",
            help="Group whose dead letters to list; without it, those of all groups are counted.",
        ),
    ] = "",
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="Include dead letters that were re-driven already.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="List at most N dead letters.")] = 100,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the waiting dead letters of a consumer group, oldest first; or count those of all groups.

    Examples:
      horolog dlq list
      horolog dlq list billing
      horolog dlq list billing --all --limit 1000
    """
    from horolog.admin.client import path_of

    client = connect(admin)
    if not group:
        result = client.get(path_of("dead-letters"))
        if as_json:
            print_json(result)
            return
        names = ("group", "waiting", "redriven")
        print_table(
            ("GROUP", "WAITING", "RE-DRIVEN"),
            [tuple(each[name] for name in names) for each in result["groups"]],
        )
        return
    with typed_as(_FLAGS):
        path = path_of("groups", group, "dead-letters")
        every = {"all": "true"} if all_ else {}
        result = fetch_list(client, path, "messages", every, limit=limit, cursor="from")
    if as_json:
        print_json(result)
        return
    print_table(
        ("DEAD SINCE", "MESSAGE ID", "FAILED IN", "KEYS", "ATTEMPTS", "RE-DRIVEN"),
        [_row(each) for each in result["messages"]],
    )
    waiting = counted(result["waiting"], "dead letter")
    typer.echo(f"\n{waiting} of {group} waiting, {result['redriven']} re-driven")


def _row(letter: dict[str, Any]) -> tuple[object, ...]:
    return (
        letter["dead"],
        letter["message_id"],
        letter["origin_topic"],
        " ".join(letter["keys"]),
        letter["attempts"],
        "yes" if letter["redriven"] else "",
    )


def redrive(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="Consumer group whose dead letters to send.")
    ],
    *,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Message id of a dead letter; may be repeated."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Send all that wait.")] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Send the N oldest that wait.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="Send them to this topic; by default, back to where each failed."
        ),
    ] = "",
    delay: Annotated[str, typer.Option(metavar="TIME", help="Make them due this much later.")] = "",
    rate: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Spread the due times: N a second."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print what would happen.")
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send dead letters once more, as new messages with their id, keys, tag, body and properties.

    Each is sent once: one that was re-driven before is skipped, also after a crash in the middle. All
    groups of the topic receive the messages; --to %RETRY%GROUP sends them to that group of 4.x
    consumers alone.

    Examples:
      horolog dlq redrive billing --all --dry-run
      horolog dlq redrive billing --all --delay 10m --rate 100
      horolog dlq redrive billing --id 7F0000010001 --to repair
    """
    from horolog.errors import refused
    from horolog.units import parse_duration_ms

    if sum((bool(ids), all_, limit is not None)) != 1:
        raise refused("--all", "give one of --id, --all and --limit")
    body: dict[str, Any] = {"to": to or None, "rate": rate, "dry_run": dry_run, "ids": ids or None}
    if delay:
        body["in_ms"] = parse_duration_ms(delay, field="--delay")
    with typed_as(_FLAGS):
        result = _redrive(connect(admin), group, body, limit)
    if as_json:
        print_json(result)
    else:
        _print(result)
    return Exit.REFUSED if result["refused"] or result["unknown"] else Exit.OK


def _redrive(
    client: AdminClient, group: str, body: dict[str, Any], limit: int | None
) -> dict[str, Any]:
    """Re-drive all pieces in turn; due times continue where those of the last piece end."""
    from horolog.admin.client import path_of

    path = path_of("groups", group, "dead-letters", "redrive")
    total: dict[str, Any] = {}
    left = limit
    while True:
        piece = _PIECE if left is None else min(left, _PIECE)
        result = client.post(path, {**body, "limit": piece})
        if left is not None:
            left -= result["redriven"] + result["refused"]
        for name in ("redriven", "already", "refused", "refusals", "unknown"):
            result[name] = total.get(name, type(result[name])()) + result[name]
        result["first_due_ms"] = total.get("first_due_ms") or result["first_due_ms"]
        result["first_due"] = total.get("first_due") or result["first_due"]
        if not result["last_due_ms"] and total:
            result |= {name: total[name] for name in ("last_due_ms", "last_due")}
        total = result
        if total["next"] is None or left == 0:
            return total
        body["from"] = total["next"]
        if body["rate"] and total["last_due_ms"]:
            body.pop("in_ms", None)
            body["deliver_at_ms"] = total["last_due_ms"] + -(-1_000 // body["rate"])


def _print(result: dict[str, Any]) -> None:
    would = "would be re-driven" if result["dry_run"] else "re-driven"
    when = f", due {result['first_due']}" if result["first_due"] else ""
    if result["last_due"] != result["first_due"]:
        when += f" to {result['last_due']}"
    typer.echo(f"{would}: {counted(result['redriven'], 'dead letter')}{when}")
    if result["already"]:
        typer.echo(f"re-driven before: {result['already']}")
    for message_id in result["unknown"]:
        typer.echo(f"no dead letter has the id {message_id}", err=True)
    for each in result["refusals"]:
        typer.echo(f"{each['message_id']}: {each['error']['message']}", err=True)
    if result["refused"]:
        typer.echo(f"refused: {result['refused']}, which wait on", err=True)


register(app, "list", list_letters)
register(app, "redrive", redrive)
