"""Answers shared by clients that ask the same at once: ten dashboards cost what one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable

from horolog.limits import SHARED_ANSWERS


class Shared:
    """Answers as bytes, by request.

    fresh_s  how long an answer is shared
    now_s    a monotonic clock; None: the event loop's
    """

    def __init__(self, fresh_s: float, now_s: Callable[[], float] | None = None) -> None:
        self._fresh_s = fresh_s
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        # The oldest answer first
        self._made: dict[Hashable, tuple[float, asyncio.Task[bytes]]] = {}

    async def answer(
        self, asked: Hashable, make: Callable[[], Coroutine[None, None, bytes]]
    ) -> bytes:
        """Return the result of `make`, called once for all; cancelling one caller harms no other.

        A failure goes to those who waited for it, and is not kept.
        """
        known = self._made.get(asked)
        if known is None or self._is_old(*known):
            self._made.pop(asked, None)
            self._forget()
            made = asyncio.get_running_loop().create_task(make())
            known = self._made[asked] = (self._now_s(), made)
        return await asyncio.shield(known[1])

    def _is_old(self, made_s: float, made: asyncio.Task[bytes]) -> bool:
        if not made.done():
            return False
        failed = made.cancelled() or made.exception() is not None
        return failed or self._now_s() - made_s >= self._fresh_s

    def _forget(self) -> None:
        """Drop stale answers; if none is stale and the cache is full, drop the oldest."""
        old = [asked for asked, known in self._made.items() if self._is_old(*known)]
        full = len(self._made) - len(old) >= SHARED_ANSWERS
        for asked in old or ([next(iter(self._made))] if full else []):
            del self._made[asked]
