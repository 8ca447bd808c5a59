"""Replies to callers: given at once, or held until the log that they depend on is committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from horolog.broker.effects import Reply
from horolog.errors import HorologError
from horolog.server.ticket import Ticket


def settle_replies(replies: Iterable[Reply]) -> None:
    """Settle tickets and futures; skip those whose callers have gone."""
    for reply in replies:
        token, result = reply.token, reply.result
        if type(token) is Ticket:
            token.settle(result)
            continue
        assert isinstance(token, asyncio.Future)
        if token.done():
            continue  # the caller has gone
        if isinstance(result, HorologError):
            token.set_exception(result)
        else:
            token.set_result(result)


class HeldReplies:
    """Replies of turns, oldest first, each with the log end that must be committed first."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, list[Reply]]] = deque()

    def hold(self, end: int, replies: list[Reply]) -> None:
        """Keep the replies of a turn with log end `end`, a log position; call `release` next."""
        if replies:
            self._held.append((end, replies))

    def are_due(self, commit: int) -> bool:
        """Return whether `release` would give any reply."""
        return bool(self._held) and self._held[0][0] <= commit

    def release(self, commit: int) -> None:
        """Give the replies whose log end is at or below this commit position (a log position)."""
        while self._held and self._held[0][0] <= commit:
            settle_replies(self._held.popleft()[1])

    def refuse(self, error: HorologError) -> None:
        """Give `error` in place of every held reply, and hold none."""
        held, self._held = self._held, deque()
        for _, replies in held:
            settle_replies([Reply(reply.token, error) for reply in replies])
