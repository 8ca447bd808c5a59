"""Progress of long commands on stderr: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

_LOOK_EVERY_S = 0.5
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_Result = TypeVar("_Result")


class Report(Protocol):
    """A callable that shows the progress of a command."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the current step, and `done` of `total` bytes (or messages); may be called often."""
        ...


def size_text(count: int) -> str:
    """Return bytes for people: "1.5 MiB"."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def is_shown() -> bool:
    """Return whether progress is visible; if not, requests that only serve it can be skipped."""
    return sys.stderr.isatty()


@contextmanager
def progress(verb: str, *, counts: str = "", quiet: bool = False) -> Iterator[Report]:
    """Yield a reporter of progress; `quiet` shows nothing.

    counts  what is counted, "messages"; "": bytes
    """
    if quiet or not is_shown():
        yield lambda what, done, total: None
    else:
        with _bar(verb, counts) as report:
            yield report


def watched(
    ask: Callable[[], _Result], look: Callable[[], None], *, every_s: float = _LOOK_EVERY_S
) -> _Result:
    """Return the result of a long request, or raise its error; call `look` meanwhile."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            errors.append(error)

    asking = threading.Thread(target=run, name="horolog-ask", daemon=True)
    asking.start()
    asking.join(every_s)
    while asking.is_alive():
        look()
        asking.join(every_s)
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def _bar(verb: str, counts: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    done: tuple[Any, ...] = (DownloadColumn(binary_units=True), TransferSpeedColumn())
    if counts:
        done = (TextColumn("{task.completed:,.0f} " + counts),)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *done,
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None, what="")

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, what=what[-40:])

        yield report
