"""The progress of a Spark job: a bar on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Show: TypeAlias = Callable[[int, int], None]  # (tasks done, all tasks)
_LOOK_EVERY_S = 0.3
_LINE_EVERY_S = 5.0


@contextmanager
def watched(session: SparkSession, what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on stderr the progress of the jobs that run meanwhile; `quiet` shows nothing."""
    if quiet:
        yield
        return
    with _shown(what) as show:
        ended = threading.Event()
        looker = threading.Thread(target=_look, args=(session, show, ended), daemon=True)
        looker.start()
        try:
            yield
        finally:
            ended.set()
            looker.join()


def _look(session: SparkSession, show: Show, ended: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    while not ended.wait(_LOOK_EVERY_S):
        done = total = 0
        try:
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done += stage.numCompletedTasks
                    total += stage.numTasks
        except Exception:  # noqa: BLE001 - the job itself reports a session that ends
            return
        if total:
            show(done, total)


@contextmanager
def _shown(what: str) -> Iterator[Show]:
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str) -> Show:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            print(f"{what}: {done} of {total} tasks", file=sys.stderr, flush=True)

    return show
