"""Topics as DataFrames and streams; `due_source` reads messages that become due (`mode=due`).

Spark pickles readers into tasks: a reader holds options and a schema, and opens connections and
files in the task.
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
    ReadLimit,
    SupportsTriggerAvailableNow,
    limit_of,
    read_limit,
)
from horolog.spark.topic_answers import Bounds, TopicAnswers, retry_until
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
    """Return the columns for a read whose schema the user does not name."""
    if mode_of(options) == TOPIC:
        return MESSAGE_SCHEMA
    return PIECE_SCHEMA if is_pieces(options) else DUE_SCHEMA


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Build the reader of `spark.read`."""
    check_projection(schema, schema_of(options))
    if mode_of(options) == DUE:
        from horolog.spark.due_source import DueBatch

        return DueBatch(options, schema)
    return TopicBatch(topic_options(options, is_stream=False), schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Build the reader of `spark.readStream`."""
    check_projection(schema, schema_of(options))
    if mode_of(options) == DUE:
        from horolog.spark.due_source import DueStream

        return DueStream(options, schema)
    return TopicStream(topic_options(options, is_stream=True), schema)


@dataclass
class TopicPart(InputPartition):
    """Offsets [first, stop) of a queue for one task; `files`: their place on a shared disk."""

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
    """Yield the record batches of one task."""
    if not isinstance(part, TopicPart):  # Spark passes a partition of its own for an empty read
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
    """Read the messages of a part over HTTP.

    With failOnDataLoss=false, messages that retention drops meanwhile and damaged messages are
    passed over.
    """
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
    """A batch read of the messages that a topic holds now."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan one task for every stretch of a queue."""
        place = place_of(self._options)
        return list(_parts(place, batch_ranges(place, self._options), self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a stretch."""
        return _read(partition, self._options, self._schema)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the messages that arrive in a topic."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: dict[int, int] | None = None  # where a query with trigger availableNow ends

    def _answers(self) -> TopicAnswers:
        return TopicAnswers(self._options.broker, self._options.topic, self._options.timeout_ms)

    def _bounds(self, begins: Mapping[int, int] | None = None) -> Ranges:
        """Return the bounds of the wanted queues; NOT_FOUND if a queue ends before `begins`."""
        there = self._answers().bounds()
        if self._options.fail_on_loss:
            self._check_not_lost(begins or {}, there)
        return chosen_bounds(self._options, there)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
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
        """Return how far the next micro-batch may read."""
        begins = from_offset(start) if start is not None else {}
        ends = {queue: stop for queue, (_, stop) in self._bounds(begins).items()}
        if self._target is not None:
            target = self._target
            ends = {queue: min(end, target.get(queue, 0)) for queue, end in ends.items()}
        if start is None:
            return as_offset(ends)
        ends = {queue: max(end, begins.get(queue, 0)) for queue, end in ends.items()}
        for queue, begin in begins.items():
            ends.setdefault(queue, begin)  # a queue that is no longer read
        return as_offset(limited(begins, ends, limit_of(limit)))

    def _check_not_lost(self, begins: Mapping[int, int], there: Ranges) -> None:
        for queue, begin in begins.items():
            stop = there[queue].stop if queue in there else 0
            if stop < begin:
                ends = f"ends at {stop}" if queue in there else "is gone"
                raise _lost(self._options.topic, queue, f"{ends}, but {begin} was read before")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of option maxOffsetsPerTrigger."""
        return read_limit(self._options.per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query: messages that arrive later are left for another query."""
        self._target = {queue: stop for queue, (_, stop) in self._bounds().items()}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end of every queue, for the progress of the query."""
        return as_offset({queue: stop for queue, (_, stop) in self._bounds().items()})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Plan one task for every stretch of a queue."""
        begins, ends = from_offset(start), from_offset(end)
        place = retry_until(lambda: place_of(self._options), self._options.timeout_ms)
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
        """Yield the record batches of a stretch."""
        return _read(partition, self._options, self._schema)
