"""Backups of a running broker and restores of them: consistent, incremental, safe at every interruption."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from backing_up import back_up, restore

from horolog.admin.app import make_app
from horolog.backup import copying
from horolog.backup.manifest import read_manifest
from horolog.backup.status import BackupState
from horolog.broker.settings import ShardSettings
from horolog.pipeline.data_files import DataFiles, plan_log, read_meta
from horolog.protocol.commands import (
    Ack,
    CountPending,
    CreateTopic,
    DescribeTopic,
    ListPending,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import ClockKind, open_engine
from horolog.server.remoting.kv_table import ORDER_TOPICS, KvTable
from horolog.storage.api import read_file
from horolog.storage.disk import Disk
from horolog.testing.sim_broker import properties_of
from horolog.verify.directory import verify_directory

SEGMENT = 1 << 16
DEADLINE_S = 60.0
Story = Callable[[Engine], Awaitable[None]]


def run(data_dir: Path, story: Story, clock: ClockKind = "simulated") -> None:
    """A story on an engine of its own, with the simulated clock unless it asks for the other."""

    async def begin_and_end() -> None:
        engine = await open_engine(data_dir, clock=clock, segment_bytes=SEGMENT)
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


async def schedule(engine: Engine, name: str, count: int, *, in_ms: int = 60_000) -> None:
    """`count` messages of 300 bytes, a second apart."""
    due_ms = engine.clock.wall_ms() + in_ms
    messages = [
        encode(
            topic="t",
            body=b"x" * 300,
            message_id=f"{name}-{i}",
            type=MessageType.DELAY,
            due_ms=due_ms + 1_000 * i,
        )
        for i in range(count)
    ]
    await engine.submit(SendMessages("t", messages))


async def ready(engine: Engine) -> None:
    await engine.submit(CreateTopic("t", TopicType.MIXED, 1))


async def pending(engine: Engine) -> list[tuple[int, str, int]]:
    """(due, id, origin) of everything that waits."""
    waits = await engine.submit(ListPending(0, 1 << 62, "t", 1_000))
    return [(m.due_ms, m.message_id, m.origin) for m in waits]


async def take_all(engine: Engine) -> list[str]:
    """Ids in the order of their delivery, acknowledged."""
    got = []
    while messages := (
        await engine.submit(Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c"))
    ).messages:
        got += [properties_of(m)["UNIQ_KEY"] for m in messages]
        await engine.submit(Ack("g", "t", [m.receipt_handle for m in messages]))
    return got


def stored(backup: Path) -> dict[str, tuple[int, int]]:
    """Path → (length, number of the backup that copied it)."""
    manifest = read_manifest(Disk(backup), "x")
    assert manifest is not None
    return {file.path: (file.bytes, file.number) for file in manifest.files}


# --- what a backup holds --------------------------------------------------------------------------


def test_files_that_need_not_be_there_and_are_not_do_not_count(tmp_path: Path) -> None:
    """With the system's clock there is no `clock`: a backup ended with one file less than it had."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 20)
        view = await back_up(engine, tmp_path / "backup")
        assert view.state is BackupState.DONE
        assert (view.files_done, view.bytes_done) == (view.files, view.bytes)
        assert view.files == len(stored(tmp_path / "backup"))

    run(tmp_path / "data", story, "system")


def test_a_restored_backup_is_the_broker_as_it_was(tmp_path: Path) -> None:
    """Pending, delivered and acknowledged messages; what came later is not in it."""
    fields: dict[str, object] = {}

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 200)
        await engine.advance(100_000)
        fields["taken"] = await take_all(engine)
        await schedule(engine, "late", 20, in_ms=5 * 3_600_000)
        await engine.advance(5_000)
        fields["pending"] = await pending(engine)
        view = await back_up(engine, tmp_path / "backup")
        assert view.state is BackupState.DONE
        assert (view.files_done, view.bytes_done) == (view.files, view.bytes)
        await schedule(engine, "lost", 3)
        await engine.advance(10_000_000)
        fields["all"] = await take_all(engine)

    run(tmp_path / "data", story)
    restore(tmp_path / "backup", tmp_path / "copy")

    async def again(engine: Engine) -> None:
        assert await pending(engine) == fields["pending"]
        assert engine.report[-1].startswith("recovery row 1:")
        await engine.advance(10_000_000)
        lost = {f"lost-{i}" for i in range(3)}
        assert isinstance(fields["all"], list)
        assert await take_all(engine) == [each for each in fields["all"] if each not in lost]

    run(tmp_path / "copy", again)


