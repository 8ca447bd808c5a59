"""Sectors that the disk cannot read: a hole where nobody else has it, made again where somebody has (P2, P11)."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from worlds import checkpoint, take_all

from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.queue_unit import UNIT
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    DescribeGroup,
    FindMessages,
    MessageType,
    ReadQueue,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import Unreadable
from horolog.storage.disk import Disk
from horolog.storage.sectors import SECTOR_BYTES, read_around, read_if_any, reads_elsewhere
from horolog.testing.disk import FaultyDisk

LOG = "shard-00/log/00000000000000000000.log"


def made(message_id: str, due_ms: int = 0):
    return encode(
        topic="t",
        body=message_id.encode() * 100,
        message_id=message_id,
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
        tag="A",
    )


@pytest.fixture
def sent(world):
    """40 frames of one message each, some 700 bytes; of which none is in memory any more."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.ids = [f"m{i:03d}" for i in range(40)]
    for each in world.ids:
        world.broker.ask(SendMessages("t", [made(each)]))
    checkpoint(world)
    world.reopen()
    return world


def frames(world) -> list[tuple[int, int]]:
    """Log positions [from, to) of the frames with a message of topic t, in order."""
    content = world.disk.open(LOG).read(0, 65_536)
    at, found = 0, []
    while (header := parse(content, at)) is not None:
        if header.count and b"m0" in content[at + HEADER_BYTES : header.end]:
            found.append((at, header.end))
        at = header.end
    return found


def lost_by(world, first: int, stop: int) -> set[str]:
    """Ids of the messages of which a part lies in the sectors of these bytes."""
    first -= first % SECTOR_BYTES
    stop += -stop % SECTOR_BYTES
    return {
        name
        for name, (begin, end) in zip(world.ids, frames(world), strict=True)
        if begin < stop and first < end
    }


def test_a_sector_of_the_log_costs_the_messages_that_lie_in_it(sent) -> None:
    """For every reader; the rest is served, by the next start too, and health names the place."""
    lost = lost_by(sent, 9_000, 9_001)
    rest = [each for each in sent.ids if each not in lost]
    assert 3 < len(lost) < 12
    sent.disk.unreadable[LOG] = [(8_192, 12_288)]
    for _ in range(2):
        assert take_all(sent, f"g{sent.broker.lives}") == rest
        records = sent.broker.ask(ReadQueue("t", 0, 0, 100, 1 << 20)).records
        assert len(records) == len(rest)
        found = [each for each in sent.ids if sent.broker.ask(FindMessages("t", each))]
        assert set(rest) <= set(found)
        problems = sent.broker.ask(DescribeBroker()).problems
        assert any("Input/output error" in each for each in problems), problems
        (progress,) = sent.broker.ask(DescribeGroup(f"g{sent.broker.lives}", "t"))
        assert progress.ack_floor == len(sent.ids), "holes are consumed"
        checkpoint(sent)
        sent.reopen()


def test_pulls_go_past_a_sector(sent) -> None:
    lost = lost_by(sent, 9_000, 9_001)
    sent.disk.unreadable[LOG] = [(8_192, 12_288)]
    at, layouts = 0, []
    while at < len(sent.ids):
        pulled = sent.broker.ask(Pull("t", 0, at, 32, 1 << 20, "A", 0))
        layouts += pulled.layouts
        assert pulled.next_offset > at
        at = pulled.next_offset
    assert len(layouts) == len(sent.ids) - len(lost)


def test_of_a_disk_that_reads_nothing_nothing_is_believed(sent) -> None:
    """It ends the broker, and no message counts as consumed."""
    sent.disk.unreadable[LOG] = [(0, 1 << 20)]
    with pytest.raises(HorologError, match="Input/output error") as ended:
        take_all(sent)
    assert ended.value.code is ErrorCode.DISK_FAILED
    sent.disk.unreadable.clear()
    sent.reopen()
    assert take_all(sent) == sent.ids


def test_the_end_of_the_log_must_be_readable_for_a_start(sent) -> None:
    """Who cannot read it cannot know whether it is torn; nothing is cut, and a start after that finds all of it."""
    sent.broker.ask(SendMessages("t", [made("m100")]))
    end = sent.broker.end
    sent.disk.crash(power_cut=True)
    sent.disk.unreadable[LOG] = [(end - 300, end)]
    with pytest.raises(HorologError, match="Input/output error"):
        sent.broker.open()
    sent.disk.unreadable.clear()
    sent.broker.open()
    assert take_all(sent) == [*sent.ids, "m100"]


@pytest.mark.parametrize("running", [True, False])
def test_a_sector_of_a_queue_is_made_again_from_the_log(sent, running) -> None:
    (name,) = sent.disk.list("shard-00/queues")
    (file,) = sent.disk.list(f"shard-00/queues/{name}")
    sent.disk.unreadable[f"shard-00/queues/{name}/{file}"] = [(0, SECTOR_BYTES)]
    if not running:
        sent.reopen()
    assert take_all(sent) == sent.ids
    assert sent.broker.ask(DescribeBroker()).repairs == len(sent.ids)


@pytest.mark.parametrize("part", ["/checkpoint/", "/state.", "/keys/", "/queues/"])
def test_a_derived_file_that_cannot_be_read_does_not_keep_a_start_from_serving(
    make_world, part
) -> None:
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    due = [0, now + HOUR_MS, now + 5 * HOUR_MS, now + 3 * DAY_MS]
    for i, each in enumerate(due * 8):
        world.broker.ask(SendMessages("t", [made(f"m{i:03d}", each)]))
    checkpoint(world)
    world.broker.ask(SendMessages("t", [made("m100")]))
    world.disk.crash(power_cut=True)
    paths = [path for path in world.disk.names() if part in path]
    assert paths
    for path in paths:
        world.disk.unreadable[path] = [(0, 1 << 20)]
    world.broker.open()
    world.disk.unreadable.clear()
    assert world.broker.ask(CountPending()).total == 24
    assert take_all(world) == [f"m{i:03d}" for i in range(0, 32, 4)] + ["m100"]
    world.clock.advance(4 * DAY_MS)
    world.broker.settle(500)
    assert len(take_all(world)) == 24


