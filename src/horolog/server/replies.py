"""Replies to whoever asked: given at once, or held until the log is committed as far as they were computed from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from horolog.broker.effects import Reply
from horolog.errors import HorologError
from horolog.server.ticket import Ticket


def give(replies: Iterable[Reply]) -> None:
    """Settle tickets and futures; those whose callers have gone are passed over."""
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
    """Replies of turns, the oldest first, each with the log end that must be committed before they are given."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, list[Reply]]] = deque()

    def hold(self, end: int, replies: list[Reply]) -> None:
        """Keep the replies of a turn whose log end is `end`, a log position; call `release` next."""
        if replies:
            self._held.append((end, replies))

    def are_due(self, commit: int) -> bool:
        """Whether `release` would give some."""
        return bool(self._held) and self._held[0][0] <= commit

    def release(self, commit: int) -> None:
        """Give those that had to wait for this commit position (a log position), or for a lower one."""
        while self._held and self._held[0][0] <= commit:
            give(self._held.popleft()[1])

    def refuse(self, error: HorologError) -> None:
        """Give this error to all instead, and hold none."""
        held, self._held = self._held, deque()
        for _, replies in held:
            give([Reply(reply.token, error) for reply in replies])
