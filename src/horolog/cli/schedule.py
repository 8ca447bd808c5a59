"""`horolog schedule create`, `change`, `list`, `show`, `next`, `pause`, `resume` and `remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, EPILOG, Admin, AsJson, connect, register, typed_as
from horolog.cli.output import print_fields, print_json, print_table
from horolog.cli.schedule_fields import (
    Cron,
    End,
    Every,
    GapOption,
    Group,
    Jitter,
    Keys,
    Missed,
    MissedOption,
    Name,
    OverlapOption,
    Properties,
    Start,
    Tag,
    Text,
    Times,
    Topic,
    Zone,
    wanted_fields,
)

app = typer.Typer(
    help="Manage recurring schedules: messages by cron, or at an interval.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)

_FLAGS = {
    "schedule": "NAME",
    "name": "NAME",
    "topic": "TOPIC",
    "body": "BODY",
    "cron": "--cron",
    "every": "--every",
    "every_ms": "--every",
    "zone": "--zone",
    "gap": "--gap",
    "overlap": "--overlap",
    "missed": "--missed",
    "start_ms": "--start",
    "end_ms": "--end",
    "times": "--times",
    "jitter_ms": "--jitter",
    "tag": "--tag",
    "keys": "--key",
    "properties": "--property",
    "message_group": "--message-group",
    "revision": "--revision",
}


def create(
    name: Name,
    topic: Topic,
    body: Text,
    *,
    cron: Cron = "",
    every: Every = "",
    zone: Zone = "UTC",
    gap: GapOption = None,
    overlap: OverlapOption = None,
    missed: MissedOption = Missed.LATEST,
    start: Start = "",
    end: End = "",
    times: Times = 0,
    jitter: Jitter = "",
    tag: Tag = None,
    key: Keys = None,
    property_: Properties = None,
    message_group: Group = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Create nothing; check it, and print when it would fire."),
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a schedule, and print its next firings.

    If the same schedule exists, it stays as it is; a different one is refused, with the difference.

    Examples:
      horolog schedule create standup reminders "stand up" --cron "0 9 * * 1-5" --zone Europe/Berlin
      horolog schedule create poll jobs poll --every 15m --jitter 1m
      horolog schedule create month-end reports close --cron "0 18 L * *" --dry-run
    """
    from horolog.admin.client import path_of

    wanted = wanted_fields(locals())
    with typed_as(_FLAGS):
        view = connect(admin).post(
            path_of("schedules"), {"name": name, "dry_run": dry_run, **wanted}
        )
    if as_json:
        print_json(view)
        return
    typer.echo(f"schedule {name}: {'would fire' if dry_run else view['state']}, {_when(view)}")
    _print_next(view["next"])


