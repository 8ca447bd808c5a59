"""`horolog reschedule`: change the due time of one message, or of all of a window."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.message_flags import (
    MESSAGE_FLAGS,
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
    Handle,
    OfDue,
    OfId,
    OfTag,
    OfTopic,
    Yes,
    connect,
    typed_as,
)
from horolog.cli.output import print_json, print_stored
from horolog.cli.windows import WindowAction, act_on_window

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient

_FLAGS = {
    **MESSAGE_FLAGS,
    "new_deliver_at_ms": "--to",
    "in_ms": "--to",
    "delivery_timestamp": "--to",
    "shift_ms": "--by",
    "operation_id": "--operation",
    "from_ms": "--from",
    "to_ms": "--before",
    "to": "--before",
    "tag": "--tag",
    "expected_deliver_at_ms": "--if-due",
}
_ACTION = WindowAction(
    "/v1/reschedule/window",
    "Move",
    "would be moved",
    "RESCHEDULED",
    "due at another time",
    "nothing was moved",
    "moved",
)


def reschedule(
    handle: Handle = "",
    *,
    to: Annotated[
        str,
        typer.Option(metavar="TIME|DURATION", help="The new due time, or how long from now."),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="With --from: shift each message by this much; -1h is earlier."
        ),
    ] = "",
    topic: OfTopic = "",
    id_: OfId = "",
    due: OfDue = "",
    if_due: Annotated[
        str, typer.Option(metavar="TIME", help="For one message: only if it is due at this time.")
    ] = "",
    from_: DueFrom = "",
    before: Annotated[
        str, typer.Option(metavar="TIME", help="With --from: and due before this time.")
    ] = "",
    tag: OfTag = "",
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="With --by: name of the shift, which shifts no message twice."
        ),
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Change the due time of scheduled messages: one, or all of a window.

    If the new time has passed, messages become visible at once. The old recall handle of a message
    becomes void; the new one cancels or moves the message. The result is RESCHEDULED (exit code 0),
    ALREADY_DELIVERED (4) or NOT_FOUND (3). The same command with the same --operation finishes an
    interrupted shift.

    Examples:
      horolog reschedule djEgcmVtaW5kZXJzIGJyb2tlci1hIDE3NzI5NjUyMDAwMDEgMDFBQiA5Ng== --to 2h
      horolog reschedule --topic t --id 01AB --due 2026-03-08T10:20Z --to 2026-03-09T10:20Z
      horolog reschedule --topic t --from 2026-03-08T00:00Z --before 2026-03-09T00:00Z --by 1h --dry-run
    """
    from horolog.units import parse_time_ms

    client = connect(admin)
    with typed_as(_FLAGS):
        if from_ or before:
            one = {"--id": id_, "--due": due, "--if-due": if_due}
            check_flags_fit(one, {"--from", "--before"}, handle)
            wanted: dict[str, Any] = {
                **window_fields(topic, from_, before, tag, to_flag="--before"),
                **_new_times(client, to, by, operation),
            }
            return act_on_window(
                client, _ACTION, wanted, dry_run=dry_run, ask=not yes, as_json=as_json
            )
        many = {"--by": by, "--tag": tag, "--operation": operation}
        check_flags_fit({**many, "--dry-run": dry_run, "--yes": yes}, set(), handle)
        wanted = {**message_fields(handle, topic, id_, due), **_new_time(required_text(to, "--to"))}
        if if_due:
            wanted["expected_deliver_at_ms"] = parse_time_ms(if_due, field="--if-due")
        moved = client.post("/v1/reschedule", wanted)
    if as_json:
        print_json(moved)
    else:
        print_stored(moved)
    return Exit.OK


def _new_times(client: AdminClient, to: str, by: str, operation: str) -> dict[str, Any]:
    """Return the fields for the new due times of a window: one time for all, or a shift of each."""
    from horolog.errors import refused
    from horolog.units import parse_duration_ms

    if bool(to) == bool(by):
        raise refused("--to", "give either --to or --by")
    if to:
        check_flags_fit({"--operation": operation}, {"--to"}, "")
        fields = _new_time(to)
        at_ms = fields.get("new_deliver_at_ms")
        if at_ms is None:  # from the clock of the broker
            at_ms = client.get("/v1/clock")["wall_ms"] + fields["in_ms"]
        return {"new_deliver_at_ms": at_ms}
    sign = -1 if by.startswith("-") else 1
    shift_ms = sign * parse_duration_ms(by.removeprefix("-"), field="--by")
    # Named here, so that an interrupted shift can be finished, even if no answer came.
    return {"shift_ms": shift_ms, "operation_id": operation or f"cli-{token_hex(8)}"}


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
