"""`horolog send`."""

from __future__ import annotations

from typing import Annotated

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_json, print_stored

_FLAGS = {
    "body": "BODY",
    "topic": "TOPIC",
    "tag": "--tag",
    "keys": "--key",
    "message_group": "--message-group",
    "properties": "--property",
    "in_ms": "--in",
    "deliver_at_ms": "--at",
}


def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="The text to send; - reads stdin.")],
    *,
    at: Annotated[
        str,
        typer.Option(metavar="TIME", help="Due time, ISO 8601 with a zone, or epoch milliseconds."),
    ] = "",
    in_: Annotated[
        str,
        typer.Option(
            "--in", metavar="DURATION", help="Due after this time, such as 90s, 24h or 1h30m."
        ),
    ] = "",
    tag: Annotated[str | None, typer.Option(help="Tag, for consumers that filter.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A key; may be repeated.")
    ] = None,
    message_group: Annotated[
        str | None,
        typer.Option(
            metavar="G", help="Message group; messages of one group are consumed in order."
        ),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Send one message: now, or due at a time (--at) or after a while (--in).

    The printed recall handle cancels the message with `horolog recall`. --in counts from the broker's
    clock.

    Examples:
      horolog send reminders "stand up" --in 90s
      horolog send reminders "boarding" --at 2026-03-08T10:20:00Z --tag gate --key UA1545
      horolog send audit - --property source=cron < report.txt
      horolog send orders "paid" --message-group order-17
    """
    from horolog.errors import ErrorCode, HorologError
    from horolog.units import parse_duration_ms, parse_time_ms

    if at and in_:
        raise HorologError(ErrorCode.BAD_REQUEST, "--in: give either --at or --in", field="--in")
    message = {
        "topic": topic,
        **payload(body),
        "deliver_at_ms": parse_time_ms(at, field="--at") if at else None,
        "in_ms": parse_duration_ms(in_, field="--in") if in_ else None,
        "tag": tag,
        "keys": key or None,
        "message_group": message_group,
        "properties": properties_of(property_ or []),
    }
    with typed_as({**_FLAGS, "delivery_timestamp": "--at" if at else "--in"}):
        sent = connect(admin).post("/v1/messages", message)
    if as_json:
        print_json(sent)
        return
    print_stored(sent)


def payload(body: str) -> dict[str, str]:
    """Return the request field that carries a BODY argument; - reads stdin.

    An empty or too large body is refused here as the broker would refuse it, which would not read
    all of it.
    """
    import base64
    import sys

    from horolog.protocol.rocketmq.message import check_body

    content = sys.stdin.buffer.read() if body == "-" else body.encode()
    with typed_as(_FLAGS):
        check_body(content)
    if body != "-":
        return {"body": body}
    return {"body_base64": base64.b64encode(content).decode()}


def properties_of(pairs: list[str]) -> dict[str, str] | None:
    """Return the properties of the --property flags; None without any."""
    from horolog.errors import ErrorCode, HorologError

    properties = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise HorologError(
                ErrorCode.BAD_REQUEST, f"--property: {pair!r} is not NAME=VALUE", field="--property"
            )
        properties[name] = text
    return properties or None
