"""`spark.readStream.format("horolog")`: every visible message once, whoever dies in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from available_now import run_available
from deltalake import DeltaTable
from dying_sink import DyingSink
from topic_fill import bodies, fill

from horolog.errors import ErrorCode, HorologError
from horolog.spark.delta_append import DeltaAppend
from horolog.spark.message_columns import MESSAGE_SCHEMA
from horolog.spark.message_decode import Records
from horolog.spark.reading import TopicStream, stream_reader
from horolog.spark.stream_api import ReadAllAvailable, ReadMaxRows
from horolog.spark.topic_answers import Bounds, TopicAnswers

# --- without Spark ------------------------------------------------------------------------------


@pytest.fixture
def bounds(monkeypatch) -> dict[int, Bounds]:
    """What a broker would say that there is; a test changes it."""
    found = {0: Bounds(0, 100), 1: Bounds(0, 10)}
    monkeypatch.setattr(TopicAnswers, "bounds", lambda self: dict(found))
    return found


def reader(**options: object) -> TopicStream:
    given = {"broker": "http://127.0.0.1:1", "topic": "t", **options}
    made = stream_reader({name: str(each) for name, each in given.items()}, MESSAGE_SCHEMA)
    assert isinstance(made, TopicStream)
    return made


def test_where_a_new_query_begins(bounds) -> None:
    assert reader().initialOffset() == {"0": 100, "1": 10}
    assert reader(startingOffsets="earliest").initialOffset() == {"0": 0, "1": 0}
    assert reader(startingOffsets='{"0": 7}').initialOffset() == {"0": 7, "1": 10}
    bounds[0] = Bounds(50, 100)
    assert reader(startingOffsets="earliest").initialOffset() == {"0": 50, "1": 0}
    with pytest.raises(HorologError, match="offset 7 of queue 0; 50 to 100 are there"):
        reader(startingOffsets='{"0": 7}').initialOffset()


def test_a_batch_is_limited(bounds) -> None:
    stream = reader(maxOffsetsPerTrigger=11)
    assert stream.getDefaultReadLimit() == ReadMaxRows(11)
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    start = {"0": 0, "1": 0}
    assert stream.latestOffset(start, ReadMaxRows(11)) == {"0": 10, "1": 1}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"0": 100, "1": 10}
    assert stream.latestOffset() == {"0": 100, "1": 10}  # as Spark 4.0 asks
    offset, steps = start, 0
    while (end := stream.latestOffset(offset, ReadMaxRows(11))) != offset:
        assert sum(end.values()) - sum(offset.values()) <= 11
        offset, steps = end, steps + 1
    assert (offset, steps) == ({"0": 100, "1": 10}, 10)


def test_available_now_ends_at_what_there_was(bounds) -> None:
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    bounds[0], bounds[2] = Bounds(0, 150), Bounds(0, 5)
    end = stream.latestOffset({"0": 20, "1": 0}, ReadAllAvailable())
    assert end == {"0": 100, "1": 10, "2": 0}
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_queue_that_is_added_is_read_from_its_beginning(bounds) -> None:
    stream = reader(maxRecordsPerPartition=4)
    bounds[2] = Bounds(0, 5)
    start = {"0": 100, "1": 10}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"0": 100, "1": 10, "2": 5}
    parts = stream.partitions(start, end)
    assert [(part.queue, part.first, part.stop) for part in parts] == [(2, 0, 2), (2, 2, 5)]
    assert stream.partitions(end, end) == []


def test_what_retention_has_dropped_is_reported_or_passed_over(bounds) -> None:
    start, end = {"0": 20, "1": 0}, {"0": 100, "1": 10}
    bounds[0] = Bounds(60, 100)
    with pytest.raises(HorologError, match="begins at 60 now, but 20 was not read yet") as lost:
        reader().partitions(start, end)
    assert (lost.value.code, lost.value.field) == (ErrorCode.NOT_FOUND, "failOnDataLoss")
    parts = reader(failOnDataLoss="false").partitions(start, end)
    assert [(part.queue, part.first, part.stop) for part in parts] == [(0, 60, 100), (1, 0, 10)]
    bounds[0] = Bounds(0, 80)  # a broker whose log has lost its tail
    with pytest.raises(HorologError, match="ends at 80, but 100 was read before"):
        reader().latestOffset(end, ReadAllAvailable())
    available = reader()
    available.prepareForTriggerAvailableNow()
    with pytest.raises(HorologError, match="ends at 80, but 100 was read before"):
        available.latestOffset(end, ReadAllAvailable())
    with pytest.raises(HorologError, match="ends at 80, but 100 was promised"):
        reader().partitions(start, end)
    assert reader(failOnDataLoss="false").latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_that_was_made_again_with_fewer_queues_is_not_the_same(bounds) -> None:
    start = {"0": 20, "1": 5}
    del bounds[1]
    with pytest.raises(HorologError, match="queue 1 is gone, but 5 was read before"):
        reader().latestOffset(start, ReadAllAvailable())
    assert reader().latestOffset({"0": 20, "1": 0}, ReadAllAvailable()) == {"0": 100, "1": 0}
    lossy = reader(failOnDataLoss="false")
    assert lossy.latestOffset(start, ReadAllAvailable()) == {"0": 100, "1": 5}


@pytest.fixture
def passed(bounds, monkeypatch) -> dict[int, Bounds]:
    """The retention passes the tasks after they were planned."""

    def read(self, queue: int, first: int, stop: int, *, lossy: bool) -> Iterator[Records]:
        raise HorologError(ErrorCode.NOT_FOUND, f"queue offset {first} is older than the retention")

    monkeypatch.setattr(TopicAnswers, "read", read)
    return bounds


def test_a_task_that_retention_has_passed_names_the_option(passed) -> None:
    stream = reader()
    parts = stream.partitions({"0": 20}, {"0": 100})
    says = (
        r"topic 't': queue 0 cannot be read \(queue offset 20 is older than the retention\); messages are lost "
        r"to this query \(failOnDataLoss=false goes on"
    )
    with pytest.raises(HorologError, match=says) as lost:
        list(stream.read(parts[0]))
    assert (lost.value.code, lost.value.field) == (ErrorCode.NOT_FOUND, "failOnDataLoss")


def test_a_queue_that_is_gone_meanwhile_ends_a_lossy_task(passed) -> None:
    """As when the topic was deleted and made again with fewer queues."""
    stream = reader(failOnDataLoss="false")
    parts = stream.partitions({"1": 0}, {"1": 10})
    del passed[1]
    assert list(stream.read(parts[0])) == []


def test_a_stream_needs_a_broker(tmp_path) -> None:
    with pytest.raises(HorologError, match="option 'broker': is missing"):
        stream_reader({"topic": "t", "path": str(tmp_path)}, MESSAGE_SCHEMA)


# --- with Spark ---------------------------------------------------------------------------------


def run(spark, broker, place: Path, sink, **options: object) -> list[int]:
    """Read what is available into `sink`; gives the sizes of the micro-batches."""
    wanted = {"broker": broker.admin_url, "topic": "t", "startingOffsets": "earliest", **options}
    return run_available(spark.readStream.format("horolog").options(**wanted).load(), sink, place)


def found(table: Path) -> list[str]:
    rows = DeltaTable(table).to_pyarrow_table(columns=["body", "queue_id", "queue_offset"])
    read = rows.to_pydict()
    places = set(zip(read["queue_id"], read["queue_offset"], strict=True))
    assert len(places) == rows.num_rows
    return sorted(bytes(body).decode() for body in read["body"])


@pytest.mark.parametrize(("way", "times"), [("answers", 2), ("files", 1)])
def test_exactly_once_over_restarts(spark, broker, tmp_path, way: str, times: int) -> None:
    restarts(spark, broker, tmp_path, way, times=times)


@pytest.mark.slow
def test_exactly_once_over_twenty_restarts(spark, broker, tmp_path) -> None:
    restarts(spark, broker, tmp_path, "answers", times=20)


def restarts(spark, broker, place: Path, way: str, *, times: int) -> None:
    """The query dies in its first batch, before or after the table's commit; so does the broker now and then."""
    broker.create_topic("t", "mixed", 3)
    table, chance = place / "table", random.Random(times)
    sink = DeltaAppend(str(table))
    options = {"path": str(broker.data_dir)} if way == "files" else {}
    sent = 0
    for turn in range(times):
        fill(broker, "t", range(sent, sent + 20))
        fill(broker, "t", range(sent + 20, sent + 30), in_ms=60_000)
        broker.advance("1m")
        sent += 30
        after = bool(turn % 2)
        with pytest.raises(Exception, match="killed"):
            run(spark, broker, place, DyingSink(sink, before=not after, after=after), **options)
        if chance.random() < 0.4:
            broker.kill()
            broker.restart()
        if turn % 3 != 2:  # else the next one finds a batch that is not committed
            run(spark, broker, place, sink, maxOffsetsPerTrigger=7, **options)
            assert found(table) == bodies(range(sent))
    if turn % 3 == 2:
        run(spark, broker, place, sink, **options)
    assert found(table) == bodies(range(sent))


def test_batches_are_limited_and_columns_chosen(spark, broker, tmp_path) -> None:
    broker.create_topic("t", "mixed", 2)
    fill(broker, "t", range(25), tag="red")
    sizes = run(spark, broker, tmp_path, DeltaAppend(str(tmp_path / "a")), maxOffsetsPerTrigger=10)
    assert sizes == [10, 10, 5]
    assert DeltaTable(tmp_path / "a").to_pyarrow_table().num_rows == 25
