"""Adopted runs in a backup, under `verify` and `inspect`, and on a disk that is full."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from adopted_runs import stage
from tests.unit.test_adoption_requests import Api, messages, serve

from horolog.backup.copying import Progress
from horolog.backup.restoring import Restore, lock_target, open_backup
from horolog.backup.status import BackupState
from horolog.broker.adopt.staging import Begun
from horolog.cli.inspection.run_file import read_run
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import BeginAdoption
from horolog.protocol.commands import CountPending, CreateTopic, MessageType, Recall, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.storage.disk import Disk
from horolog.testing.sim_adoptions import Transaction
from horolog.verify.directory import Verdict, verify_directory

DELAYS = (-1_000, 500, 2 * HOUR_MS, 3 * DAY_MS, 90 * DAY_MS)


def verify(data_dir: Path) -> Verdict:
    return verify_directory(Disk(data_dir, read_only=True))


async def adopt(api: Api, version: int) -> None:
    begun = await api.begin(version)
    files = [
        stage(begun, name, messages(begun, 100 * version + 10 * i, DELAYS))
        for i, name in enumerate("ab")
    ]
    done = await api.post(
        "commit", app="load", version=version, topic="t", token=begun["token"], files=files
    )
    assert done["files"] == 2


async def used(api: Api) -> None:
    """Two adoptions, of which some is handed over and some recalled."""
    for version in (1, 2):
        await adopt(api, version)
    await api.engine.advance(10_000)
    due = api.engine.clock.wall_ms() - 10_000 + DELAYS[3]
    assert (await api.engine.submit(Recall("t", "m103", due))).status.value == "CANCELLED"


def test_a_backup_holds_adopted_runs(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        await used(api)
        backups = api.engine.backups
        assert backups is not None
        await backups.begin(str(tmp_path / "backup"))
        while (view := backups.view()).state is BackupState.RUNNING:
            await api.engine.advance(0)
        assert view.state is BackupState.DONE, view

    async def restored(api: Api) -> None:
        assert await api.pending() == 12 - 1
        assert (await api.begin(2))["already"]
        await api.engine.advance(4 * DAY_MS)
        assert await api.pending() == 4

    serve(tmp_path / "data", use, inline_bytes=0)
    manifest, lock = open_backup(tmp_path / "backup")
    target = lock_target(tmp_path / "other")
    Restore(
        Disk(tmp_path / "backup", read_only=True), Disk(tmp_path / "other"), manifest, Progress()
    ).run()
    target.release()
    assert lock is None or lock.release() is None
    assert verify(tmp_path / "other").clean
    serve(tmp_path / "other", restored)
    assert verify(tmp_path / "other").clean


def test_verify_finds_every_flipped_byte_of_an_adopted_run(tmp_path: Path) -> None:
    serve(tmp_path / "data", used, inline_bytes=0)
    assert verify(tmp_path / "data").findings.kept == []
    run = sorted((tmp_path / "data" / "shard-00" / "runs").glob("adopted.*.run"))[0]
    content = run.read_bytes()
    for at in range(0, len(content), 7):
        run.write_bytes(content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :])
        found = verify(tmp_path / "data").findings.kept
        assert any(run.name in finding.file for finding in found), at
    run.unlink()
    assert not verify(tmp_path / "data").clean


def test_verify_compares_adopted_rows_with_the_log(tmp_path: Path) -> None:
    """The state of another moment: then the log settles other rows."""
    kept: list[Path] = []

    async def half(api: Api) -> None:
        await used(api)
        await api.engine.checkpoint()
        shutil.copytree(api.data_dir / "shard-00" / "runs", tmp_path / "runs")
        kept.extend((tmp_path / "runs").glob("*.state.*"))
        due = api.engine.clock.wall_ms() - 10_000 + DELAYS[4]
        assert (await api.engine.submit(Recall("t", "m104", due))).status.value == "CANCELLED"

    serve(tmp_path / "data", half, inline_bytes=0)
    assert verify(tmp_path / "data").clean
    runs = tmp_path / "data" / "shard-00" / "runs"
    old = next(
        path for path in kept if len(list(runs.glob(f"{path.name.split('.state')[0]}.state*"))) > 1
    )
    newest = sorted(runs.glob(f"{old.name.split('.state')[0]}.state*"))[-1]
    shutil.copy(old, newest)
    assert any(
        newest.name.split(".state")[0] in f.file for f in verify(tmp_path / "data").findings.kept
    )


def test_inspect_shows_an_adopted_run(tmp_path: Path) -> None:
    serve(tmp_path / "data", used, inline_bytes=0)
    (run, *_) = (tmp_path / "data" / "shard-00" / "runs").glob("adopted.*.run")
    report = read_run(run, memoryview(run.read_bytes()), limit=10)
    assert report.problems == []
    assert report.fields["adopted"] == "yes"


# --- a full disk ----------------------------------------------------------------------------------


def transaction_of(world: Any, delays: list[int]) -> Transaction:
    now = world.clock.wall_ms()
    made = Transaction(world.broker.place, Begun("a" * 16, "load", 1, "t", now), 1, 1)
    made.begin()
    made.stage(
        [
            [
                encode(
                    topic="t", body=bytes(500), message_id=f"m{i}", type=MessageType.DELAY,
                    due_ms=now + delay,
                )
                for i, delay in enumerate(delays)
            ]
        ]
    )  # fmt: skip
    return made


def test_p9_a_full_disk_refuses_begin_and_commit(make_world) -> None:
    world = make_world(segment_bytes=65_536)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    soon = transaction_of(world, [1_000] * 100)
    command = soon.prepare(world.clock.wall_ms() + HOUR_MS)
    assert command.soon_bytes > 50_000
    world.disk.capacity_bytes = world.disk.used_bytes() + 20_000
    world.clock.advance(2_000)
    with pytest.raises(HorologError) as refused:
        world.broker.ask(command)  # they could not be handed over
    assert refused.value.code is ErrorCode.DISK_FULL
    world.disk.capacity_bytes = world.disk.used_bytes() + 100
    world.clock.advance(2_000)
    with pytest.raises(HorologError) as refused:
        world.broker.ask(BeginAdoption("load", 1, "t"))
    assert refused.value.code is ErrorCode.DISK_FULL
    soon.undo()
    world.disk.capacity_bytes = world.disk.used_bytes() + 60_000
    later = transaction_of(world, [90 * DAY_MS] * 20)
    world.clock.advance(2_000)
    assert world.broker.ask(later.prepare(world.clock.wall_ms() + HOUR_MS)).rows == 20
    assert world.broker.ask(CountPending()).total == 20