def test_a_queue_drops_nothing_because_it_cannot_be_read() -> None:
    """Retention asks units where the log goes on; those that are zeros do not say."""
    disk = FaultyDisk()
    queue = ConsumeQueue(disk, "queues/1-0")
    units = np.zeros(2_000, UNIT)
    units["position"], units["size"] = np.arange(2_000) * 100 + 64, 90
    queue.append(units)
    queue.flush()
    (name,) = disk.list("queues/1-0")
    disk.unreadable[f"queues/1-0/{name}"] = [(16_000, 24_000)]
    for wanted in (20_064, 90_064, 150_064):
        queue.begin_at(queue.first_from(wanted))
        kept = int(queue.read(queue.first, 1)["position"][0])
        assert queue.first <= (wanted - 64) // 100
        assert kept in (0, wanted)
    assert queue.first == 1_500


class Bad:
    """A file of which some bytes cannot be read."""

    def __init__(self, content: bytes, *bad: range) -> None:
        self.content, self.bad = content, bad

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        stop = min(offset + length, len(self.content))
        if any(offset < bad.stop and bad.start < stop for bad in self.bad):
            raise Unreadable("file", "Input/output error")
        return self.content[offset:stop]


def test_only_sectors_that_cannot_be_read_are_zeros() -> None:
    content = bytes(i % 255 + 1 for i in range(3 * SECTOR_BYTES + 100))
    bad = range(SECTOR_BYTES + 7, SECTOR_BYTES + 9)
    lost = []
    read = read_around(Bad(content, bad), 50, 1 << 20, lambda *sector: lost.append(sector[:2]))
    assert lost == [(SECTOR_BYTES, 2 * SECTOR_BYTES)]
    assert read == content[50:SECTOR_BYTES] + bytes(SECTOR_BYTES) + content[2 * SECTOR_BYTES :]
    assert read_around(Bad(content, bad), 0, SECTOR_BYTES) == content[:SECTOR_BYTES]


class Starved(Bad):
    """A file that the system has no memory to read."""

    def read(self, offset: int, length: int) -> bytes:
        raise HorologError(ErrorCode.DISK_FAILED, "read file: Cannot allocate memory")


def test_nothing_is_lost_that_is_not_the_mediums_fault() -> None:
    lost: list[object] = []
    with pytest.raises(HorologError, match="Cannot allocate memory"):
        read_around(Starved(b"x"), 0, 1, lambda *sector: lost.append(sector))
    with pytest.raises(HorologError, match="Cannot allocate memory"):
        reads_elsewhere(Starved(b"x"), 0)
    assert lost == []


def test_a_file_that_is_there_is_not_taken_for_missing(tmp_path, monkeypatch) -> None:
    """A start without memory to read a checkpoint must end, and not go on from an older one."""
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "directory").mkdir()
    disk, real = Disk(tmp_path), os.pread
    reason = errno.ENOMEM

    def pread(*_arguments: object) -> bytes:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(HorologError, match="Cannot allocate memory"):
        read_if_any(disk, "a")
    reason = errno.EIO
    assert [read_if_any(disk, path) for path in ("a", "directory", "missing")] == [b""] * 3
    monkeypatch.setattr(os, "pread", real)
    assert read_if_any(disk, "a") == b"x"


@pytest.mark.parametrize("part", ["queues", "hours", "runs"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_directory_in_the_place_of_a_derived_file_is_damage(
    make_world, tmp_path, part, which
) -> None:
    """What can be made again from the log is; it kept starts from serving."""
    world = make_world(root=tmp_path)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    for i, due in enumerate([0, now + 2 * HOUR_MS, now + 3 * DAY_MS] * 4):
        world.broker.ask(SendMessages("t", [made(f"m{i:03d}", due)]))
    checkpoint(world)
    world.disk.crash(power_cut=False)
    files = sorted(
        each
        for each in (tmp_path / "shard-00" / part).rglob("*")
        if each.suffix in (".cq", ".idx", ".log")
    )
    files[which].unlink()
    files[which].mkdir()
    world.broker.open()
    assert world.broker.ask(CountPending()).total == 8
    assert take_all(world) == ["m000", "m003", "m006", "m009"]


def test_old_files_that_cannot_be_removed_end_nothing(world) -> None:
    """The checkpoint that they are too old for is durable; the next one tries again."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + HOUR_MS

    def refuse(what: str) -> None:
        if what.startswith("remove "):
            raise HorologError(ErrorCode.DIRECTORY_READ_ONLY, f"{what}: Operation not permitted")

    world.disk.on_effect = refuse
    for i in range(4):
        world.broker.ask(SendMessages("t", [made(f"m{i:03d}", due)]))
        checkpoint(world)
    too_many = len(world.disk.list("shard-00/checkpoint"))
    assert too_many > 2
    world.disk.on_effect = None
    for i in range(4, 6):
        world.broker.ask(SendMessages("t", [made(f"m{i:03d}", due)]))
        checkpoint(world)
    assert len(world.disk.list("shard-00/checkpoint")) == 2
    world.reopen()
    assert world.broker.ask(CountPending()).total == 6
