"""horolog message."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_fields, print_json

_FLAGS = {"topic": "--topic", "id": "--id", "message_id": "--id", "key": "--key"}


def message(
    *,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Its topic.")],
    id_: Annotated[str, typer.Option("--id", metavar="ID", help="Its message id.")] = "",
    key: Annotated[str, typer.Option(metavar="KEY", help="All messages with this key.")] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Say what became of a message: pending, delivered, recalled, moved, lake or quarantined.

    One that waits has a due time and a recall handle, a delivered one its place in a queue.

    Examples:
      horolog message --topic reminders --id 01AB
      horolog message --topic reminders --key UA1545
    """
    from horolog.errors import ErrorCode, HorologError

    if bool(id_) == bool(key):
        raise HorologError(ErrorCode.BAD_REQUEST, "--id: give either --id or --key", field="--id")
    with typed_as(_FLAGS):
        result = connect(admin).get(
            "/v1/messages/find", {"topic": topic, "id": id_ or None, "key": key or None}
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
        "state": found["state"],
        "due": found["deliver_at"],
        "tag": found["tag"],
        "keys": " ".join(found["keys"]),
        "queue": f"{found['queue_id']}, offset {found['queue_offset']}" if visible else "",
        "origin": found["origin"],
        "recall handle": found["recall_handle"],
    }
