"""`horolog recall`: cancel one message, all with a key, or all of a window."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.message_flags import (
    MESSAGE_FLAGS,
    WINDOW_FLAGS,
    check_flags_fit,
    message_fields,
    required_text,
    window_fields,
)
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

_FLAGS = {**MESSAGE_FLAGS, **WINDOW_FLAGS, "key": "--key"}
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
    given: dict[str, object] = {
        "--id": id_,
        "--due": due,
        "--key": key,
        "--from": from_,
        "--to": to,
        "--tag": tag,
        "--dry-run": dry_run,
        "--yes": yes,
    }
    client = connect(admin)
    with typed_as(_FLAGS):
        if from_ or to:
            check_flags_fit(given, {"--from", "--to", "--tag", "--dry-run", "--yes"}, handle)
            window = window_fields(topic, from_, to, tag)
            return act_on_window(
                client, _ACTION, window, dry_run=dry_run, ask=not yes, as_json=as_json
            )
        if key:
            check_flags_fit(given, {"--key"}, handle)
            wanted = {"topic": required_text(topic, "--topic"), "key": key}
            return _by_key(client.post("/v1/recall/key", wanted), as_json=as_json)
        check_flags_fit(given, {"--id", "--due"}, "")
        result = client.post(
            "/v1/recall",
            message_fields(handle, topic, id_, due, ways="--id, --key or --from"),
        )
    if as_json:
        print_json(result)
    else:
        typer.echo(result["detail"])
    return Exit.OK


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
