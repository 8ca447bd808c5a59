"""`horolog group list`, `describe`, `clients`, `set`, `reset` and `delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.listing import fetch_list
from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_fields, print_json, print_table
from horolog.errors import refused
from horolog.units import counted

app = typer.Typer(
    help="List, describe, change, reset and delete consumer groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)
_FLAGS = {
    "consumer group": "NAME",
    "group": "NAME",
    "topic": "--topic",
    "to": "--to",
    "queue": "--queue",
    "offset": "--offset",
    "retry_max": "--retries",
    "force": "--force",
}


def list_groups(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """List all consumer groups: topics, members, messages not consumed.

    Example:
      horolog group list
    """
    rows = fetch_list(connect(admin), "/v1/groups", "groups", {})["groups"]
    if as_json:
        print_json({"groups": rows})
        return
    print_table(
        ("GROUP", "TOPICS", "MEMBERS", "CONSUME", "WAITING", "LEASED", "IN ORDER", "RETRIES"),
        [
            (
                row["group"],
                row["topics"],
                row["members"],
                row["consume"],
                row["waiting"],
                row["leased"],
                "yes" if row["orderly"] else "no",
                row["retry_max"],
            )
            for row in rows
        ],
    )


def describe(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Describe one consumer group: its settings, its progress in each topic, and its members.

    Examples:
      horolog group describe billing
      horolog group describe billing --json
    """
    from horolog.admin.client import path_of

    with typed_as(_FLAGS):
        view = fetch_list(connect(admin), path_of("groups", name), "topics", {})
    if as_json:
        print_json(view)
        return
    print_fields({**_settings(view), "members consume by": view["consume"]})
    typer.echo()
    print_table(
        ("TOPIC", "WAITING", "LEASED", "OLDEST WAITING", "MEMBERS"),
        [
            (
                topic["topic"],
                topic["waiting"],
                topic["leased"],
                topic["oldest_waiting"] or "",
                topic["members"],
            )
            for topic in view["topics"]
        ],
    )
    if view["members"]:
        typer.echo()
        _print_clients(view["members"])
    if unlisted := view["member_count"] - len(view["members"]):
        typer.echo(f"… and {unlisted} more; `horolog group clients {name}` lists all")


def clients(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="List only the members of this group.")
    ] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List connected clients: their ids, addresses and groups.

    Examples:
      horolog group clients
      horolog group clients billing
    """
    from horolog.admin.client import path_of

    client = connect(admin)
    with typed_as(_FLAGS):
        found = fetch_list(client, "/v1/clients", "clients", {"group": name})["clients"]
        if name and not found:
            # Raises NOT_FOUND if the group does not exist.
            client.get(path_of("groups", name), {"limit": 1})
    if as_json:
        print_json({"clients": found})
    elif name and not found:
        typer.echo(f"no client of group {name} is connected")
    else:
        _print_clients(found)


def _print_clients(found: list[dict[str, Any]]) -> None:
    print_table(
        ("CLIENT", "DOOR", "ADDRESS", "LANGUAGE", "VERSION", "CONSUMES", "GROUPS", "CONNECTED"),
        [
            (
                client["client_id"],
                client["door"] + (" with TLS" if client["tls"] else ""),
                client["address"],
                client["language"],
                client["version"],
                client["consumes"],
                ",".join([*client["groups"], *client["producer_groups"]]),
                client["connected"] or "",
            )
            for client in found
        ],
    )


def set_(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Consumer group; created if it does not exist.")
    ],
    orderly: Annotated[
        bool | None,
        typer.Option(
            "--orderly/--no-orderly", help="Consume each message group in order, or in any order."
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Further attempts before a message is a dead letter."),
    ] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a consumer group, or change its settings; settings that are not given stay as they are.

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
    with typed_as(_FLAGS):
        view = connect(admin).put(path_of("groups", name), wanted)
    if as_json:
        print_json(view)
    else:
        print_fields(_settings(view))


def _settings(view: dict[str, Any]) -> dict[str, object]:
    return {
        "group": view["group"],
        "in order": "yes, by message group" if view["orderly"] else "no",
        "retries": str(view["retry_max"]),
    }


def reset(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    topic: Annotated[str, typer.Option(metavar="T", help="Topic to reset the group in.")],
    to: Annotated[
        str,
        typer.Option(metavar="PLACE", help="earliest, latest, or a time: 2026-03-08T10:00:00Z."),
    ] = "",
    queue: Annotated[
        int | None, typer.Option(metavar="Q", help="Reset only this queue of the topic.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(metavar="O", help="With --queue: offset to reset the queue to.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print what would change.")
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Move a consumer group to another place in a topic.

    Prints how many messages come again or are skipped. Members may be connected; they continue at
    the new place at once.

    Examples:
      horolog group reset billing --topic orders --to earliest --dry-run
      horolog group reset billing --topic orders --to 2026-03-08T10:00:00Z
      horolog group reset billing --topic orders --queue 0 --offset 120
    """
    from horolog.admin.client import path_of

    if bool(to) == (offset is not None):
        raise refused("--to", "give either --to, or --queue and --offset")
    wanted = {
        "topic": topic,
        "to": to or None,
        "queue": queue,
        "offset": offset,
        "dry_run": dry_run,
    }
    with typed_as(_FLAGS):
        done = connect(admin).post(path_of("groups", name, "reset"), wanted)
    if as_json:
        print_json(done)
        return
    print_table(
        ("QUEUE", "FROM", "TO"),
        [(row["queue_id"], row["from_offset"], row["to_offset"]) for row in done["queues"]],
    )
    typer.echo()
    again, skipped = counted(done["again"], "message"), counted(done["skipped"], "message")
    would = "would be" if dry_run else "is"
    typer.echo(f"group {name} {would} reset in {topic}: {again} again, {skipped} skipped")


def delete(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even while its clients are connected.")
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a consumer group, its settings and its progress.

    Its retry and dead-letter topics stay: delete them as topics.

    Examples:
      horolog group delete billing
      horolog group delete billing --force
    """
    from horolog.admin.client import path_of

    with typed_as(_FLAGS):
        path = path_of("groups", name) + ("?force=true" if force else "")
        result = connect(admin).delete(path)
    if as_json:
        print_json(result)
    else:
        typer.echo(f"group {name}: deleted")


register(app, "list", list_groups)
register(app, "describe", describe)
register(app, "show", describe, hidden=True)
register(app, "clients", clients)
register(app, "set", set_)
register(app, "reset", reset)
register(app, "delete", delete)
