"""The forecast counts exactly what the broker counts."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audited import (
    START_MS,
    TOPICS,
    Made,
    due_of,
    make_directory,
    message_id,
    note,
    open_directory,
    send,
)
from cut_worlds import SEGMENT, cut_world
from rich.console import Console
from worlds import view

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS
from horolog.pipeline.audit import audit
from horolog.pipeline.forecast import Forecast, forecast
from horolog.pipeline.forecast_report import forecast_page, sentence, show
from horolog.protocol.commands import Recall
from horolog.spark.topic_files import TopicFiles


def _seconds(spark, path: Path) -> dict[int, int]:
    rows = spark.read.format("horolog_load").option("path", str(path)).load()
    summed = rows.groupBy("second").sum("n").where("`sum(n)` <> 0").collect()
    return {row[0] * 1000: row[1] for row in summed}


def test_a_closed_directory_is_counted_to_the_second(spark, tmp_path):
    made = asyncio.run(make_directory(tmp_path / "data", 300))
    result = forecast(spark, tmp_path / "data", out=tmp_path)
    assert result.total == made.pending > 0
    assert dict(
        zip(*result.topics.select(["topic", "messages"]).to_pydict().values(), strict=True)
    ) == (made.by_topic)
    assert _seconds(spark, tmp_path / "data") == made.by_second
    minutes = pq.read_table(tmp_path / "minutes.parquet").to_pylist()
    assert sum(row["messages"] for row in minutes) == made.pending
    hottest = result.hottest.to_pylist()
    assert hottest[0]["messages"] == max(made.by_second.values())
    assert f"{made.pending:,}" in sentence(result)
    assert "Due load ahead" in forecast_page(result)
    soon = forecast(spark, tmp_path / "data", hours=24)
    until = result.now_ms + 24 * HOUR_MS
    assert soon.total == sum(n for ms, n in made.by_second.items() if ms < until)


def test_what_happened_after_the_checkpoint_counts(spark, tmp_path):
    async def live() -> Made:
        await make_directory(tmp_path / "data", 300, advance_ms=60_000)
        engine = await open_directory(tmp_path / "data")
        await send(engine, TOPICS[0], range(1_000, 1_100))
        for n in range(1_000, 1_020):
            await engine.submit(Recall(TOPICS[0], message_id(n), due_of(n)))
        await engine.advance(10 * 60_000)
        made = Made()
        await note(engine, made)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, forecast, spark, tmp_path / "data")
        assert found.total == made.pending
        seconds = await loop.run_in_executor(None, _seconds, spark, tmp_path / "data")
        assert seconds == made.by_second
        await engine.stop()
        return made

    made = asyncio.run(live())
    assert made.by_topic[TOPICS[0]] > 50
    assert made.by_second
    assert min(made.by_second) > START_MS


def test_a_cut_log_without_a_checkpoint_is_neither_counted_nor_audited(
    spark, make_world, tmp_path
) -> None:
    """What was pending before the log begins is known to the checkpoint alone."""
    path = tmp_path / "data"
    path.mkdir()
    world = cut_world(lambda: make_world(root=path, segment_bytes=SEGMENT))
    meta = {"format": 1, "shards": 1, "clock": "simulated", "segment_bytes": SEGMENT}
    (path / "meta").write_text(json.dumps({**meta, "log_id": f"{0x5EED5EED5EED5EED:016x}"}))
    assert forecast(spark, path).total == view(world).pending == 44
    for name in (path / "shard-00" / "checkpoint").glob("*.ckpt"):
        name.write_bytes(name.read_bytes()[:-1])
    says = f"begins at log position {view(world).log_start}, and no checkpoint that can be read"
    for job in (forecast, audit):
        with pytest.raises(HorologError, match=says) as refused:
            job(spark, path)
        assert refused.value.code is ErrorCode.DAMAGED
    with pytest.raises(HorologError, match="lacks its beginning, and no checkpoint can be read"):
        TopicFiles(str(path), "t", None)


def test_stretches_in_which_nothing_is_due_are_not_among_the_busiest() -> None:
    far = 200 * 7 * 24 * HOUR_MS
    minutes = [{"topic": "t", "minute_ms": at, "messages": 2, "peak": 2} for at in (0, far)]
    tables = [pa.Table.from_pylist(rows) for rows in ([], minutes, [])]
    console = Console(record=True, file=StringIO(), width=120)
    show(console, Forecast("data", 0, None, 4, 0, 0, *tables))
    assert console.export_text().count(" 2  █") == 2
    assert " 0" not in console.export_text().replace("00:00", "")
