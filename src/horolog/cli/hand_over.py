"""`horolog hand-over`: hand over one message, or all of a window, before they are due."""

from __future__ import annotations

from horolog.cli.exits import Exit
from horolog.cli.message_flags import (
    MESSAGE_FLAGS,
    WINDOW_FLAGS,
    check_flags_fit,
    message_fields,
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
from horolog.cli.output import print_json, print_stored
from horolog.cli.windows import WindowAction, act_on_window

_FLAGS = {**MESSAGE_FLAGS, **WINDOW_FLAGS}
_ACTION = WindowAction(
    "/v1/hand-over/window",
    "Hand over",
    "would be handed over",
    "HANDED_OVER",
    "in their queues",
    "nothing was handed over",
    "moved",
)


def hand_over(
    handle: Handle = "",
    *,
    topic: OfTopic = "",
    id_: OfId = "",
    due: OfDue = "",
    from_: DueFrom = "",
    to: DueTo = "",
    tag: OfTag = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Hand over scheduled messages now, before they are due: one, or all of a window.

    The result is HANDED_OVER (exit code 0), ALREADY_DELIVERED (4) or NOT_FOUND (3). No message is
    handed over twice.

    Examples:
      horolog hand-over djEgcmVtaW5kZXJzIGJyb2tlci1hIDE3NzI5NjUyMDAwMDEgMDFBQiA5Ng==
      horolog hand-over --topic reminders --id 01AB --due 2026-03-08T10:20:00Z
      horolog hand-over --topic reminders --from 2026-03-08T00:00Z --to 2026-03-09T00:00Z --dry-run
    """
    client = connect(admin)
    with typed_as(_FLAGS):
        if from_ or to:
            check_flags_fit({"--id": id_, "--due": due}, {"--from", "--to"}, handle)
            window = window_fields(topic, from_, to, tag)
            return act_on_window(
                client, _ACTION, window, dry_run=dry_run, ask=not yes, as_json=as_json
            )
        check_flags_fit({"--tag": tag, "--dry-run": dry_run, "--yes": yes}, set(), handle)
        done = client.post("/v1/hand-over", message_fields(handle, topic, id_, due))
    if as_json:
        print_json(done)
    else:
        print_stored(done)
    return Exit.OK
