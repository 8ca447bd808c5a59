"""Metrics: what is counted is what has happened, and a look costs the same whatever there is."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.support.access_files import access_file
from work import bytecodes

from horolog.access.guard import Guard
from horolog.admin.app import make_app
from horolog.broker import relations
from horolog.broker.counters import LATENESS_BOUNDS_MS, Count
from horolog.broker.settings import ShardSettings
from horolog.errors import ErrorCode, HorologError
from horolog.histogram import Histogram, quantile
from horolog.metrics.exposition import Exposition, text_of, wants_openmetrics
from horolog.metrics.figures import CachedFigure, Figures
from horolog.metrics.metric import Type
from horolog.metrics.present import OTHER, Present
from horolog.metrics.table import METRICS, OF_PROCESS
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    DeleteTopic,
    MessageType,
    Recall,
    Receive,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, Pull
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.meters import Meters
from horolog.server.open_broker import open_engine
from horolog.testing.engine import ScriptedEngine

RECEIVE = Receive("g", "t", -1, "*", 8, 10_000, False, 0, "c")
Story = Callable[[Engine], Awaitable[None]]


def run(directory: Path, story: Story, **settings: Any) -> None:
    async def running() -> None:
        engine = await open_engine(
            directory / "data", clock="simulated", flush="os", settings=ShardSettings(**settings)
        )
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(running(), 60))


def figures(engine: Engine, **more: Any) -> Figures:
    return Figures(engine, broker_name="broker-a", data_dir=Path("/"), **more)


def present(engine: Engine) -> Present:
    return figures(engine).read()


def message(topic: str, name: str, due_ms: int = 0) -> Any:
    type = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(topic=topic, body=b"b", message_id=name, type=type, due_ms=due_ms)


def series(text: bytes) -> dict[str, float]:
    """`name{labels}` → value of every sample."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def counts(found: Present, topic: str) -> dict[Count, int]:
    row = next(each for each in found.topics if each.name == topic)
    return {count: n for count, n in zip(Count, row.counts, strict=True) if n}