def test_jobs_read_a_backup_like_the_directory_that_is_restored_from_it(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 200, in_ms=48 * 3_600_000)
        await back_up(engine, tmp_path / "backup")
        await schedule(engine, "b", 1)
        await back_up(engine, tmp_path / "backup")

    run(tmp_path / "data", story)
    restore(tmp_path / "backup", tmp_path / "copy")
    backup, copy = (DataFiles(tmp_path / name) for name in ("backup", "copy"))
    numbers = {number for _, number in stored(tmp_path / "backup").values()}
    assert numbers == {1, 2}  # its files lie in the directories of both
    for path in stored(tmp_path / "backup"):
        assert read_file(backup, path) == read_file(copy, path)
    assert read_meta(backup) == read_meta(copy)
    assert replace(plan_log(tmp_path / "backup"), root="") == replace(
        plan_log(tmp_path / "copy"), root=""
    )


def test_a_backup_of_a_broker_that_was_idle_is_as_of_now(tmp_path: Path) -> None:
    """Nothing was logged since its newest checkpoint, and still this backup is not as old as that."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await engine.advance(1_000)  # the mark of an idle log
        first = await back_up(engine, tmp_path / "backup")
        await engine.advance(3_600_000)
        begun_ms = engine.clock.wall_ms()
        second = await back_up(engine, tmp_path / "backup")
        assert (second.position, second.made_ms) == (first.position, begun_ms)
        manifest = read_manifest(Disk(tmp_path / "backup"), "x")
        assert manifest is not None
        assert manifest.made_ms == begun_ms

    run(tmp_path / "data", story)


def test_hand_over_and_checkpoints_go_on_meanwhile(tmp_path: Path, monkeypatch) -> None:
    """Nothing that the backup needs is removed, though hours end and checkpoints are taken."""
    held, go_on = threading.Event(), threading.Event()
    read_pieces = copying.read_pieces

    def slow(file, size, path):
        if "hours" in path:
            held.set()
            go_on.wait(DEADLINE_S)
        return read_pieces(file, size, path)

    monkeypatch.setattr(copying, "read_pieces", slow)

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 100)
        before = await pending(engine)
        assert engine.backups is not None
        await engine.backups.begin(str(tmp_path / "backup"))
        await asyncio.to_thread(held.wait, DEADLINE_S)
        hours = tmp_path / "data" / "shard-00" / "hours"
        first = set(hours.iterdir())
        for _ in range(4):
            await engine.advance(2 * 3_600_000)
            await schedule(engine, "b", 5)
            await engine.checkpoint()
        assert len(await take_all(engine)) == 100 + 15
        assert first <= set(hours.iterdir()), "the backup still needs it"
        go_on.set()
        while (view := engine.backups.view()).state is BackupState.RUNNING:
            await asyncio.sleep(0)
        assert view.state is BackupState.DONE, view.error
        await schedule(engine, "c", 1)
        await engine.checkpoint()
        assert not first & set(hours.iterdir()), "removed by the first checkpoint after it"
        assert len(list((tmp_path / "data" / "shard-00" / "checkpoint").iterdir())) == 2
        restore(tmp_path / "backup", tmp_path / "copy")
        copy = await open_engine(tmp_path / "copy", clock="simulated", start_ms=1)
        try:
            assert await pending(copy) == before
        finally:
            await copy.stop()

    run(tmp_path / "data", story)


def test_the_next_backup_copies_what_is_new(tmp_path: Path) -> None:
    """Sealed segments and hours that have not changed stay as they are, to the inode."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 150)
        await schedule(engine, "far", 10, in_ms=7 * 3_600_000)
        await back_up(engine, tmp_path / "backup")
        first = stored(tmp_path / "backup")
        sealed = [p for p, (size, _) in first.items() if p.endswith(".log") and size == SEGMENT]
        assert sealed
        nodes = {p: (tmp_path / "backup" / "000001" / p).stat() for p in sealed}
        await schedule(engine, "b", 150)
        await schedule(engine, "c", 150)
        view = await back_up(engine, tmp_path / "backup")
        second = stored(tmp_path / "backup")
        assert all(second[p] == first[p] for p in sealed)
        for path, node in nodes.items():
            now = (tmp_path / "backup" / "000001" / path).stat()
            assert (now.st_ino, now.st_mtime_ns) == (node.st_ino, node.st_mtime_ns)
        far_hour = (engine.clock.wall_ms() + 7 * 3_600_000) // 3_600_000
        unchanged = [p for p in first if f"hours/{far_hour:010d}/" in p]
        assert unchanged
        assert {number for p in unchanged for _, number in [second[p]]} == {1}
        assert view.copied_bytes == sum(size for size, number in second.values() if number == 2)
        assert 0 < view.copied_bytes < view.bytes
        there = {
            str(path.relative_to(tmp_path / "backup"))
            for path in (tmp_path / "backup").rglob("*")
            if path.is_file()
        }
        named = {f"{number:06d}/{path}" for path, (_, number) in second.items()}
        assert there == named | {"manifest.json", "lock"}, "nothing else is kept"
        again = await back_up(engine, tmp_path / "backup", full=True)
        assert again.copied_bytes == again.bytes
        assert {number for _, number in stored(tmp_path / "backup").values()} == {3}

    run(tmp_path / "data", story)
    restore(tmp_path / "backup", tmp_path / "copy")


