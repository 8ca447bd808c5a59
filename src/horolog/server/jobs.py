"""One job after the other in a thread of its own, for callers in the event loop who want no future for each.

A future of the loop would be told one pass later than this callback, and the end of a write is what answers wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from horolog.server.threads import threads_wanted


class Jobs:
    """A thread and the jobs that wait for it.  Call it from the loop's thread.

    The thread is there from the beginning: refused in the middle of a turn, it would leave its jobs without an end.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        with threads_wanted():
            self._pool.submit(int)
        self._loop = loop

    def submit(self, job: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """Queue a job; `done` is called in the loop's thread with what it raised, or None."""

        def tell(ended: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(done, ended.exception())

        self._pool.submit(job).add_done_callback(tell)

    def stop(self) -> None:
        """Return when all jobs are done."""
        self._pool.shutdown()
