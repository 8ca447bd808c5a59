"""Run jobs in threads, so that the waiting caller always learns how its job ended.

A panic of a library written in Rust is not an `Exception` but a bare `BaseException`.  Raised in a
thread it would end the thread without a report; raised in a task it passes every handler.  So it
becomes a HorologError here.

The system may refuse a thread (`threads_wanted`).  A part that cannot wait for a thread has one
from its start on (`jobs`).

    in_thread   a daemon thread, unlike asyncio's, so the process can end: for jobs of minutes
    in_pool     a thread of the loop's pool: for short jobs
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from horolog.errors import ErrorCode, HorologError, first_line

_Result = TypeVar("_Result")
_REFUSED = "can't start new thread"  # CPython's message


def _only_exceptions(error: BaseException) -> Exception:
    """Return an exception that a future can carry and a handler can catch."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    refusal = HorologError(ErrorCode.INTERNAL, f"{type(error).__name__}: {first_line(error)}")
    refusal.__cause__ = error
    return refusal


@contextmanager
def threads_wanted() -> Iterator[None]:
    """Convert the refusal of a thread inside the block into a HorologError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _REFUSED:
            raise
        raise HorologError(
            ErrorCode.INTERNAL,
            "the system gives this process no more threads: raise TasksMax of its unit, the limit "
            "on pids of its container, or ulimit -u",
        ) from error


def in_thread(name: str, job: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Start a job in a daemon thread named `name`; the future returns its result or exception."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: Exception | None) -> None:
        if future.done():
            return  # the caller no longer waits
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: _Result | None = None
        error: Exception | None = None
        try:
            result = job()
        except BaseException as raised:  # noqa: BLE001 - raised where the future is awaited
            error = _only_exceptions(raised)
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, result, error)

    try:
        with threads_wanted():
            threading.Thread(target=work, name=name, daemon=True).start()
    except HorologError as refusal:
        future.set_exception(refusal)
    return future


async def in_pool(
    job: Callable[..., _Result], *arguments: Any, pool: Executor | None = None
) -> _Result:
    """Run a job in a thread of `pool`, or of the loop's own pool."""

    def work() -> _Result:
        try:
            return job(*arguments)
        except BaseException as raised:
            error = _only_exceptions(raised)
            if error is raised:
                raise
            raise error from raised

    with threads_wanted():
        running = asyncio.get_running_loop().run_in_executor(pool, work)
    return await running