def change(
    name: Name,
    topic: Topic,
    body: Text,
    *,
    cron: Cron = "",
    every: Every = "",
    zone: Zone = "UTC",
    gap: GapOption = None,
    overlap: OverlapOption = None,
    missed: MissedOption = Missed.LATEST,
    start: Start = "",
    end: End = "",
    times: Times = 0,
    jitter: Jitter = "",
    tag: Tag = None,
    key: Keys = None,
    property_: Properties = None,
    message_group: Group = None,
    revision: Annotated[
        int, typer.Option(metavar="N", help="Only if it has this revision; 0: any revision.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print when it would fire.")
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Replace the rule and the message of a schedule; give all of it, as to `create`.

    Planned messages that are not due are recalled; the schedule goes on from now.

    Example:
      horolog schedule change standup reminders "stand up!" --cron "30 9 * * 1-5" --zone Europe/Berlin
    """
    from horolog.admin.client import path_of

    wanted = wanted_fields(locals())
    with typed_as(_FLAGS):
        view = connect(admin).put(
            path_of("schedules", name), {**wanted, "revision": revision, "dry_run": dry_run}
        )
    if as_json:
        print_json(view)
        return
    state = "would fire" if dry_run else f"{view['state']}, revision {view['revision']}"
    typer.echo(f"schedule {name}: {state}, {_when(view)}")
    _print_next(view["next"])


def list_schedules(admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """List all schedules: their rules, how often they have fired, and the next planned firing.

    Example:
      horolog schedule list
    """
    from horolog.admin.client import path_of

    result = connect(admin).get(path_of("schedules"))
    if as_json:
        print_json(result)
        return
    print_table(
        ("SCHEDULE", "STATE", "WHEN", "TOPIC", "FIRED", "NEXT PLANNED"),
        [_row(view) for view in result["schedules"]],
    )


def _row(view: dict[str, Any]) -> tuple[object, ...]:
    planned = view["planned"]
    fired = view["fired"] - len(planned)
    return (
        view["name"],
        "stuck" if view["problem"] else view["state"],
        _when(view),
        view["topic"],
        fired,
        planned[0]["nominal"] if planned else "",
    )


def _when(view: dict[str, Any]) -> str:
    from horolog.units import format_duration_ms

    if view["every_ms"]:
        return f"every {format_duration_ms(view['every_ms'])}"
    return f"{view['cron']} ({view['zone']})"


def show(
    name: Name,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show a schedule, with all its settings and planned messages.

    Example:
      horolog schedule show standup
    """
    from horolog.admin.client import path_of
    from horolog.units import format_duration_ms

    with typed_as(_FLAGS):
        view = connect(admin).get(path_of("schedules", name))
    if as_json:
        print_json(view)
        return
    local = not view["every_ms"]
    print_fields(
        {
            "schedule": view["name"],
            "state": view["state"],
            "problem": view["problem"],
            "revision": view["revision"],
            "when": _when(view),
            "gap": view["gap"] if local else "",
            "overlap": view["overlap"] if local else "",
            "missed": view["missed"],
            "jitter": format_duration_ms(view["jitter_ms"]) if view["jitter_ms"] else "",
            "start": view["start"],
            "end": view["end"],
            "times": view["times"] or "",
            "topic": view["topic"],
            "body": view.get("body") or view.get("body_base64"),
            "tag": view["tag"],
            "keys": " ".join(view["keys"]),
            "properties": " ".join(f"{k}={v}" for k, v in view["properties"].items()),
            "message group": view["message_group"],
            "fired": view["fired"] - len(view["planned"]),
        }
    )
    if view["planned"]:
        typer.echo("\nplanned:")
        _print_next(view["planned"])


def next_firings(
    name: Name,
    count: Annotated[int, typer.Option("-n", metavar="N", help="How many, 1 to 1000.")] = 10,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Print the next firings of a schedule; of a paused one, as if it were resumed now.

    A firing with a message id is planned: it can be recalled and rescheduled like any message.

    Example:
      horolog schedule next standup -n 30
    """
    from horolog.admin.client import path_of

    with typed_as({**_FLAGS, "limit": "-n"}):
        result = connect(admin).get(path_of("schedules", name, "next"), {"limit": count})
    if as_json:
        print_json(result)
    else:
        _print_next(result["next"])


def _print_next(firings: list[dict[str, Any]]) -> None:
    print_table(
        ("FIRING", "LOCAL TIME", "DUE", "MESSAGE ID"),
        [
            (each["firing"], each["nominal"], each["deliver_at"], each["message_id"])
            for each in firings
        ],
    )


def pause(name: Name, admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """Pause a schedule: recall its planned messages, and fire nothing until it is resumed.

    Example:
      horolog schedule pause standup
    """
    _switch(name, "pause", admin, as_json=as_json)


def resume(name: Name, admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """Resume a paused schedule from now on.

    Example:
      horolog schedule resume standup
    """
    _switch(name, "resume", admin, as_json=as_json)


def _switch(name: str, verb: str, admin: str, *, as_json: bool) -> None:
    from horolog.admin.client import path_of

    with typed_as(_FLAGS):
        view = connect(admin).post(path_of("schedules", name, verb), {})
    if as_json:
        print_json(view)
    else:
        typer.echo(f"schedule {name}: {view['state']}")


def remove(name: Name, admin: Admin = ADMIN_DEFAULT, as_json: AsJson = False) -> None:
    """Remove a schedule, and recall its planned messages.

    Example:
      horolog schedule remove standup
    """
    from horolog.admin.client import path_of

    with typed_as(_FLAGS):
        result = connect(admin).delete(path_of("schedules", name))
    if as_json:
        print_json(result)
    else:
        typer.echo(f"schedule {name}: removed")


register(app, "create", create)
register(app, "change", change)
register(app, "list", list_schedules)
register(app, "show", show)
register(app, "next", next_firings)
register(app, "pause", pause)
register(app, "resume", resume)
register(app, "remove", remove)