def test_the_name_servers_table_is_in_it_as_it_is_now(tmp_path: Path) -> None:
    """It was left out: a restored broker had lost which topics are used in order."""
    tables = []

    async def story(engine: Engine) -> None:
        await ready(engine)
        table = KvTable(engine.storage)
        for value in ("broker-a:4", "broker-a:8"):
            table.put(ORDER_TOPICS, "a", "x" * 10_000)
            table.put(ORDER_TOPICS, "orders", value)
            table.put(ORDER_TOPICS, "z", "x" * 10_000)
            await back_up(engine, tmp_path / "backup")
            restore(tmp_path / "backup", tmp_path / value)
            tables.append(KvTable(Disk(tmp_path / value)).get(ORDER_TOPICS, "orders"))

    run(tmp_path / "data", story)
    assert tables == ["broker-a:4", "broker-a:8"]


def test_another_history_of_the_same_log_shares_nothing(tmp_path: Path) -> None:
    """A copy that was restored and went on another way must not use segments of the first."""

    async def first(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 10)
        await back_up(engine, tmp_path / "old")
        await schedule(engine, "b", 300)
        await back_up(engine, tmp_path / "backup")

    async def second(engine: Engine) -> None:
        await schedule(engine, "z", 300)
        view = await back_up(engine, tmp_path / "backup")
        assert view.copied_bytes == view.bytes

    run(tmp_path / "data", first)
    restore(tmp_path / "old", tmp_path / "copy")
    run(tmp_path / "copy", second)
    restore(tmp_path / "backup", tmp_path / "again")

    async def last(engine: Engine) -> None:
        ids = {name.partition("-")[0] for _, name, _ in await pending(engine)}
        assert ids == {"a", "z"}

    run(tmp_path / "again", last)


