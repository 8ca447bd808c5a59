"""horolog reschedule."""

from __future__ import annotations

from typing import Annotated

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as
from horolog.cli.output import print_json, print_stored
from horolog.cli.recall import MESSAGE_FLAGS, message_fields

_FLAGS = {
    **MESSAGE_FLAGS,
    "new_deliver_at_ms": "--to",
    "in_ms": "--to",
    "delivery_timestamp": "--to",
}


def reschedule(
    handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE", help="As `horolog send` or a RocketMQ client was given it."
        ),
    ] = "",
    *,
    to: Annotated[
        str,
        typer.Option(metavar="TIME|DURATION", help="The new due time, or how long from now."),
    ],
    topic: Annotated[str, typer.Option(metavar="NAME", help="Without a HANDLE: its topic,")] = "",
    id_: Annotated[str, typer.Option("--id", metavar="ID", help="its id")] = "",
    due: Annotated[str, typer.Option(metavar="TIME", help="and its due time until now.")] = "",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Let a scheduled message be due at another time; one that has come makes it visible at once.

    The old handle is void then; the new one cancels it, or moves it again. As for a recall the
    answer is the truth: RESCHEDULED (exit code 0), ALREADY_DELIVERED (4) or NOT_FOUND (3).

    Examples:
      horolog reschedule djEgcmVtaW5kZXJzIGJyb2tlci1hIDE3NzI5NjUyMDAwMDEgMDFBQiA5Ng== --to 2h
      horolog reschedule --topic t --id 01AB --due 2026-03-08T10:20Z --to 2026-03-09T10:20Z
    """
    wanted = {**message_fields(handle, topic, id_, due), **_new_time(to)}
    with typed_as(_FLAGS):
        moved = connect(admin).post("/v1/reschedule", wanted)
    if as_json:
        print_json(moved)
        return
    print_stored(moved)


def _new_time(text: str) -> dict[str, int]:
    from horolog.errors import ErrorCode, HorologError
    from horolog.units import parse_duration_ms, parse_time_ms

    if "-" not in text and not text.strip().isdigit():
        return {"in_ms": parse_duration_ms(text, field="--to")}
    try:
        return {"new_deliver_at_ms": parse_time_ms(text, field="--to")}
    except HorologError as error:
        raise HorologError(
            ErrorCode.BAD_REQUEST, f"{error.message}; or a duration such as 2h", field="--to"
        ) from None
