"""Runs that a task of Spark stages: synced on the way in a thread, which hides no failure."""

from __future__ import annotations

import numpy as np
import pytest

from horolog.delay.entry import ENTRY, record_crcs
from horolog.delay.run import writer as run_writer
from horolog.delay.run.reader import Run
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CONTROL_RESERVE_BYTES
from horolog.spark.staged_runs import StagedWriter
from horolog.storage.disk import Disk, DiskFile
from horolog.testing.disk import FaultyDisk

SYNC_BYTES = 10_000
ROWS = 500
RECORD = bytes(200)


@pytest.fixture(autouse=True)
def often(monkeypatch) -> None:
    """A sync every ten kilobytes."""
    monkeypatch.setattr(run_writer, "SYNC_BYTES", SYNC_BYTES)


def write(tmp_path, rows: int = ROWS) -> None:
    write_to(StagedWriter(Disk(tmp_path), "a", 7, rows), rows)


def write_to(writer: StagedWriter, rows: int) -> None:
    try:
        for first in range(0, rows, 50):
            entries = np.zeros(50, ENTRY)
            entries["size"] = len(RECORD)
            entries["row"] = np.arange(first, first + 50)
            entries["due_ms"] = 1_000 + entries["row"]
            entries["crc"] = record_crcs([RECORD] * 50, entries["origin"], entries["row"])
            writer.add_joined(entries, memoryview(RECORD * 50))
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def test_the_run_is_whole(tmp_path) -> None:
    write(tmp_path)
    run = Run.open(Disk(tmp_path), ".", "a", 7)
    assert run.rows == ROWS
    run.close()


def test_any_failed_sync_fails_the_run(tmp_path, monkeypatch) -> None:
    sync = DiskFile.sync
    done = failing = 0

    def fails(file: DiskFile) -> None:
        nonlocal done
        done += 1
        if done == failing:
            raise HorologError(ErrorCode.DISK_FAILED, "sync: broken")
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", fails)
    write(tmp_path)
    for nth in range(1, done + 1):
        failing, done = nth, 0
        with pytest.raises(HorologError, match="broken"):
            write(tmp_path)
        assert not list(tmp_path.iterdir())
    assert failing > 5


@pytest.mark.parametrize("room", [-1, 50_000])
def test_a_run_leaves_the_reserve_of_the_brokers_disk_free(room) -> None:
    """It is refused at its beginning or on the way; on the disk of a worker it may use all."""
    disk = FaultyDisk(capacity_bytes=CONTROL_RESERVE_BYTES + room)
    disk.make_dir(".")
    free = [disk.free_bytes()]
    disk.on_effect = lambda _: free.append(disk.free_bytes())
    with pytest.raises(HorologError, match=r"disk: .* are kept in reserve") as refused:
        write_to(StagedWriter(disk, "a", 7, ROWS, is_shared=True), ROWS)
    assert refused.value.code is ErrorCode.DISK_FULL
    assert disk.names() == ()
    assert min(free) > CONTROL_RESERVE_BYTES - 2 * SYNC_BYTES
    write_to(StagedWriter(disk, "a", 7, ROWS), ROWS)
