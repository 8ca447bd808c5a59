"""Jobs in a thread of their own, one after another, without a future for each.

A future of the loop would be settled one pass of the loop later than the callback used here, and
answers wait for the end of a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from horolog.server.threads import threads_wanted


class Jobs:
    """A thread and the jobs that wait for it.  Call its methods from the loop's thread.

    The thread starts in the constructor: if the system refused it in the middle of a turn, the jobs
    would never end.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        with threads_wanted():
            self._pool.submit(int)
        self._loop = loop

    def submit(self, job: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """Queue a job; `done` is called in the loop's thread with its exception, or None."""

        def report(ended: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(done, ended.exception())

        self._pool.submit(job).add_done_callback(report)

    def stop(self) -> None:
        """Wait until all jobs are done."""
        self._pool.shutdown()
