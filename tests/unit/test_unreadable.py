"""The start after a mapped file could not be read: bad sectors of hours, buffers and runs cost nothing that the log has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.test_rot import FAR, consume, made
from worlds import checkpoint

from horolog.broker.life.unreadable import replace_unreadable
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS, SECTORS_LOST_MAX
from horolog.protocol.commands import CreateTopic, DescribeBroker, SendMessages, TopicType
from horolog.storage.crash_note import BUS_ERROR, LAST_NAME, NAME, CrashNote
from horolog.storage.sectors import SECTOR_BYTES

SHARD = "shard-00"


@pytest.fixture
def stored(make_world):
    """Hours, a buffer and runs with 300 messages; and when each is due."""
    world = make_world()
    world.broker.settings = world.broker.settings._replace(far=FAR._replace(buffer_bytes=20_000))
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    start = world.clock.wall_ms()
    world.due_of = {}
    for i in range(60):
        delays = [2 * HOUR_MS + i, 5 * HOUR_MS, 3 * DAY_MS + i, 3 * DAY_MS, 50 * DAY_MS]
        batch = {f"m{i}-{j}": start + delay for j, delay in enumerate(delays)}
        world.broker.ask(SendMessages("t", [made(name, due) for name, due in batch.items()]))
        world.due_of |= batch
    for _ in range(3):
        world.clock.advance(1_000)
        checkpoint(world)
    world.disk.crash(power_cut=True)
    return world


@pytest.mark.parametrize("part", ["delay.log", "delay.idx", ".run", "state."])
def test_bad_sectors_cost_nothing_that_the_log_has(stored, part) -> None:
    """P2, P11."""
    bad = {
        path: [(size // 2, size // 2 + 1)]
        for path in stored.disk.names()
        if part in path and "/log/" not in path and (size := stored.disk.open(path).size())
    }
    assert bad
    stored.disk.unreadable |= bad
    report = replace_unreadable(stored.disk, SHARD)
    assert [line.partition(":")[0] for line in report] == sorted(bad)
    assert all("1 sector cannot be read" in line for line in report)
    assert not stored.disk.unreadable
    assert not [path for path in stored.disk.names() if path.endswith(".copy")]
    stored.broker.open()
    stored.clock.advance(51 * DAY_MS)
    stored.broker.settle(2_000)
    assert consume(stored).keys() == stored.due_of.keys()
    assert not stored.broker.ask(DescribeBroker()).problems


def test_what_can_be_read_stays_as_it_is(stored) -> None:
    before = {path: bytes(stored.disk.open(path).view()) for path in stored.disk.names()}
    stored.disk.open(f"{SHARD}/hours/x.copy", create=True).write(0, b"of a start that was killed")
    assert replace_unreadable(stored.disk, SHARD) == []
    assert {path: bytes(stored.disk.open(path).view()) for path in stored.disk.names()} == before


def test_a_disk_that_reads_next_to_nothing_has_failed(stored) -> None:
    path = f"{SHARD}/hours/big"
    content = bytes(SECTOR_BYTES * (SECTORS_LOST_MAX + 2))
    stored.disk.open(path, create=True).write(0, content)
    stored.disk.unreadable[path] = [(0, len(content))]
    with pytest.raises(HorologError) as error:
        replace_unreadable(stored.disk, SHARD)
    assert error.value.code is ErrorCode.DISK_FAILED
    assert stored.disk.open(path).size() == len(content)


def test_a_note_says_how_the_last_process_ended(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(f"Fatal Python error: {BUS_ERROR}\n\nThread 1:\n  File x\n")
    note = CrashNote(tmp_path)
    assert note.begin() == f"Fatal Python error: {BUS_ERROR}"
    assert "File x" in (tmp_path / LAST_NAME).read_text()
    assert (tmp_path / NAME).read_text() == ""
    note.end()
    assert not (tmp_path / NAME).exists()
    assert CrashNote(tmp_path / "missing").begin() == "", "no note is no reason not to start"
    os.mkfifo(tmp_path / NAME)
    note = CrashNote(tmp_path)
    assert note.begin() == "", "nobody waits for a writer"
    note.end()
