"""What Spark rebuilds from a commit log is what the broker had built."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from audited import (
    TOPICS,
    Made,
    Surgery,
    make_directory,
    message_id,
    note,
    open_directory,
)

from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS
from horolog.log.record import Kind
from horolog.pipeline.rebuild import rebuild
from horolog.protocol.commands import DescribeGroup, DescribeTopic, FindMessages, ListPending
from horolog.storage.disk import Disk
from horolog.verify.directory import verify_directory


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Made]:
    """A directory that a broker has written and closed; its log has several segments."""
    path = tmp_path_factory.mktemp("rebuild") / "data"
    found = asyncio.run(make_directory(path, 1_500, segment_bytes=1 << 18))
    assert len(list((path / "shard-00" / "log").glob("*.log"))) > 2
    return path, found


def _queue_files(path: Path) -> dict[str, bytes]:
    place = path / "shard-00" / "queues"
    return {str(f.relative_to(place)): f.read_bytes() for f in sorted(place.rglob("*.cq"))}


async def _look(path: Path, later_ms: int = 0) -> dict[str, object]:
    """Everything that clients can see, now and after some time."""
    engine = await open_directory(path)
    found: dict[str, object] = {"report": []}
    for moment in ("now", "later"):
        counted = Made()
        await note(engine, counted)
        found[moment, "counts"] = counted
        for topic in TOPICS:
            view = await engine.submit(DescribeTopic(topic))
            found[moment, topic] = view
            listed = await engine.submit(ListPending(0, 1 << 42, topic, 5_000))
            found[moment, topic, "pending"] = listed
        found[moment, "group"] = await engine.submit(DescribeGroup("gates", TOPICS[0]))
        if moment == "now":
            await engine.advance(later_ms)
    for number in (0, 1, 2, 40, 41, 42):
        found["message", number] = await engine.submit(
            FindMessages(TOPICS[0], message_id=message_id(number))
        )
    await engine.stop()
    return found


def test_a_broker_serves_the_same_from_what_was_rebuilt(spark, made, tmp_path):
    path, counted = made
    result = rebuild(spark, path, tmp_path / "new")
    assert result.pending == counted.pending
    assert result.hours > 0
    assert result.runs > 0
    before, after = _queue_files(path), _queue_files(tmp_path / "new")
    assert {name: content for name, content in after.items() if content} == before
    verdict = verify_directory(Disk(tmp_path / "new", read_only=True))
    assert verdict.findings.kept == []
    old = asyncio.run(_look(path, 2 * DAY_MS))
    new = asyncio.run(_look(tmp_path / "new", 2 * DAY_MS))
    assert new == old
    assert old["later", "counts"].pending < old["now", "counts"].pending


def test_what_cannot_be_rebuilt_is_refused(spark, made, tmp_path):
    path, _ = made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("mine")
    with pytest.raises(HorologError) as refused:
        rebuild(spark, path, tmp_path / "full")
    assert refused.value.code is ErrorCode.FORBIDDEN
    assert "--out" in refused.value.message
    with Surgery(path, tmp_path / "bad") as log:
        log.flip(log.records(Kind.SCHEDULED)[20].position + 40)
    with pytest.raises(HorologError) as refused:
        rebuild(spark, tmp_path / "bad", tmp_path / "new")
    assert refused.value.code is ErrorCode.DAMAGED
    assert not (tmp_path / "new").exists()
