"""Release messages leased for a caller that has gone, or whose answer was not written or not read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from horolog.limits import CLIENT_GONE_INVISIBLE_MS
from horolog.protocol.commands import ChangeInvisible, Receive
from horolog.server.running import TakesCommands


def release_leases(engine: TakesCommands, command: Receive, receipt_handles: Sequence[str]) -> None:
    """Make leased messages visible again soon.

    Otherwise the leases would hide them for their invisible time, or as long as the client lives.
    """
    for handle in receipt_handles:
        back = ChangeInvisible(command.group, command.topic, handle, CLIENT_GONE_INVISIBLE_MS)
        engine.submit(back).add_done_callback(_ignore)


def _ignore(changed: asyncio.Future[Any]) -> None:
    """Ignore the result: a message whose release is refused comes again when its lease ends."""
    if not changed.cancelled():
        changed.exception()
