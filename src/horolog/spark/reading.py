"""Topics as DataFrames and streams; what becomes due (`mode=due`) is in `due_source`.

Readers are pickled into tasks: they hold options and a schema, and open connections and files where they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from horolog.errors import ErrorCode, HorologError
from horolog.spark.message_columns import (
    DUE_SCHEMA,
    MESSAGE_SCHEMA,
    PIECE_SCHEMA,
    arrow_schema,
    check_projection,
    fitted,
)
from horolog.spark.message_decode import Records
from horolog.spark.reading_options import (
    DUE,
    TOPIC,
    TopicOptions,
    is_pieces,
    mode_of,
    topic_options,
)
from horolog.spark.stream_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limit_of,
)
from horolog.spark.topic_answers import Bounds, TopicAnswers, patient
from horolog.spark.topic_parts import FilePart, read_part
from horolog.spark.topic_range import (
    Ranges,
    as_offset,
    batch_ranges,
    chosen_bounds,
    from_offset,
    limited,
    place_of,
    resolved,
    stretches,
    within_times,
)

if TYPE_CHECKING:
    from horolog.spark.topic_files import TopicFiles

__all__ = ["batch_reader", "schema_of", "stream_reader"]


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns when the user names none."""
    if mode_of(options) == TOPIC:
        return MESSAGE_SCHEMA
    return PIECE_SCHEMA if is_pieces(options) else DUE_SCHEMA


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """A reader for `spark.read`."""
    check_projection(schema, schema_of(options))
    if mode_of(options) == DUE:
        from horolog.spark.due_source import DueBatch

        return DueBatch(options, schema)
    return TopicBatch(topic_options(options, is_stream=False), schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """A reader for `spark.readStream`."""
    check_projection(schema, schema_of(options))
    if mode_of(options) == DUE:
        from horolog.spark.due_source import DueStream

        return DueStream(options, schema)
    return TopicStream(topic_options(options, is_stream=True), schema)


@dataclass
class TopicPart(InputPartition):
    """Queue offsets [first, stop) of one queue for one task; `files` says where they lie on a shared disk."""

    queue: int
    first: int
    stop: int
    files: FilePart | None


def _parts(
    place: TopicAnswers | TopicFiles, ranges: Ranges, options: TopicOptions
) -> list[TopicPart]:
    parts = []
    for queue, first, stop in stretches(ranges, options.per_task):
        files = None
        if not isinstance(place, TopicAnswers):
            files = place.part(queue, first, stop)._replace(lossy=not options.fail_on_loss)
        parts.append(TopicPart(queue, first, stop, files))
    return parts


def _read(part: InputPartition, options: TopicOptions, schema: StructType) -> Iterator[Any]:
    """Record batches of one task."""
    if not isinstance(part, TopicPart):  # Spark's own, when there is nothing to read
        return
    target = arrow_schema(schema)
    found = read_part(part.files) if part.files is not None else _asked(part, options)
    for records in found:
        for kept in _in_time(records, options).pieces():
            if not len(kept):
                continue
            columns = kept.columns(target.names)
            if "topic" in target.names:
                columns["topic"] = pa.repeat(pa.scalar(options.topic, pa.string()), len(kept))
            yield fitted(columns, target)


def _asked(part: TopicPart, options: TopicOptions) -> Iterator[Records]:
    """The same over HTTP; with failOnDataLoss=false what retention drops meanwhile, and damage, is passed over."""
    place = TopicAnswers(options.broker, options.topic, options.timeout_ms)
    first = part.first
    try:
        while True:
            try:
                for records in place.read(
                    part.queue, first, part.stop, lossy=not options.fail_on_loss
                ):
                    first = int(records.queue_offsets[-1]) + 1
                    yield records
                return
            except HorologError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                if options.fail_on_loss:
                    raise _lost(
                        options.topic, part.queue, f"cannot be read ({error.message})"
                    ) from None
                kept = place.bounds().get(part.queue)
                if kept is None or kept.first <= first:
                    return  # the end of the queue was lost, not its beginning
                first = kept.first
    finally:
        place.close()


def _lost(topic: str, queue: int, what: str) -> HorologError:
    return HorologError(
        ErrorCode.NOT_FOUND,
        f"topic {topic!r}: queue {queue} {what}; messages are lost to this query "
        "(failOnDataLoss=false goes on with what there is)",
        field="failOnDataLoss",
    )


def _in_time(records: Records, options: TopicOptions) -> Records:
    if options.from_ms is None and options.to_ms is None:
        return records
    stored = records.store_ms
    inside = np.ones(len(records), bool)
    if options.from_ms is not None:
        inside &= stored >= options.from_ms
    if options.to_ms is not None:
        inside &= stored < options.to_ms
    return records if inside.all() else records.chosen(inside)


class TopicBatch(DataSourceReader):
    """What a topic holds now."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """A task for every stretch of a queue."""
        place = place_of(self._options)
        return list(_parts(place, batch_ranges(place, self._options), self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a stretch."""
        return _read(partition, self._options, self._schema)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes to a topic."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: dict[int, int] | None = None  # where a query on what is available now ends

    def _answers(self) -> TopicAnswers:
        return TopicAnswers(self._options.broker, self._options.topic, self._options.timeout_ms)

    def _bounds(self, begins: Mapping[int, int] | None = None) -> Ranges:
        """What there is of the queues that are wanted; NOT_FOUND if less than was read up to `begins`."""
        there = self._answers().bounds()
        if self._options.fail_on_loss:
            self._check_not_lost(begins or {}, there)
        return chosen_bounds(self._options, there)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        options, bounds = self._options, self._bounds()
        if options.starting is not None:
            begins = resolved(
                "startingOffsets", options.starting, bounds, fail_on_loss=options.fail_on_loss
            )
        elif options.from_ms is not None:
            found = within_times(self._answers(), options, bounds)
            begins = {queue: first for queue, (first, _) in found.items()}
        else:
            begins = {queue: stop for queue, (_, stop) in bounds.items()}
        return as_offset(begins)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        """How far the next micro-batch may go."""
        begins = from_offset(start) if start is not None else {}
        ends = {queue: stop for queue, (_, stop) in self._bounds(begins).items()}
        if self._target is not None:
            target = self._target
            ends = {queue: min(end, target.get(queue, 0)) for queue, end in ends.items()}
        if start is None:
            return as_offset(ends)
        ends = {queue: max(end, begins.get(queue, 0)) for queue, end in ends.items()}
        for queue, begin in begins.items():
            ends.setdefault(queue, begin)  # of a queue that is not read any more
        return as_offset(limited(begins, ends, limit_of(limit)))

    def _check_not_lost(self, begins: Mapping[int, int], there: Ranges) -> None:
        for queue, begin in begins.items():
            stop = there[queue].stop if queue in there else 0
            if stop < begin:
                ends = f"ends at {stop}" if queue in there else "is gone"
                raise _lost(self._options.topic, queue, f"{ends}, but {begin} was read before")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Option maxOffsetsPerTrigger."""
        limit = self._options.per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What comes from here on is left for another query."""
        self._target = {queue: stop for queue, (_, stop) in self._bounds().items()}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """For the progress of the query."""
        return as_offset({queue: stop for queue, (_, stop) in self._bounds().items()})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """A task for every stretch of a queue."""
        begins, ends = from_offset(start), from_offset(end)
        place = patient(lambda: place_of(self._options), self._options.timeout_ms)
        bounds = place.bounds()
        ranges = {}
        for queue, stop in ends.items():
            first = begins.get(queue, 0)
            if first >= stop:
                continue
            kept = bounds.get(queue, Bounds(0, 0))
            if self._options.fail_on_loss and first < kept.first:
                raise _lost(
                    self._options.topic,
                    queue,
                    f"begins at {kept.first} now, but {first} was not read yet",
                )
            if self._options.fail_on_loss and stop > kept.stop:
                raise _lost(
                    self._options.topic, queue, f"ends at {kept.stop}, but {stop} was promised"
                )
            ranges[queue] = Bounds(max(first, kept.first), min(stop, kept.stop))
        return list(_parts(place, ranges, self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a stretch."""
        return _read(partition, self._options, self._schema)
