"""`spark.read.format("horolog")`: a topic as a table, through the broker and from its files."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from topic_fill import bodies, fill

from horolog.errors import ErrorCode, HorologError
from horolog.spark.message_columns import MESSAGE_SCHEMA
from horolog.spark.reading import batch_reader
from horolog.spark.topic_files import TopicFiles
from horolog.spark.topic_parts import read_part
from horolog.testing.broker import BrokerProcess


def fill_topic(broker: BrokerProcess) -> None:
    """A topic of three queues: messages 0–59 at once, 60–79 after an hour, 80–89 still pending."""
    broker.create_topic("t", "mixed", 3)
    fill(broker, "t", range(40), tag="red", keys=["k1", "k2"], properties={"a": "b"})
    fill(broker, "t", range(40, 60))
    fill(broker, "t", range(60, 80), in_ms=3_600_000)
    fill(broker, "t", range(80, 90), in_ms=7_200_000)
    broker.advance("1h")


@pytest.fixture(scope="module")
def filled():
    """A broker with that topic, which nobody changes."""
    with BrokerProcess() as started:
        fill_topic(started)
        yield started


def reader(spark, started, way: str = "answers", **options: object):
    wanted = {"broker": started.admin_url, "topic": "t", **options}
    if way == "files":
        wanted["path"] = str(started.data_dir)
    return spark.read.format("horolog").options(**wanted)


def texts(frame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


@pytest.mark.parametrize("way", ["answers", "files"])
def test_all_columns(spark, filled, way: str) -> None:
    frame = reader(spark, filled, way).load()
    assert frame.schema == MESSAGE_SCHEMA
    rows = {bytes(row.body).decode(): row for row in frame.collect()}
    assert sorted(rows) == bodies(range(80))
    now = datetime.fromtimestamp(filled.now_ms() / 1000, UTC)
    tagged, plain, due = rows["message 7"], rows["message 50"], rows["message 70"]
    assert (tagged.topic, tagged.tag, tagged.keys, tagged.properties) == (
        "t",
        "red",
        ["k1", "k2"],
        {"a": "b"},
    )
    assert (plain.tag, plain.keys, plain.properties, plain.deliver_at) == (None, [], {}, None)
    assert plain.reconsume_times == 0
    assert due.deliver_at.astimezone(UTC) <= now
    assert due.deliver_at <= due.stored_at
    assert due.born_at < due.deliver_at
    found = {(row.queue_id, row.queue_offset) for row in rows.values()}
    assert len(found) == 80
    assert {queue for queue, _ in found} == {0, 1, 2}
    assert len({row.message_id for row in rows.values()}) == 80


@pytest.mark.parametrize("way", ["answers", "files"])
def test_projection_offsets_and_partitions(spark, filled, way: str) -> None:
    frame = reader(spark, filled, way, maxRecordsPerPartition=10).schema(
        "body binary, queue_offset long, queue_id int"
    )
    found = frame.load()
    assert found.columns == ["body", "queue_offset", "queue_id"]
    assert found.rdd.getNumPartitions() >= 8
    assert found.count() == 80
    begin = reader(spark, filled, way, startingOffsets='{"0": 5, "1": 6}', endingOffsets='{"1": 9}')
    of_queue = {
        queue: sorted(row.queue_offset for row in rows)
        for queue in (0, 1, 2)
        if (rows := [row for row in begin.load().collect() if row.queue_id == queue])
    }
    assert of_queue[0][0] == 5
    assert of_queue[1] == [6, 7, 8]
    assert of_queue[2][0] == 0
    only = reader(spark, filled, way, queues="2").load()
    assert {row.queue_id for row in only.collect()} == {2}
    assert reader(spark, filled, way, startingOffsets="latest").load().count() == 0


@pytest.mark.parametrize("way", ["answers", "files"])
def test_times(spark, filled, way: str) -> None:
    now = filled.now_ms()
    assert texts(reader(spark, filled, way, **{"from": now - 1000}).load()) == bodies(range(60, 80))
    assert texts(reader(spark, filled, way, to=now - 1000).load()) == bodies(range(60))
    assert reader(spark, filled, way, **{"from": now + 1000}).load().count() == 0


def test_files_of_a_stopped_broker_and_of_its_copy(spark, broker, tmp_path) -> None:
    """Without a broker the files say what was visible, also what came after the last checkpoint."""
    fill_topic(broker)
    fill(broker, "t", range(80, 85))
    broker.kill()
    frame = spark.read.format("horolog").option("topic", "t")
    assert texts(frame.load(str(broker.data_dir))) == bodies(range(85))
    shutil.copytree(broker.data_dir, tmp_path / "copy")
    broker.restart()
    broker.stop()
    assert texts(frame.load(str(tmp_path / "copy"))) == bodies(range(85))
    assert texts(frame.load(str(broker.data_dir))) == bodies(range(85))


def test_a_topic_that_has_other_topics_between_its_messages(broker) -> None:
    fill_topic(broker)
    broker.create_topic("other", "mixed", 2)
    for number in range(10):
        fill(broker, "other", range(number, number + 1))
        fill(broker, "t", range(80 + number, 81 + number))
    broker.stop()  # writes a checkpoint: consume queues, no tail
    for topic, count in (("t", 90), ("other", 10)):
        files = TopicFiles(str(broker.data_dir), topic, None)
        found = [
            bytes(body.as_py()).decode()
            for queue, (first, stop) in files.bounds().items()
            for records in read_part(files.part(queue, first, stop))
            for body in records.columns(["body"])["body"]
        ]
        assert sorted(found) == bodies(range(count))


def test_sql(spark, filled) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW seen USING horolog "
        f"OPTIONS (broker '{filled.admin_url}', topic 't', jobId 'a write knows it')"
    )
    row = spark.sql(
        "SELECT count(*) AS n, count(deliver_at) AS due, count(DISTINCT message_id) AS ids FROM seen"
    ).first()
    assert (row.n, row.due, row.ids) == (80, 20, 80)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": ""}, "option 'topic': is missing"),
        ({"topic": "nope"}, "topic 'nope' does not exist"),
        ({"broker": ""}, "option 'broker': is missing"),
        ({"broker": "localhost"}, "option 'broker': 'localhost' is not a URL"),
        ({"broker": "http://127.0.0.1:1", "timeout": "1ms"}, "no broker answers"),
        ({"queues": "7"}, "topic 't' has no queue 7"),
        ({"queues": "a"}, "option 'queues'"),
        ({"startingOffsets": "first"}, "option 'startingOffsets'"),
        ({"startingOffsets": '{"0": 1.9}'}, "'{\"0\": 1.9}' is neither earliest nor latest"),
        ({"startingOffsets": '{"0": Infinity}'}, "option 'startingOffsets': '{\"0\": Infinity}'"),
        ({"startingOffsets": '{"0": true}'}, "option 'startingOffsets': '{\"0\": true}'"),
        ({"startingOffsets": '{"0": 99999}'}, "option 'startingOffsets': offset 99999 of queue 0"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'"),
        ({"from": "yesterday"}, "option 'from': 'yesterday' is not a time"),
        ({"from": "2026-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"}, "is not after `from`"),
        ({"maxRecordsPerPartition": "0"}, "option 'maxRecordsPerPartition'"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"startingOffset": "earliest"}, "such option; did you mean startingOffsets? there are"),
        ({"starting_offsets": "first"}, "option 'startingOffsets': 'first' is neither"),
        ({"to": "1", "from": "0", "FROM": "2"}, "option 'from': is given twice, also as 'FROM'"),
        ({"mode": "dew"}, "option 'mode': 'dew' is neither topic nor due"),
        ({"path": "/nowhere"}, "option 'path': /nowhere is not a horolog data directory"),
    ],
)
def test_refusals_name_the_option(filled, options, says: str) -> None:
    given = {"broker": filled.admin_url, "topic": "t", **options}
    with pytest.raises(HorologError) as refused:
        batch_reader(given, MESSAGE_SCHEMA).partitions()
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ("body binary, bodies binary", {}, "column 'bodies': there is no such column"),
        ("body string", {}, "column 'body': is binary, not string"),
        ("body binary", {"queues": "7"}, "topic 't' has no queue 7"),
    ],
)
def test_refusals_come_before_any_job(spark, filled, schema: str, options, says: str) -> None:
    with pytest.raises(PySparkException) as refused:
        reader(spark, filled, **options).schema(schema).load().collect()
    assert says in str(refused.value)


def test_a_schema_without_columns_is_refused(filled) -> None:
    """Its count was 0, whatever the topic held."""
    given = {"broker": filled.admin_url, "topic": "t"}
    with pytest.raises(HorologError, match="schema: names no column; there are topic, queue_id"):
        batch_reader(given, StructType([]))


def test_a_data_directory_of_a_newer_format_is_refused(tmp_path) -> None:
    fields = {"format": 2, "log_id": "0f", "shards": 1, "clock": "system", "segment_bytes": 65_536}
    (tmp_path / "meta").write_text(json.dumps(fields))
    given = {"path": str(tmp_path), "topic": "t"}
    with pytest.raises(
        HorologError, match=r"option 'path': .*format 2; this horolog reads format 1"
    ) as refused:
        batch_reader(given, MESSAGE_SCHEMA).partitions()
    assert refused.value.code is ErrorCode.DIRECTORY_FOREIGN