def test_what_is_declared_appears_and_nothing_else(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        text, _ = text_of(present(engine), is_openmetrics=False)
        appearing = {
            (family.name, family.type)
            for family in text_string_to_metric_families(text.decode())
            if family.name not in OF_PROCESS and f"{family.name}_total" not in OF_PROCESS
        }
        declared = {
            (metric.full_name.removesuffix("_total"), "gauge")
            if metric.type is Type.INFO
            else (metric.full_name.removesuffix("_total"), metric.type.value)
            for metric in METRICS
        }
        assert appearing == declared
        for name in OF_PROCESS:
            assert f"\n{name} " in text.decode()

    run(tmp_path, story)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_says_type_and_unit(metric) -> None:
    assert re.fullmatch(r"horolog_[a-z][a-z_]*[a-z]", metric.full_name)
    assert metric.full_name.endswith("_total") == (metric.type is Type.COUNTER)
    assert not re.search(r"_(ms|milliseconds|kb|mb|kib|mib|count|bucket|sum)(_|$)", metric.name)
    assert metric.help.endswith(".")
    # A scrape and Grafana show one help without those before it.
    assert not re.search(r"^Their|^The most that|newest one|of it\b|these\b", metric.help)
    assert [each.name for each in METRICS].count(metric.name) == 1


def test_a_message_is_counted_on_its_whole_way(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        now_ms = engine.clock.wall_ms()
        await engine.submit(SendMessages("t", [message("t", "now")]))
        later = [message("t", f"m{i}", now_ms + 60_000) for i in range(4)]
        await engine.submit(SendMessages("t", later))
        await engine.submit(Recall("t", "m0", now_ms + 60_000))
        await engine.submit(Reschedule("t", "m1", now_ms + 60_000, now_ms + 7_200_000))
        found = present(engine)
        assert counts(found, "t") == {Count.SENT: 1, Count.SCHEDULED: 5}
        assert found.settled == {"recalled": 1, "moved": 1, "expired": 0}
        assert (found.pending, found.topics[0].pending) == (3, 3)
        await engine.advance(60_000)
        received = await engine.submit(RECEIVE)
        handles = [each.receipt_handle for each in received.messages]
        assert len(handles) == 3
        await engine.submit(Ack("g", "t", handles[:1]))
        await engine.submit(ChangeInvisible("g", "t", handles[1], 10_000))
        await engine.advance(10_000)
        await engine.submit(RECEIVE)
        await engine.submit(Pull("t", 0, 0, 32, 1 << 20, "*", 0))
        found = present(engine)
        assert counts(found, "t") == {
            Count.SENT: 1,
            Count.SCHEDULED: 5,
            Count.HANDED_OVER: 2,
            Count.LEASED: 5,
            Count.REDELIVERED: 2,
            Count.PULLED: 3,
            Count.ACKED: 1,
            Count.POSTPONED: 1,
        }
        assert found.counts == found.topics[0].counts
        assert found.core["expired_leases"] == 2
        assert sum(found.lateness) == sum(found.topics[0].lateness) == 2
        assert sum(found.lease_lateness) == 2
        (group,) = found.groups
        assert group[:4] == ("g", "t", 2, 2)

    run(tmp_path, story)


def test_lateness_is_that_of_when_consumers_can_see_a_message(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("a", TopicType.DELAY, 1))
        await engine.submit(CreateTopic("b", TopicType.DELAY, 1))
        now_ms = engine.clock.wall_ms()
        for topic, due_ms in (("a", 1_000), ("b", 1_030), ("b", 990)):
            name = f"{topic}{due_ms}"
            await engine.submit(SendMessages(topic, [message(topic, name, now_ms + due_ms)]))
        engine.clock._wall_ms = now_ms + 1_040  # as after a pause: all of them at once
        await engine.until_quiet()
        found = present(engine)
        lateness = {topic.name: topic for topic in found.topics}
        at_most = dict(zip(LATENESS_BOUNDS_MS, found.lateness, strict=False))
        assert (at_most[10], at_most[50]) == (1, 2)
        assert lateness["a"].lateness_ms == 40
        assert lateness["b"].lateness_ms == 60
        assert quantile(LATENESS_BOUNDS_MS, found.lateness, 0.99) == 50
        assert quantile(LATENESS_BOUNDS_MS, found.lateness, 0.3) == 10

    run(tmp_path, story)


def test_an_offset_that_a_group_commits_acknowledges_what_is_below(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        await engine.submit(SendMessages("t", [message("t", f"m{i}") for i in range(5)]))
        for offset in (0, 3, 3, 1, 5):
            await engine.submit(CommitOffsets("g", "t", {0: offset}))
        assert counts(present(engine), "t")[Count.ACKED] == 3 + 4

    run(tmp_path, story)


@pytest.mark.parametrize("afresh", [False, True])
def test_a_message_that_was_acked_is_not_counted_again_when_an_offset_passes_it(
    tmp_path, afresh: bool
) -> None:
    """As by a reset to the end: acks above the first open message counted twice."""

    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        await engine.submit(SendMessages("t", [message("t", f"m{i}") for i in range(4)]))
        wanted = Receive("g", "t", -1, "*", 3, 30_000, False, 0, "c")
        taken = (await engine.submit(wanted)).messages
        await engine.submit(Ack("g", "t", [taken[1].receipt_handle]))
        await engine.submit(CommitOffsets("g", "t", {0: 3}, afresh=afresh))
        assert counts(present(engine), "t")[Count.ACKED] == 3

    run(tmp_path, story)


def test_what_a_start_replays_is_not_counted(tmp_path) -> None:
    async def fill(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        now_ms = engine.clock.wall_ms()
        await engine.submit(SendMessages("t", [message("t", "a"), message("t", "b", now_ms + 9)]))
        await engine.advance(10)
        engine.checkpointing.carry_out = lambda job: None  # none at the stop: it is replayed
        engine.broker.checkpoints.request = lambda: None

    async def look(engine: Engine) -> None:
        found = present(engine)
        assert not any(found.counts)
        assert not any(found.lateness)
        assert [topic.name for topic in found.topics] == ["t", OTHER]

    run(tmp_path, fill)
    run(tmp_path, look)


def test_series_and_work_do_not_grow_with_topics(tmp_path) -> None:
    """Ten thousand topics that all have messages: a look copies the rows of a hundred."""

    async def story(engine: Engine) -> None:
        shard = engine.broker.shard
        looked = []
        made = 0
        for topics in (200, 10_000):
            for number in range(made + 1, topics + 1):
                shard.topics.put(number, f"t{number}", TopicType.MIXED, 1)
            made = topics
            for number in range(1, topics, 97):
                send = SendMessages(f"t{number}", [message(f"t{number}", f"m{topics}.{number}")])
                await engine.submit(send)
            reader = figures(engine)
            reader.read()
            reader._next_s = 0.0  # as a second later
            looked.append(bytecodes(reader.read))
            found = reader.read()
            text, _ = text_of(found, is_openmetrics=False)
            assert len(found.topics) == 101
            assert len(series(text)) < 101 * 35 + 400
            assert shard.counters.lateness.shape[0] == 101
        assert sum(row.counts[Count.SENT] for row in found.topics) == found.counts[Count.SENT]
        assert counts(found, OTHER)[Count.SENT] > 0
        few, many = looked
        assert many < few * 1.1 + 200
        relations.check_shard(shard)

    run(tmp_path, story)


def test_a_topic_keeps_its_series_until_it_is_deleted(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        for name in ("a", "b", "c"):
            await engine.submit(CreateTopic(name, TopicType.NORMAL, 1))
            await engine.submit(SendMessages(name, [message(name, name)]))
        found = present(engine)
        assert [topic.name for topic in found.topics] == ["a", "b", OTHER]
        assert [topic.counts[Count.SENT] for topic in found.topics] == [1, 1, 1]
        await engine.submit(DeleteTopic("a"))
        await engine.submit(CreateTopic("d", TopicType.NORMAL, 1))
        found = present(engine)
        assert {topic.name: topic.counts[Count.SENT] for topic in found.topics} == {
            "b": 1,
            "c": 0,  # it has counted with the others so far
            OTHER: 1,
        }
        assert found.counts[Count.SENT] == 3
        engine.broker.check_invariants()

    run(tmp_path, story, counted_topics=2)


def test_without_rows_all_topics_count_together(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        due_ms = engine.clock.wall_ms() + 5
        await engine.submit(SendMessages("t", [message("t", "a"), message("t", "b", due_ms)]))
        await engine.advance(10)
        found = present(engine)
        assert [topic.name for topic in found.topics] == [OTHER]
        assert counts(found, OTHER) == {Count.SENT: 1, Count.SCHEDULED: 1, Count.HANDED_OVER: 1}
        assert sum(found.topics[0].lateness) == 1

    run(tmp_path, story, counted_topics=0)


def test_groups_beyond_the_limit_are_counted_only(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 2))
        await engine.submit(SendMessages("t", [message("t", "a")]))
        for group in ("g1", "g2", "g3"):
            await engine.submit(CommitOffsets(group, "t", {0: 0}))
        reader = figures(engine, groups_max=2)
        reader.read()
        await engine.advance(90_000)
        await engine.submit(SendMessages("t", [message("t", "b")]))
        reader._next_s = reader._groups._next_s = 0.0
        found = reader.read()
        assert [each[:4] for each in found.groups] == [("g1", "t", 2, 0), ("g2", "t", 2, 0)]
        assert found.groups[0].oldest_ms >= 0
        assert found.groups_left_out == 1

    run(tmp_path, story)


def test_the_oldest_message_of_a_group_has_the_age_of_its_place_in_the_log(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        await engine.submit(CommitOffsets("g", "t", {0: 0}))
        reader = figures(engine)
        await engine.submit(SendMessages("t", [message("t", "a")]))
        reader.read()
        await engine.advance(90_000)
        await engine.submit(SendMessages("t", [message("t", "b")]))
        reader._next_s = reader._groups._next_s = 0.0
        assert reader.read().groups[0].oldest_ms == 90_000
        await engine.submit(CommitOffsets("g", "t", {0: 2}))
        reader._next_s = reader._groups._next_s = 0.0
        assert reader.read().groups[0][2:] == (0, 0, 0)

    run(tmp_path, story)


def test_values_are_read_once_a_second(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        reader = figures(engine)
        assert reader.read() is reader.read()
        exposition = Exposition(reader)
        first, again = await asyncio.gather(exposition.text(""), exposition.text("text/plain"))
        assert first[0] is again[0]

    run(tmp_path, story)


def test_what_cannot_be_read_stays_as_it_was() -> None:
    answers: list[Any] = [{1: 5}, HorologError(ErrorCode.DAMAGED, "a run"), OSError("gone"), {1: 6}]

    def compute() -> dict[int, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cached = CachedFigure(compute, {})
    found = []
    for _ in range(4):
        cached._next_s = 0.0
        found.append(cached.result())
    assert found == [{1: 5}, {1: 5}, {1: 5}, {1: 6}]
    assert cached.result() == {1: 6}
    assert not answers  # it is not asked again so soon


def test_the_format_is_that_which_is_asked_for(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        app = make_app(engine, broker_name="b", exposition=Exposition(figures(engine)))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            plain = await client.get("/metrics")
            assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
            accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5"
            new = await client.get("/metrics", headers={"accept": accept})
            assert new.headers["content-type"].startswith("application/openmetrics-text")
            units = {family.name: family.unit for family in openmetrics_families(new.text)}
            assert units["horolog_handover_lateness_seconds"] == "seconds"
            assert units["horolog_log_written_bytes"] == "bytes"
            refused = await client.get("/metrics?x=1")
            assert (refused.status_code, refused.json()["error"]["field"]) == (400, "x")

    run(tmp_path, story)


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "x;;;,,", "application/json"])
def test_anything_else_is_answered_in_plain_text(accept) -> None:
    assert not wants_openmetrics(accept)


def test_metrics_are_for_administrators_where_access_is_controlled(tmp_path) -> None:
    async def running() -> None:
        app = make_app(ScriptedEngine(), broker_name="b", guard=Guard(access_file(tmp_path)))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/metrics")).status_code == 401
            user = httpx.BasicAuth("app", "app-secret")
            assert (await client.get("/metrics", auth=user)).status_code == 403
            token = {"authorization": "Bearer operator-token"}
            found = await client.get("/metrics", headers=token)
            assert found.json()["error"]["code"] == "not_found"  # it counts nothing

    asyncio.run(asyncio.wait_for(running(), 10))


def test_a_step_of_the_clock_is_counted_and_a_slow_one_is_not() -> None:
    meters = Meters()
    for wall_ms, mono_ms in (
        (1_000, 0),
        (61_000, 60_000),
        (66_000, 62_000),
        (67_000, 63_100),
        (60_000, 64_000),
    ):
        meters.begin(0, wall_ms, mono_ms)
        meters.end()
    assert meters.steps == [1, 1]
    assert meters.stepped_ms == [3_000, 7_900]
    assert sum(meters.turn_s.counts) == 5


def test_a_histogram_counts_a_bound_as_at_most_that() -> None:
    found = Histogram((1, 2))
    for value in (0, 1, 1.5, 2, 3):
        found.observe(value)
    assert (found.counts, found.total) == ([2, 2, 1], 7.5)
    other = found.copy()
    other.observe(1)
    assert found.counts == [2, 2, 1]
    assert quantile(found.bounds, found.counts, 1.0) == float("inf")
    assert quantile(found.bounds, [0, 0, 0], 0.5) is None


def test_the_disk_is_counted_as_df_does(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reserved for the system is neither used nor ours: a quarter of this disk is used, not two fifths."""
    found = os.statvfs_result((4096, 4096, 1_000, 800, 600, 0, 0, 0, 0, 255))

    async def story(engine: Engine) -> None:
        looked = figures(engine)
        with monkeypatch.context() as small:
            small.setattr(os, "statvfs", lambda path: found)
            disk = looked.read().disk
        assert (disk.size, disk.free) == (4096 * 800, 4096 * 600)

    run(tmp_path, story)


def test_a_full_disk_is_seen(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        engine.storage.free_bytes = lambda: 0  # type: ignore[method-assign]
        engine.broker.disk._looked_ms = -1_000
        engine.broker.disk._taken = 1 << 40
        with pytest.raises(HorologError):
            await engine.submit(SendMessages("t", [message("t", "a")]))
        found = present(engine)
        assert found.disk.is_full
        assert (found.disk.headroom, found.core["refused_for_space"]) == (0, 1)

    run(tmp_path, story)
