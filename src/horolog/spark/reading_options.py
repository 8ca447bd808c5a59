"""Options of the topic source and the due source, checked before any job starts.

Every refusal names its option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from horolog.spark.given_options import (
    EARLIEST,
    LATEST,
    Given,
    Offsets,
    check_times,
    plain_name,
    refused,
)
from horolog.spark.option_names import DUE_OPTIONS, IGNORED_BY_READS, TOPIC_OPTIONS

TOPIC, DUE = "topic", "due"
MESSAGES, PIECES = "messages", "pieces"
_RECORDS_PER_PARTITION = 250_000


@dataclass(frozen=True)
class TopicOptions:
    """What to read of a topic.

    broker        URL of the admin API; "" when only files are read
    path          the broker's data directory on a disk that all tasks see; "": read through the
                  broker
    from_ms       read only messages stored at or after this time; to_ms: before this time
    queues        read only these queues; empty: all queues
    per_task      most messages of one task
    per_trigger   most messages of one micro-batch; 0: all messages there are
    timeout_ms    how long a broker may be silent before a task fails
    """

    topic: str
    broker: str
    path: str
    starting: Offsets | None
    ending: Offsets
    from_ms: int | None
    to_ms: int | None
    queues: tuple[int, ...]
    per_task: int
    per_trigger: int
    fail_on_loss: bool
    timeout_ms: int


@dataclass(frozen=True)
class DueOptions:
    """Where the pending messages are, and whose clock decides that they are due.

    path         a directory of run files
    clock        URL of a broker, or "" for this machine's clock
    from_ms      due time to begin at; None: the first there is; to_ms: due time to stop before
    per_trigger  most rows of one micro-batch; 0: all rows that are due
    pieces       a row says where messages are stored and does not hold a message
    """

    path: str
    clock: str
    topic: str
    from_ms: int | None
    to_ms: int | None
    per_task: int
    per_trigger: int
    pieces: bool
    fail_on_loss: bool
    timeout_ms: int


def mode_of(options: Mapping[str, str]) -> str:
    """Return the mode of a read: `topic` or `due`."""
    return _one_of(options, "mode", TOPIC, DUE)


def is_pieces(options: Mapping[str, str]) -> bool:
    """Return whether a due source returns pieces instead of messages."""
    return _one_of(options, "rows", MESSAGES, PIECES) == PIECES


def _one_of(options: Mapping[str, str], option: str, default: str, other: str) -> str:
    text = {plain_name(name): setting for name, setting in options.items()}.get(option, default)
    if text.lower() not in (default, other):
        raise refused(option, f"{text!r} is neither {default} nor {other}")
    return text.lower()


def topic_options(options: Mapping[str, str], *, is_stream: bool) -> TopicOptions:
    """Check the options of a topic source."""
    given = Given(options, TOPIC_OPTIONS, IGNORED_BY_READS)
    topic = given.topic()
    if not topic:
        raise refused("topic", "is missing; it names the topic to read")
    broker, path = given.url("broker"), given.directory("path")
    if not broker and (is_stream or not path):
        raise refused(
            "broker", "is missing; it is the URL of the admin API, as in http://127.0.0.1:8090"
        )
    begin = given.text("startingOffsets")
    found = TopicOptions(
        topic,
        broker,
        path,
        given.offsets("startingOffsets", LATEST if is_stream else EARLIEST)
        if begin or not is_stream
        else None,
        given.offsets("endingOffsets", LATEST),
        given.time_ms("from"),
        given.time_ms("to"),
        given.queues(),
        given.count("maxRecordsPerPartition", _RECORDS_PER_PARTITION),
        given.count("maxOffsetsPerTrigger", 0),
        given.fails_on_loss(),
        given.timeout_ms(),
    )
    if found.ending.word == EARLIEST and not found.ending.of_queue:
        raise refused("endingOffsets", "a read that ends at earliest has nothing in it")
    check_times(found.from_ms, found.to_ms)
    return found


def due_options(options: Mapping[str, str]) -> DueOptions:
    """Check the options of a due source."""
    given = Given(options, DUE_OPTIONS, IGNORED_BY_READS)
    path = given.directory("path")
    if not path:
        raise refused("path", "is missing; it is the directory of the run files")
    clock = given.text("clock", "system")
    found = DueOptions(
        path,
        "" if clock == "system" else given.url("clock"),
        given.topic(),
        given.time_ms("from"),
        given.time_ms("to"),
        given.count("maxRecordsPerPartition", _RECORDS_PER_PARTITION),
        given.count("maxRowsPerTrigger", 0),
        is_pieces(options),
        given.fails_on_loss(),
        given.timeout_ms(),
    )
    check_times(found.from_ms, found.to_ms)
    return found
