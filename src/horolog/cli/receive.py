"""`horolog receive`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_json
from horolog.limits import INVISIBLE_DEFAULT_MS
from horolog.units import format_duration_ms

_FLAGS = {
    "topic": "TOPIC",
    "group": "--group",
    "limit": "--max",
    "invisible_ms": "--invisible",
    "filter": "--filter",
}


def receive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    group: Annotated[
        str, typer.Option(metavar="G", help="Consumer group that takes the messages.")
    ],
    ack: Annotated[
        bool,
        typer.Option(
            "--ack",
            help="Acknowledge messages once they are printed; the group will not see them again.",
        ),
    ] = False,
    max_: Annotated[
        int, typer.Option("--max", metavar="N", help="Receive at most N messages, 1 to 32.")
    ] = 1,
    wait: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long to wait for a first message, such as 2m."),
    ] = "0s",
    invisible: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Without --ack: deliver them again after this time, at least 10s.",
        ),
    ] = format_duration_ms(INVISIBLE_DEFAULT_MS),
    filter_: Annotated[
        str,
        typer.Option("--filter", metavar="TAGS", help="Tags, such as 'a || b'; '*': all messages."),
    ] = "*",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Receive messages that are visible now, as a member of a consumer group.

    Prints the body of each message, after a line that begins with #. Without messages: exit code 0
    and a note on stderr.

    Examples:
      horolog receive reminders --group me --ack
      horolog receive reminders --group me --wait 2m --max 32
    """
    from horolog.errors import refused
    from horolog.units import parse_duration_ms

    if ack and sys.stdout is None:
        raise refused("--ack", "stdout is closed, so no message could be printed")
    request = {
        "topic": topic,
        "group": group,
        "filter": filter_,
        "limit": max_,
        "invisible_ms": parse_duration_ms(invisible, field="--invisible"),
    }
    with typed_as(_FLAGS):
        found = _take(admin, request, parse_duration_ms(wait, field="--wait"))
    if as_json:
        print_json({"messages": found})
    elif not found:
        typer.echo(f"horolog: nothing to receive from {topic} for group {group}", err=True)
    else:
        for message in found:
            _print_message(message)
    # Only after the output: messages that a full disk or a closed pipe did not take come again.
    if ack and found:
        sys.stdout.flush()
        _acknowledge(admin, topic, group, found)


def _take(admin: str, request: dict[str, Any], wait_ms: int) -> list[dict[str, Any]]:
    """Poll until there is a message, or the time is over.

    The broker's longest poll is 20 s.
    """
    import time

    from horolog.limits import POLL_MAX_MS, SECOND_MS

    client = connect(admin)
    deadline = time.monotonic() + wait_ms / SECOND_MS
    while True:
        left_ms = max(int((deadline - time.monotonic()) * SECOND_MS), 0)
        poll_ms = min(left_ms, POLL_MAX_MS)
        result = client.post("/v1/receive", {**request, "poll_ms": poll_ms})
        found: list[dict[str, Any]] = result["messages"]
        if found or poll_ms == left_ms:
            return found


def _acknowledge(admin: str, topic: str, group: str, found: list[dict[str, Any]]) -> None:
    from horolog.admin.status import error_from_body

    handles = [message["receipt_handle"] for message in found]
    result = connect(admin).post(
        "/v1/ack", {"topic": topic, "group": group, "receipt_handles": handles}
    )
    for refused in result["refused"]:
        raise error_from_body(refused)


def _print_message(message: dict[str, Any]) -> None:
    words = [f"# {message['message_id']}", f"queue {message['queue_id']}"]
    words.append(f"offset {message['queue_offset']}")
    if message["deliver_at"]:
        words.append(f"due {message['deliver_at']}")
    if message["tag"]:
        words.append(f"tag {message['tag']}")
    if message["attempt"] > 1:
        words.append(f"attempt {message['attempt']}")
    typer.echo(", ".join(words))
    typer.echo(message.get("body", f"(base64) {message.get('body_base64')}"))
