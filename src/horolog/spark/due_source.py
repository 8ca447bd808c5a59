"""The due source (`mode=due`): pending messages become rows when due, read from sorted runs.

The offset is the wall clock: {"due_ms", "rows", "below"}.  A micro-batch has the rows with start ≤
due < end, and end is never later than now, so no row is early.  No state is kept between batches:
two equal offsets return equal rows again after any restart, and `rows` proves it.  `below` counts
the rows due before the offset in the files that were there; if it has grown, rows came too late to
be delivered, and the query fails unless failOnDataLoss=false.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from horolog.admin.client import AdminClient, one_call_s, path_of
from horolog.errors import ErrorCode, HorologError
from horolog.spark.due_lake import LakeTable, is_lake
from horolog.spark.due_pieces import messages_of, piece_rows
from horolog.spark.due_runs import Piece, RunDirectory, SortedFiles, grouped
from horolog.spark.message_columns import arrow_schema
from horolog.spark.reading_options import DueOptions, due_options
from horolog.spark.stream_api import (
    ReadLimit,
    SupportsTriggerAvailableNow,
    limit_of,
    read_limit,
)
from horolog.spark.topic_answers import retry_until
from horolog.spark.topic_range import foreign_offset
from horolog.units import counted

_Offset = dict[str, int]


@dataclass
class DuePart(InputPartition):
    """Pieces of run files for one task."""

    pieces: tuple[Piece, ...]


def now_ms(options: DueOptions) -> int:
    """Return the time of the clock that decides what is due, in epoch ms."""
    if not options.clock:
        return time.time_ns() // 1_000_000
    admin = AdminClient(options.clock, timeout_s=one_call_s(options.timeout_ms))
    now = retry_until(lambda: admin.get(path_of("clock")), options.timeout_ms, "clock")
    return int(now["wall_ms"])


def files_of(path: str) -> SortedFiles:
    """Open the sorted files of a directory of runs, or of a lake's table."""
    return LakeTable(path) if is_lake(path) else RunDirectory(path)


def _parts(pieces: list[Piece], options: DueOptions) -> list[InputPartition]:
    cores = os.cpu_count() or 1
    return [DuePart(group) for group in grouped(pieces, options.per_task, cores)]


def _read(part: InputPartition, options: DueOptions, schema: StructType) -> Iterator[Any]:
    """Yield the record batches of one task."""
    if not isinstance(part, DuePart):  # Spark passes a partition of its own for an empty read
        return
    target, lossy = arrow_schema(schema), not options.fail_on_loss
    if options.pieces:
        yield piece_rows(options.path, part.pieces, options.topic, target, lossy=lossy)
        return
    for piece in part.pieces:
        yield from messages_of(options.path, piece, options.topic, target, lossy=lossy)


class DueBatch(DataSourceReader):
    """A batch read of the messages in [from, to) that are due by now."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = due_options(options)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan tasks of about the same size."""
        options = self._options
        runs = files_of(options.path)
        runs.refresh()
        end = now_ms(options)
        if options.to_ms is not None:
            end = min(end, options.to_ms)
        return _parts(runs.between(options.from_ms or 0, end), options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a task."""
        return _read(partition, self._options, self._schema)


class DueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of messages, each when it becomes due."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = due_options(options)
        self._schema = schema
        self._runs: SortedFiles | None = None
        self._target: int | None = None  # epoch ms where a query with trigger availableNow ends

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the mapped files, which stay in the process that plans."""
        return {**self.__dict__, "_runs": None}

    def _directory(self) -> SortedFiles:
        if self._runs is None:
            self._runs = files_of(self._options.path)
        self._runs.refresh()
        return self._runs

    def initialOffset(self) -> _Offset:  # noqa: N802 - Spark's name
        """Return the offset of option `from`, or the offset before all rows."""
        begin = self._options.from_ms or 0
        return {"due_ms": begin, "rows": 0, "below": self._directory().below(begin)}

    def _end(self) -> int:
        moment = now_ms(self._options) if self._target is None else self._target
        return moment if self._options.to_ms is None else min(moment, self._options.to_ms)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: _Offset | None = None, limit: ReadLimit | None = None
    ) -> _Offset:
        """Return the offset of now, or as far after `start` as the limit allows.

        Return `start` itself if nothing is due.
        """
        # Read the clock first: a file that comes after the refresh is read at a later time.
        end = self._end()
        runs = self._directory()
        if start is None:
            start = self.initialOffset()
        if "due_ms" not in start:
            raise foreign_offset(start, '{"due_ms": 1800000000000, …}')
        begin = start["due_ms"]
        self._check_not_late(start, runs.below(begin))
        if end <= begin:
            return start
        most = limit_of(limit)
        if most:
            end = runs.reach(begin, end, most)
        rows = _count(runs.between(begin, end))
        if not rows:
            return start  # so a file that comes late is not too late
        return {"due_ms": end, "rows": rows, "below": runs.below(end)}

    def _check_not_late(self, start: _Offset, below: int) -> None:
        if self._options.fail_on_loss and below > start["below"]:
            raise HorologError(
                ErrorCode.NOT_FOUND,
                f"{self._options.path}: {counted(below - start['below'], 'row')} due before "
                f"{start['due_ms']} came after that time was delivered; files must be there before "
                "their first row is due (failOnDataLoss=false leaves them out)",
                field="failOnDataLoss",
            )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of option maxRowsPerTrigger."""
        return read_limit(self._options.per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query: what becomes due later is left to others."""
        self._target = now_ms(self._options)

    def partitions(self, start: _Offset, end: _Offset) -> list[InputPartition]:
        """Plan tasks of about the same size."""
        pieces = self._directory().between(start["due_ms"], end["due_ms"])
        found = _count(pieces)
        if self._options.fail_on_loss and start != end and found != end["rows"]:
            raise HorologError(
                ErrorCode.NOT_FOUND,
                f"{self._options.path}: {counted(found, 'row')} due from {start['due_ms']} to "
                f"{end['due_ms']}, but the batch was begun with {end['rows']}; files have come or "
                "gone meanwhile (failOnDataLoss=false goes on)",
                field="failOnDataLoss",
            )
        return _parts(pieces, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a task."""
        return _read(partition, self._options, self._schema)


def _count(pieces: list[Piece]) -> int:
    return int(np.sum([piece.stop - piece.first for piece in pieces], dtype=np.int64))
