"""A stream that ends when it has read what there is."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

_PATIENCE_S = 180  # such a query takes some ten seconds
_ATTEMPTS = 2


def run_available(frame: Any, sink: Any, place: Path) -> list[int]:
    """Give `sink` every micro-batch, with a checkpoint in `place`; gives their sizes in rows, but for empty ones.

    A query that stands still is stopped and begun again once, as whoever runs it would do; a warning tells what
    the threads of Spark were doing.  AssertionError when it stands still again.
    """
    for _ in range(_ATTEMPTS):
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            if query.awaitTermination(_PATIENCE_S):
                return [int(n) for each in query.recentProgress if (n := each["numInputRows"])]
            stands = f"a query stands still: {query.status}\n{_threads(frame.sparkSession)}"
            warnings.warn(stands, stacklevel=2)
        finally:
            query.stop()
    raise AssertionError(stands)


def _threads(session: Any) -> str:
    """The stacks of the threads that run queries and tasks."""
    told = []
    for each in session._jvm.java.lang.Thread.getAllStackTraces().entrySet().toArray():
        name = each.getKey().getName()
        if name.startswith(("stream execution", "Executor task", "serve-", "Thread-")):
            told.append("\n  ".join([name, *map(str, each.getValue())]))
    return "\n".join(told)
