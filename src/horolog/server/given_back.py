"""Messages that were leased for a caller who has gone, or whose answer could not be written: nobody has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from horolog.limits import CLIENT_GONE_INVISIBLE_MS
from horolog.protocol.commands import ChangeInvisible, Receive
from horolog.server.running import TakesCommands


def give_back(engine: TakesCommands, command: Receive, receipt_handles: Sequence[str]) -> None:
    """Let others have them soon; a lease would hide them for its invisible time, or as long as its client lives."""
    for handle in receipt_handles:
        back = ChangeInvisible(command.group, command.topic, handle, CLIENT_GONE_INVISIBLE_MS)
        engine.submit(back).add_done_callback(_ignore)


def _ignore(changed: asyncio.Future[Any]) -> None:
    """Nobody waits for it: what is refused comes again when its lease ends."""
    if not changed.cancelled():
        changed.exception()
