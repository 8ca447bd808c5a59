"""Progress of long commands, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 5.0
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Report(Protocol):
    """Where a command says how far it is."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """What it is at, and how many bytes of how many are done; may be called often."""
        ...


def size_text(count: int) -> str:
    """Bytes for people: "1.5 MiB"."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


@contextmanager
def progress(verb: str, *, quiet: bool = False) -> Iterator[Report]:
    """A place to tell progress; `quiet` shows nothing."""
    if quiet:
        yield lambda what, done, total: None
    elif sys.stderr.isatty():
        with _bar(verb) as report:
            yield report
    else:
        yield _Lines(verb)


class _Lines:
    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._at = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._at < LINE_EVERY_S:
            return
        self._at = now
        share = 100 * done // total if total else 100
        print(
            f"{self._verb} {share} % ({size_text(done)} of {size_text(total)}) {what}",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def _bar(verb: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None, what="")

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, what=what[-40:])

        yield report
