"""Actions on all messages of a window: a dry run and a question first, then the action."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import LONG_S
from horolog.cli.output import print_json
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient


class WindowAction(NamedTuple):
    """An action on the messages of a window, with its words.

    path    of the request
    verb    for the question: "Cancel"
    would   for a dry run: "would be cancelled"
    status  before the count of what was done: "CANCELLED"
    did     for what was done: "will not be handed over"
    none    if the user declines: "nothing was recalled"
    done    the field of the answer that counts the messages done
    """

    path: str
    verb: str
    would: str
    status: str
    did: str
    none: str
    done: str


def act_on_window(
    client: AdminClient,
    action: WindowAction,
    window: dict[str, Any],
    *,
    dry_run: bool,
    ask: bool,
    as_json: bool,
) -> int:
    """Ask for confirmation on a terminal, then act on the window and print the count."""
    if ask and not dry_run and sys.stdin.isatty():
        matched = _post(client, action, window, dry_run=True)["matched"]
        if not typer.confirm(
            f"{action.verb} {counted(matched, 'message')} of {window['topic']}?", err=True
        ):
            typer.echo(action.none, err=True)
            return Exit.REFUSED
    if dry_run:
        result = _post(client, action, window, dry_run=True)
    else:
        with _explain_interruption(window):
            result = _act(client, action, window, quiet=as_json)
    if as_json:
        print_json(result)
        return Exit.OK
    if dry_run:
        size = counted(result["size_bytes"], "byte")
        typer.echo(f"{counted(result['matched'], 'message')} ({size}) {action.would}")
        return Exit.OK
    typer.echo(f"{action.status}: {counted(result[action.done], 'message')} {action.did}")
    if result.get("left"):
        left = counted(result["left"], "message")
        typer.echo(f"{left} not moved: no room in the properties for a new due time", err=True)
    return Exit.OK


@contextmanager
def _explain_interruption(window: dict[str, Any]) -> Iterator[None]:
    """Tell the user how to finish an action whose answer did not come."""
    from horolog.admin.status import UnreachableError

    name = window.get("operation_id")
    again = (
        f"the same command{f' with --operation {name}' if name else ''} does the rest, and nothing "
        "twice"
    )
    try:
        yield
    except UnreachableError as error:
        error.add_note(f"Some of it may be done: {again}")
        raise
    except KeyboardInterrupt:
        typer.echo(f"the broker continues on its own; if it does not, {again}", err=True)
        raise


def _act(
    client: AdminClient, action: WindowAction, window: dict[str, Any], *, quiet: bool
) -> dict[str, Any]:
    """Act on a whole window; on a terminal a bar shows the progress of the broker."""
    from horolog.admin.status import UnreachableError
    from horolog.cli.progress import is_shown, progress, watched
    from horolog.errors import HorologError

    if quiet or not is_shown():
        return _post(client, action, window, dry_run=False)
    act = action.path.split("/")[2]
    matched = int(_post(client, action, window, dry_run=True)["matched"])
    meant = {name: window[name] for name in ("topic", "from_ms", "to_ms")}
    meant |= {"tag": window.get("tag", ""), "act": act.replace("-", "_"), "dry_run": False}
    with progress(act, counts="messages") as report:

        def look() -> None:
            with suppress(HorologError, UnreachableError):  # the request itself reports the error
                under_way = client.get("/v1/bulk")["under_way"]
                for place, row in enumerate(under_way):
                    if all(row[name] == value for name, value in meant.items()):
                        what = f"waits for {place} before it" if place else ""
                        report(what, min(row["done"], matched), matched)
                        return

        return watched(lambda: _post(client, action, window, dry_run=False), look)


def _post(
    client: AdminClient, action: WindowAction, window: dict[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    return client.post(action.path, {**window, "dry_run": dry_run}, timeout_s=LONG_S)
