"""Which queue offsets a read covers: bounds, times, limits, and the stretches of its tasks.

Offsets of a stream are plain dicts {"0": 17, "1": 4}: the next offset of each queue, by queue id.
Spark compares them as text, so they are always built in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from horolog.errors import ErrorCode, HorologError
from horolog.spark.given_options import EARLIEST, Offsets, refused
from horolog.spark.reading_options import TopicOptions
from horolog.spark.topic_answers import Bounds, TopicAnswers

if TYPE_CHECKING:
    from horolog.spark.topic_files import TopicFiles

Ranges = dict[int, Bounds]


class Stretch(NamedTuple):
    """Queue offsets [first, stop) of one queue."""

    queue: int
    first: int
    stop: int


def place_of(options: TopicOptions) -> TopicAnswers | TopicFiles:
    """Return where the topic is read: files when a path is given, else the broker."""
    if not options.path:
        return TopicAnswers(options.broker, options.topic, options.timeout_ms)
    from horolog.spark.topic_files import TopicFiles  # imports the broker's reading side

    commit = None
    if options.broker:
        commit = TopicAnswers(options.broker, options.topic, options.timeout_ms).commit_position()
    return TopicFiles(options.path, options.topic, commit, lossy=not options.fail_on_loss)


def chosen_bounds(options: TopicOptions, bounds: Ranges) -> Ranges:
    """Return the bounds of the wanted queues; BAD_REQUEST for a queue that does not exist."""
    for queue in options.queues:
        if queue not in bounds:
            raise refused(
                "queues", f"topic {options.topic!r} has no queue {queue}", f"{len(bounds) - 1}"
            )
    wanted = options.queues or sorted(bounds)
    return {queue: bounds[queue] for queue in wanted}


def resolved(name: str, wanted: Offsets, bounds: Ranges, *, fail_on_loss: bool) -> dict[int, int]:
    """Return an offset for each queue.

    An offset that is not there any more, or not yet, is refused with NOT_FOUND, or moved to the
    nearest one that is.
    """
    for queue in wanted.of_queue:
        if queue not in bounds:
            raise refused(name, f"queue {queue} is not read")
    found = {}
    for queue, (first, stop) in bounds.items():
        offset = wanted.of_queue.get(queue, first if wanted.word == EARLIEST else stop)
        if fail_on_loss and not first <= offset <= stop:
            raise HorologError(
                ErrorCode.NOT_FOUND,
                f"option {name!r}: offset {offset} of queue {queue}; {first} to {stop} are there "
                "(failOnDataLoss=false reads what there is)",
                field=name,
                limit=f"{first} to {stop}",
            )
        found[queue] = min(max(offset, first), stop)
    return found


def first_at(store_ms: Callable[[int], int], first: int, stop: int, time_ms: int) -> int:
    """Find the first offset of [first, stop) stored at or after a time, by bisection.

    `stop` if there is none.
    """
    while first < stop:
        middle = (first + stop) // 2
        found = store_ms(middle)
        if 0 <= found < time_ms:
            first = middle + 1
        else:
            stop = middle
    return first


def within_times(place: TopicAnswers | TopicFiles, options: TopicOptions, ranges: Ranges) -> Ranges:
    """Cut the ranges to the messages stored in [from, to)."""
    found = {}
    for queue, (first, stop) in ranges.items():

        def store_ms(offset: int, queue: int = queue) -> int:
            return place.store_ms(queue, offset)

        if options.from_ms is not None:
            first = first_at(store_ms, first, stop, options.from_ms)
        if options.to_ms is not None:
            stop = first_at(store_ms, first, stop, options.to_ms)
        found[queue] = Bounds(first, stop)
    return found


def batch_ranges(place: TopicAnswers | TopicFiles, options: TopicOptions) -> Ranges:
    """Return the range that a batch reads of each queue."""
    bounds = chosen_bounds(options, place.bounds())
    starting = options.starting or Offsets(EARLIEST, {})
    begins = resolved("startingOffsets", starting, bounds, fail_on_loss=options.fail_on_loss)
    ends = resolved("endingOffsets", options.ending, bounds, fail_on_loss=options.fail_on_loss)
    ranges = {queue: Bounds(begins[queue], ends[queue]) for queue in bounds}
    if options.from_ms is None and options.to_ms is None:
        return ranges
    return within_times(place, options, ranges)


def stretches(ranges: Ranges, per_task: int) -> list[Stretch]:
    """Cut ranges into pieces of about the same size, at most `per_task` messages each."""
    found = []
    for queue, (first, stop) in sorted(ranges.items()):
        pieces = -(-(stop - first) // per_task)
        for piece in range(pieces):
            begin = first + (stop - first) * piece // pieces
            end = first + (stop - first) * (piece + 1) // pieces
            found.append(Stretch(queue, begin, end))
    return found


# --- offsets of a stream ------------------------------------------------------------------------


def as_offset(offsets: Mapping[int, int]) -> dict[str, int]:
    """Return offsets as the dict that Spark keeps."""
    return {str(queue): offset for queue, offset in sorted(offsets.items())}


def from_offset(offset: Mapping[str, int]) -> dict[int, int]:
    """Read offsets back from Spark's dict; BAD_REQUEST if another source has written it."""
    try:
        return {int(queue): int(at) for queue, at in offset.items()}
    except (TypeError, ValueError):
        raise foreign_offset(offset, '{"0": 17, "1": 4}') from None


def foreign_offset(offset: object, own: str) -> HorologError:
    """Build the error for a checkpoint of another query."""
    return refused(
        "checkpointLocation",
        f"it is of another query: its offset is {json.dumps(offset)}, and here it would be like "
        f"{own}; name a directory of its own",
    )


def limited(begins: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Lower the ends so that at most `limit` messages are read.

    The limit is shared among the queues by how many messages each has.
    """
    there = {queue: max(0, end - begins.get(queue, 0)) for queue, end in ends.items()}
    total = sum(there.values())
    if not limit or total <= limit:
        return dict(ends)
    shares = {queue: limit * count // total for queue, count in there.items()}
    rest = limit - sum(shares.values())
    for queue in sorted(there, key=lambda each: (shares[each] - there[each], each)):
        more = min(rest, there[queue] - shares[queue])
        shares[queue] += more
        rest -= more
    return {queue: min(end, begins.get(queue, 0) + shares[queue]) for queue, end in ends.items()}
