"""`horolog recall`: cancel one message, all with a key, or all of a window."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import (
    ADMIN_DEFAULT,
    Admin,
    AsJson,
    DryRun,
    DueFrom,
    DueTo,
    Handle,
    OfDue,
    OfId,
    OfTag,
    OfTopic,
    Yes,
    connect,
    typed_as,
)
from horolog.cli.output import print_json, print_table
from horolog.cli.windows import WindowAction, act_on_window

MESSAGE_FLAGS = {
    "handle": "HANDLE",
    "topic": "--topic",
    "message_id": "--id",
    "deliver_at_ms": "--due",
}
_FLAGS = {
    **MESSAGE_FLAGS,
    "key": "--key",
    "from_ms": "--from",
    "to_ms": "--to",
    "to": "--to",
    "tag": "--tag",
}
_ACTION = WindowAction(
    "/v1/recall/window",
    "Cancel",
    "would be cancelled",
    "CANCELLED",
    "will not be handed over",
    "nothing was recalled",
    "cancelled",
)
_EXITS = {"CANCELLED": Exit.OK, "ALREADY_DELIVERED": Exit.REFUSED, "NOT_FOUND": Exit.NOT_FOUND}


def recall(
    handle: Handle = "",
    *,
    topic: OfTopic = "",
    id_: OfId = "",
    due: OfDue = "",
    key: Annotated[
        str, typer.Option(metavar="KEY", help="Cancel all messages with this key.")
    ] = "",
    from_: DueFrom = "",
    to: DueTo = "",
    tag: OfTag = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Cancel scheduled messages: one, all with a key, or all of a window.

    The result is CANCELLED (exit code 0), ALREADY_DELIVERED (4) or NOT_FOUND (3).

    Examples:
      horolog recall djEgcmVtaW5kZXJzIGJyb2tlci1hIDE3NzI5NjUyMDAwMDEgMDFBQiA5Ng==
      horolog recall --topic reminders --id 01AB --due 2026-03-08T10:20:00Z
      horolog recall --topic reminders --key UA1545
      horolog recall --topic reminders --from 2026-03-08T00:00Z --to 2026-03-09T00:00Z --dry-run
    """
    given = {"--id": id_, "--due": due, "--key": key, "--from": from_, "--to": to, "--tag": tag}
    given |= {"--dry-run": "yes" if dry_run else "", "--yes": "yes" if yes else ""}
    flags = {flag for flag, text in given.items() if text}
    client = connect(admin)
    with typed_as(_FLAGS):
        if from_ or to:
            check_flags_fit(flags, {"--from", "--to", "--tag", "--dry-run", "--yes"}, handle)
            window = window_fields(topic, from_, to, tag)
            return act_on_window(
                client, _ACTION, window, dry_run=dry_run, ask=not yes, as_json=as_json
            )
        if key:
            check_flags_fit(flags, {"--key"}, handle)
            wanted = {"topic": required_text(topic, "--topic"), "key": key}
            return _by_key(client.post("/v1/recall/key", wanted), as_json=as_json)
        check_flags_fit(flags, {"--id", "--due"}, "")
        result = client.post(
            "/v1/recall",
            message_fields(handle, topic, id_, due, ways="--id, --key or --from"),
        )
    if as_json:
        print_json(result)
    else:
        typer.echo(result["detail"])
    return Exit.OK


def message_fields(
    handle: str, topic: str, message_id: str, due: str, *, ways: str = "--id, or --from"
) -> dict[str, Any]:
    """Return the API fields that name one message, from HANDLE or --topic, --id and --due.

    ways  flags that may follow --topic, for the error if none does
    """
    from horolog.units import parse_time_ms

    if handle:
        flags = {"--topic": topic, "--id": message_id, "--due": due}
        check_flags_fit({flag for flag, text in flags.items() if text}, set(), handle)
        return {"handle": handle}
    return {
        "topic": required_text(topic, "HANDLE, or --topic"),
        "message_id": required_text(message_id, ways),
        "deliver_at_ms": parse_time_ms(required_text(due, "--due"), field="--due"),
    }


def window_fields(
    topic: str, from_: str, to: str, tag: str, *, to_flag: str = "--to"
) -> dict[str, Any]:
    """Return the API fields that name all messages of a window; `to_flag`: the flag of its end."""
    from horolog.units import parse_time_ms

    return {
        "topic": required_text(topic, "--topic"),
        "from_ms": parse_time_ms(required_text(from_, "--from"), field="--from"),
        "to_ms": parse_time_ms(required_text(to, to_flag), field=to_flag),
        **({"tag": tag} if tag else {}),
    }


def check_flags_fit(given: set[str], allowed: set[str], handle: str) -> None:
    """Raise a usage error if flags are given that do not go with the chosen way."""
    from horolog.errors import ErrorCode, HorologError

    other = sorted(given - allowed)
    if other or (handle and allowed):
        flag = other[0] if other else "HANDLE"
        with_what = "a HANDLE" if not allowed else ", ".join(sorted(allowed))
        raise HorologError(
            ErrorCode.BAD_REQUEST, f"{flag}: does not go with {with_what}", field=flag
        )


def required_text(text: str, flag: str) -> str:
    """Return the text of a flag; a usage error if it is empty."""
    from horolog.errors import ErrorCode, HorologError

    if not text:
        raise HorologError(ErrorCode.BAD_REQUEST, f"{flag}: is needed", field=flag)
    return text


def _by_key(result: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(result)
    else:
        print_table(
            ("RECALL", "MESSAGE ID", "DUE"),
            [(row["status"], row["message_id"], row["deliver_at"]) for row in result["results"]],
        )
    statuses = {row["status"] for row in result["results"]}
    return next(code for status, code in _EXITS.items() if status in statuses)
