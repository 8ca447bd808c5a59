"""The commit log and what waits, as tables."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from audited import (
    START_MS,
    TOPICS,
    Made,
    Surgery,
    due_of,
    make_directory,
    message,
    message_id,
    open_directory,
)
from pyspark.errors import AnalysisException

from horolog.errors import HorologError
from horolog.log.checkpoint import position_of
from horolog.log.record import Kind
from horolog.pipeline.data_files import files_of, plan_log
from horolog.pipeline.log_rows import rows_of
from horolog.pipeline.log_source import LOG_OPTIONS, Window, window_of
from horolog.pipeline.log_table import RowKind
from horolog.pipeline.log_walk import SegmentWalk
from horolog.pipeline.pending_rows import PendingPart, read_pending
from horolog.pipeline.pending_source import PENDING_SCHEMA, PendingSource
from horolog.protocol.commands import CreateTopic, SendMessages, TopicType


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Made]:
    """A directory that a broker has written and closed."""
    path = tmp_path_factory.mktemp("log") / "data"
    return path, asyncio.run(make_directory(path, 300))


def test_the_log_is_a_table_of_one_row_a_message(spark, written):
    path, made = written
    log = spark.read.format("horolog_log").option("path", str(path)).load()
    counts = {row["kind"]: row["count"] for row in log.groupBy("kind").count().collect()}
    assert counts == {
        "MESSAGE": 10,  # of the topics that were deleted
        "SCHEDULED": 300 + made.moved,
        "HANDED": made.handed_over,
        "RECALL": made.recalled,
        "MOVED": made.moved,
    }
    log.createOrReplaceTempView("log")
    rows = spark.sql(
        "select s.message_id, s.due_ms, h.store_ms, h.queue_offset, h.message_id handed"
        " from log s join log h on h.origin = s.position and h.kind = 'HANDED'"
        " where s.kind = 'SCHEDULED' and s.topic = 1"
    ).collect()
    assert rows
    assert all(row["message_id"] == row["handed"] for row in rows)
    assert all(row["store_ms"] >= row["due_ms"] for row in rows)
    assert {row["message_id"] for row in rows} <= {message_id(n) for n in range(300)}


def test_options_and_projections_leave_rows_and_columns_out(spark, written):
    path, _ = written
    reader = spark.read.format("horolog_log").option("path", str(path))
    part = (
        reader.option("kinds", "scheduled")
        .option("from", str(START_MS))
        .option("to", str(START_MS + 60_000))
    )
    rows = part.schema("due_ms long, kind string").load().collect()
    assert {row["kind"] for row in rows} == {"SCHEDULED"}
    assert all(START_MS <= row["due_ms"] < START_MS + 60_000 for row in rows)
    assert len(rows) == sum(START_MS <= due_of(n) < START_MS + 60_000 for n in range(300))
    for options, why in (
        ({"kinds": "sent"}, "option 'kinds': 'sent'; there are MESSAGE, "),
        ({"from": "noon"}, "option 'from': 'noon' is not a time"),
        ({"from": "9", "to": "9"}, "option 'to': is not after `from`"),
        ({"kind": "sent"}, "option 'kind': there is no such option; did you mean kinds"),
    ):
        with pytest.raises(HorologError, match=why):
            window_of(options, LOG_OPTIONS)
    iso = {"from": "2026-03-08T10:00:00Z", "to": "1772964000001"}
    assert window_of(iso) == Window(1_772_964_000_000, 1_772_964_000_001)


def test_what_waits_is_a_table(spark, written):
    path, made = written
    pending = spark.read.format("horolog_pending").option("path", str(path)).load()
    counts = {row["state"]: row["count"] for row in pending.groupBy("state").count().collect()}
    assert counts["WAITING"] == made.pending
    assert counts["MOVED"] == made.moved


def test_a_directory_that_is_none_is_refused(tmp_path):
    with pytest.raises(HorologError, match="neither a data directory"):
        plan_log(tmp_path)


@pytest.mark.parametrize("source", ["horolog", "horolog_log", "horolog_pending"])
def test_several_directories_are_refused(spark, tmp_path, source):
    with pytest.raises(AnalysisException, match="option 'path': is one place"):
        spark.read.format(source).load([str(tmp_path), str(tmp_path / "other")]).count()


@pytest.mark.parametrize("source", ["horolog_log", "horolog_pending"])
def test_a_refused_directory_is_named_as_the_option(spark, tmp_path, source):
    with pytest.raises(AnalysisException, match=r"option 'path': .* is neither a data directory"):
        spark.read.format(source).option("path", str(tmp_path)).load().count()


def test_nothing_is_counted_where_files_are_missing(spark, written, tmp_path):
    """Without a checkpoint nothing says which files hold what waits, and every count would be 0."""
    path, _ = written
    shutil.copytree(path, tmp_path / "copy", ignore=lambda _, names: {"checkpoint"} & {*names})
    with pytest.raises(AnalysisException, match="has no checkpoint that can be read"):
        spark.read.format("horolog_pending").load(str(tmp_path / "copy")).count()
    run = PendingPart("run", {"name": "r", "rows": 1}, 0, 1)
    with pytest.raises(FileNotFoundError, match=r"shard-00/runs/r\.run: is not there"):
        list(read_pending(files_of(str(path)), run))


def test_an_older_checkpoint_is_read_only_if_it_may(spark, written, tmp_path, caplog):
    """What was pending earlier must not look like what is pending at the newest checkpoint."""
    path, _ = written
    shutil.copytree(path, tmp_path / "copy")
    older, newest = sorted((tmp_path / "copy" / "shard-00" / "checkpoint").glob("*.ckpt"))[-2:]
    newest.write_bytes(newest.read_bytes()[:-1])
    pending = spark.read.format("horolog_pending").load(str(tmp_path / "copy"))
    with pytest.raises(AnalysisException, match=rf"checkpoint/{newest.name}: is not intact"):
        pending.count()
    plan = plan_log(tmp_path / "copy")
    assert plan.checkpoint == position_of(older.name)
    lossy = PendingSource({"path": plan.root, "failOnDataLoss": "false"})
    assert lossy.reader(PENDING_SCHEMA).partitions()
    assert f"{newest.name}: is not intact" in caplog.text


def test_a_running_broker_is_read_up_to_its_last_frame(tmp_path):
    async def live() -> None:
        engine = await open_directory(tmp_path / "data")
        await engine.submit(CreateTopic(TOPICS[0], TopicType.DELAY, 2))
        for n in range(5):
            one = message(TOPICS[0], n, START_MS + 1_000_000)
            await engine.submit(SendMessages(TOPICS[0], [one]))
            plan = plan_log(tmp_path / "data")
            assert plan.end == engine.broker.shard.log.end
            assert _kinds(plan).count(RowKind.SCHEDULED) == n + 1
        await engine.stop()

    asyncio.run(live())


def _kinds(plan) -> list[int]:
    found: list[int] = []
    for segment in plan.segments:
        for stretch in SegmentWalk(plan, segment).stretches():
            for rows in rows_of(plan, stretch):
                found += rows.kind.tolist()
    return found


def test_a_walk_goes_on_after_what_does_not_verify(written, tmp_path):
    path, _ = written
    with Surgery(path, tmp_path / "copy") as log:
        position = log.records(Kind.RECALL)[3].position
        log.flip(position + 20)
        end = log.records(Kind.EPOCH)[-1].position
    plan = plan_log(tmp_path / "copy")
    (segment,) = plan.segments
    walk = SegmentWalk(plan, segment)
    last = max(stretch.base + int(stretch.at[-1]) for stretch in walk.stretches())
    assert len(walk.gaps) == 1
    assert walk.gaps[0][0] <= position < walk.gaps[0][1] < last
    assert plan.end > max(end, position)