def test_counts_of_a_restored_topic(tmp_path: Path) -> None:
    """Queue offsets go on where the backup was made."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "a", 5)
        await engine.advance(70_000)
        await back_up(engine, tmp_path / "backup")
        await engine.submit(SendMessages("t", [encode(topic="t", body=b"x", message_id="later")]))

    run(tmp_path / "data", story)
    restore(tmp_path / "backup", tmp_path / "copy")

    async def again(engine: Engine) -> None:
        assert (await engine.submit(DescribeTopic("t"))).queue_offsets == [5]
        assert (await engine.submit(CountPending("t"))).total == 0

    run(tmp_path / "copy", again)


def test_retention_waits_for_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that the backup names stay until it is done; the first checkpoint after it drops them."""
    held, go_on = threading.Event(), threading.Event()
    read_pieces = copying.read_pieces

    def slow(file, size, path):
        held.set()
        go_on.wait(DEADLINE_S)
        return read_pieces(file, size, path)

    async def work() -> None:
        engine = await open_engine(
            tmp_path / "data",
            clock="simulated",
            segment_bytes=SEGMENT,
            settings=ShardSettings(retention_bytes=3 * SEGMENT, dedup_ms=0),
        )
        await ready(engine)
        await schedule(engine, "a", 300, in_ms=3_600_000)
        before = await pending(engine)
        log = tmp_path / "data" / "shard-00" / "log"
        monkeypatch.setattr(copying, "read_pieces", slow)
        assert engine.backups is not None
        await engine.backups.begin(str(tmp_path / "backup"))
        await asyncio.to_thread(held.wait, DEADLINE_S)
        first = {path.name for path in log.iterdir()}
        for lap in range(4):
            await schedule(engine, f"b{lap}", 150, in_ms=7_200_000)
            await engine.checkpoint()
        assert first <= {path.name for path in log.iterdir()}
        go_on.set()
        while (view := engine.backups.view()).state is BackupState.RUNNING:
            await asyncio.sleep(0)
        assert view.state is BackupState.DONE, view.error
        for lap in range(2):
            await schedule(engine, f"c{lap}", 1, in_ms=7_200_000)
            await engine.checkpoint()
        assert not first & {path.name for path in log.iterdir()}
        again = await back_up(engine, tmp_path / "backup")
        assert again.copied_bytes == again.bytes, (
            "its last frame has been dropped: nothing is shared"
        )
        await engine.stop()
        restore(tmp_path / "backup", tmp_path / "copy")
        copy = await open_engine(tmp_path / "copy", clock="simulated", start_ms=1)
        try:
            assert (await pending(copy))[:300] == before
        finally:
            await copy.stop()
        assert verify_directory(Disk(tmp_path / "copy")).clean

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


# --- over HTTP ------------------------------------------------------------------------------------


def test_a_backup_over_http(tmp_path: Path) -> None:
    """202 at once, then its progress, then how it ended; a refusal names the field."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        transport = httpx.ASGITransport(make_app(engine, broker_name="broker-a"))
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            assert (await client.get("/v1/backup")).json()["result"]["state"] == "none"
            begun = await client.post("/v1/backup", json={"directory": str(tmp_path / "backup")})
            assert begun.status_code == 202
            assert begun.json()["result"]["number"] == 1
            while (answer := (await client.get("/v1/backup")).json()["result"])[
                "state"
            ] == "running":
                await asyncio.sleep(0)
            assert (answer["state"], answer["error"]) == ("done", None)
            assert answer["position"] > 0
            assert answer["made"].endswith("Z")
            for body, status, field in (
                ({"directory": "b"}, 400, "directory"),
                ({"directory": str(tmp_path / "data")}, 403, "directory"),
                ({"directory": ""}, 400, "directory"),
                ({"directory": "/b", "more": 1}, 400, "more"),
            ):
                refused = await client.post("/v1/backup", json=body)
                assert (refused.status_code, refused.json()["error"]["field"]) == (status, field)
            engine.backups = None
            assert (await client.get("/v1/backup")).status_code == 501

    run(tmp_path / "data", story)
