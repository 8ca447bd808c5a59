"""A stream that ends when it has read all that is available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PATIENCE_S = 180  # such a query takes some ten seconds normally


def run_available(frame: Any, sink: Any, place: Path) -> list[int]:
    """Give `sink` every micro-batch, with a checkpoint in `place`; return the non-empty sizes in rows.

    Raise AssertionError with the stacks of Spark's threads if the query makes no progress.
    """
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_PATIENCE_S), (
            f"stands still: {query.status}\n{_threads(frame.sparkSession)}"
        )
    finally:
        query.stop()
    return [int(each["numInputRows"]) for each in query.recentProgress if each["numInputRows"]]


def _threads(session: Any) -> str:
    """Return the stacks of the threads that run queries and tasks."""
    names = []
    for each in session._jvm.java.lang.Thread.getAllStackTraces().entrySet().toArray():
        name = each.getKey().getName()
        if name.startswith(("stream execution", "Executor task", "serve-", "Thread-")):
            names.append("\n  ".join([name, *map(str, each.getValue())]))
    return "\n".join(names)
