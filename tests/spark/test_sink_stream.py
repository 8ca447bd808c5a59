"""`writeStream.format("horolog")`: each micro-batch once, whatever is restarted."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException
from received import bodies

from horolog.spark.failures import sentence_of

pytestmark = pytest.mark.process


def arrive(folder, number, now, count=5) -> None:
    """A file of messages that a stream will see."""
    lines = [
        json.dumps({"body": f"{number}-{i}", "deliver_at": now + 1_000 + number * 100 + i})
        for i in range(count)
    ]
    (folder / f".{number}.json").write_text("\n".join(lines))
    (folder / f".{number}.json").rename(folder / f"{number}.json")


def run(spark, broker, folder, checkpoint, **more) -> None:
    """The query over what is there now, one file a batch."""
    stream = (
        spark.readStream.schema("body string, deliver_at bigint")
        .option("maxFilesPerTrigger", "1")
        .json(str(folder))
    )
    query = (
        stream.writeStream.format("horolog")
        .options(broker=broker.admin_url, topic="t", checkpointLocation=str(checkpoint))
        .options(deliverAtUnit="ms", **more)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def forget_commit(checkpoint, batch) -> None:
    """As if the driver had died after the sink's commit and before its own record of it."""
    for folder in (checkpoint / "commits",):
        for name in (str(batch), f".{batch}.crc"):
            (folder / name).unlink(missing_ok=True)


def test_a_batch_that_is_replayed_is_there_once_and_only_from_its_own_checkpoint(
    spark, broker, tmp_path
) -> None:
    """Batches of a new checkpoint count from 0 again: each would be taken for one that is there, and its rows be dropped."""
    broker.create_topic("t")
    source, first = tmp_path / "in", tmp_path / "first"
    source.mkdir()
    for number in range(2):
        arrive(source, number, broker.now_ms())
    run(spark, broker, source, first, txnAppId="mine")
    forget_commit(first, 1)
    arrive(source, 2, broker.now_ms())
    run(spark, broker, source, first, txnAppId="mine")
    with pytest.raises(StreamingQueryException) as refused:
        run(spark, broker, source, tmp_path / "second", txnAppId="mine")
    sentence = sentence_of(refused.value)
    ids = [
        json.loads((tmp_path / name / "metadata").read_text())["id"] for name in ("first", "second")
    ]
    assert (
        f"'mine' has committed version 2 as 'query {ids[0]}', and this is 'query {ids[1]}'"
        in sentence
    )
    assert broker.pending("t") == 15
    run(spark, broker, source, tmp_path / "third")  # under its own id
    broker.advance("1h")
    expected = [f"{number}-{i}" for number in range(3) for i in range(5)] * 2
    assert sorted(bodies(broker, "t")) == sorted(expected)


@pytest.mark.parametrize("forgotten", [("1", "2"), ("0", "1", "2")])
def test_a_checkpoint_that_forgot_batches_is_refused(spark, broker, tmp_path, forgotten) -> None:
    """An older copy of it, or one whose files were deleted: other rows come under the batches' numbers."""
    broker.create_topic("t")
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(3):
        arrive(source, number, broker.now_ms())
    run(spark, broker, source, checkpoint)
    for folder in ("offsets", "commits", "sources/0"):
        for name in forgotten:
            (checkpoint / folder / name).unlink()
            (checkpoint / folder / f".{name}.crc").unlink()
    for number in forgotten:
        (source / f"{number}.json").unlink()
    arrive(source, 3, broker.now_ms())
    with pytest.raises(StreamingQueryException) as refused:
        run(spark, broker, source, checkpoint)
    says = f"batch {forgotten[0]} of the query comes again, but its batch 2 is committed"
    assert says in sentence_of(refused.value)
    assert broker.pending("t") == 15


def test_two_tasks_of_a_batch_join_one_transaction(spark, broker, tmp_path) -> None:
    broker.create_topic("t")
    now = broker.now_ms()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    df = stream.option("numPartitions", 2).load()
    query = (
        df.selectExpr("concat('m', value) as body", f"{now} + 1000 + value as deliver_at")
        .writeStream.format("horolog")
        .options(broker=broker.admin_url, topic="t", txnAppId="rates", staging="upload")
        .option("deliverAtUnit", "ms")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(once=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert broker.admin.get("/v1/adoptions", {"app": "rates"})["version"] == 0
    broker.advance("1h")
    assert bodies(broker, "t") == [f"m{i}" for i in range(10)]


@pytest.mark.slow
def test_twenty_restarts(spark, broker, tmp_path) -> None:
    broker.create_topic("t")
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(20):
        arrive(source, number, broker.now_ms())
        if number % 3 == 1:
            broker.kill()
            broker.start()
        run(spark, broker, source, checkpoint)
        if number % 2:
            forget_commit(checkpoint, number)
    run(spark, broker, source, checkpoint)
    broker.advance("1h")
    expected = sorted(f"{number}-{i}" for number in range(20) for i in range(5))
    assert sorted(bodies(broker, "t")) == expected
