"""What rots in derived files is found in the log, where one byte is not all of it: entries with their records, tag codes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.unit.test_rot import FAR, consume, made, on_a_real_disk
from worlds import checkpoint

from horolog.delay.entry import ENTRY, ENTRY_BYTES
from horolog.delay.entry_files import EntryFiles
from horolog.delay.source import refs_of
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.queue_unit import UNIT_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    FindMessages,
    MessageType,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode

ROTTEN_ROWS = {  # of entries and of records
    "one": ([7], [7]),
    "the first": ([0, 1, 2], [0, 1]),
    "the last": ([37, 38, 39], [37, 38, 39]),
    "many": (range(5, 30), [6, 17]),
    "two gaps": ([3, 4, 5, 20, 21], [4, 21]),
    "entries of all": (range(40), [11]),
}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("place", ["hours/", "runs/buffer"])
@pytest.mark.parametrize("rows", ROTTEN_ROWS)
def test_entries_and_records_that_both_rot_cost_nothing_that_the_log_has(
    world, tmp_path, place, rows, running
) -> None:
    """Between and beside them the log has messages of other hours, and ones that are recalled (P2, P11)."""
    broker, far = world.broker, place == "runs/buffer"
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + (3 * DAY_MS if far else 5 * HOUR_MS)
    other = world.clock.wall_ms() + (5 * HOUR_MS if far else 3 * DAY_MS)
    for i in range(40):
        names = {f"m{i}": due + 1_000 * (i % 7), f"x{i}": other + i, f"n{i}": 0}
        broker.ask(SendMessages("t", [made(name, at) for name, at in names.items()]))
    broker.settle()
    for i in (5, 21):
        assert (
            broker.ask(Recall("t", f"m{i}", due + 1_000 * (i % 7))).status is RecallStatus.CANCELLED
        )
    checkpoint(world)
    (index,) = [
        name
        for name in world.disk.names()
        if place in name
        and name.endswith("delay.idx")
        and world.disk.open(name).size() == 40 * ENTRY_BYTES
    ]
    world = on_a_real_disk(world, tmp_path)  # files stay mapped there
    broker = world.broker
    if running:
        broker.open()
        assert broker.ask(FindMessages("t", "m7"))
    records = world.disk.open(index.replace("delay.idx", "delay.log"))
    entries = np.frombuffer(bytes(world.disk.open(index).view()), ENTRY).copy()
    for row in ROTTEN_ROWS[rows][0]:
        world.disk.open(index).write(row * ENTRY_BYTES, b"\xa5" * ENTRY_BYTES)
    for row in ROTTEN_ROWS[rows][1]:
        records.write(int(entries["position"][row]), b"\xa5" * 100)
    if not running:
        broker.open()
    assert broker.ask(FindMessages("t", "m7"))
    world.clock.advance(4 * DAY_MS)
    broker.settle(500)
    got = consume(world)
    wanted = {f"{kind}{i}" for kind in "mxn" for i in range(40)} - {"m5", "m21"}
    assert got.keys() == wanted
    assert not broker.ask(DescribeBroker()).problems


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("count", [3, 40])  # units are opened one by one, or as columns
def test_a_tag_code_that_rots_hides_no_message(world, count, several) -> None:
    """Neither from a receive nor from a pull; and none gets what it does not want (P2, P11)."""
    broker, settings = world.broker, TopicSettings(multi_tag=several)
    broker.ask(CreateTopic("t", TopicType.MIXED, 1, settings))
    every = [
        encode(topic="t", body=b"x", message_id=f"m{i}", type=MessageType.NORMAL, tag="AB"[i % 2])
        for i in range(count)
    ]
    broker.ask(SendMessages("t", every))
    checkpoint(world)
    (path,) = [name for name in world.disk.names() if name.endswith(".cq")]
    whole = bytes(world.disk.open(path).view())
    for offset in (1, 2):
        for bit in range(64):
            world.disk.flip(path, offset * UNIT_BYTES + 12 + bit // 8, bit % 8)
            command = Pull("t", 0, 0, count, 1 << 20, "AB"[offset % 2], 0)
            got = [layout.decode(bytes(each)).queue_offset for each in broker.ask(command).layouts]
            assert got == list(range(offset % 2, count, 2)), (offset, bit)
            assert bytes(world.disk.open(path).view()) == whole, "it is written again"
    assert broker.ask(DescribeBroker()).repairs == 128
    for offset in (1, 2):
        world.disk.flip(path, offset * UNIT_BYTES + 12, 1)
    for tag in "AB":
        command = Receive(tag, "t", -1, tag, 32, 3_600_000, False, 0, "c")
        got = [
            layout.decode(bytes(each.layout)).queue_offset for each in broker.ask(command).messages
        ]
        assert got == list(range("AB".index(tag), count, 2))[:32]
    assert broker.ask(DescribeBroker()).repairs == 130
    assert not broker.ask(DescribeBroker()).problems


def overwritten_everywhere(make_world, directory, seed: int, *, running: bool):
    """A broker in each of whose derived files some bytes, up to a page, are zeros or garbage; and what it was sent."""
    random = Random(seed)
    world = make_world(segment_bytes=1 << 20)
    far = FAR._replace(buffer_bytes=100_000)
    world.broker.settings = world.broker.settings._replace(far=far)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    start, sent = world.clock.wall_ms(), dict[str, int]()
    for i in range(60):
        batch = {}
        for j in range(25):
            near = [
                0,
                2 * HOUR_MS + random.randrange(HOUR_MS),
                5 * HOUR_MS + random.randrange(1_000),
            ]
            delay = random.choice([*near, 3 * DAY_MS + random.randrange(DAY_MS), 50 * DAY_MS])
            batch[f"m{i}-{j}"] = start + delay if delay else 0
        world.broker.ask(SendMessages("t", [made(name, due) for name, due in batch.items()]))
        sent |= batch
        if i % 20 == 19:
            world.clock.advance(1_000)
            checkpoint(world)
    checkpoint(world)
    world.broker.settle(200)
    names = world.disk.names()
    world = on_a_real_disk(world, directory, 1 << 20)
    if running:
        world.broker.open()
        for name in list(sent)[::50]:
            world.broker.ask(FindMessages("t", name))
    size = random.choice([64, 512, 4_096])
    for path in names:
        file = world.disk.open(path)
        if any(part in path for part in ("/queues/", "/hours/", "/runs/", "/keys/")):
            at = random.randrange(max(1, file.size() - size)) // min(size, 512) * min(size, 512)
            content = random.choice([bytes, random.randbytes])(min(size, file.size() - at))
            file.write(at, content)
    if not running:
        world.broker.open()
    return world, sent


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n == 16 else pytest.mark.slow) for n in range(40)]
)
def test_a_page_of_every_derived_file_costs_nothing_that_the_log_has(
    make_world, tmp_path, seed, running
) -> None:
    """Whichever of them rot together (P2, P3, P11)."""
    world, sent = overwritten_everywhere(make_world, tmp_path, seed, running=running)
    world.clock.advance(51 * DAY_MS)
    world.broker.settle(3_000)
    assert consume(world).keys() == sent.keys()


def test_a_damaged_page_of_an_hour_is_repaired_without_reading_the_hour_for_each_entry(
    world, monkeypatch
) -> None:
    """An hour of a million messages would keep everybody waiting for seconds."""
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due, count = world.clock.wall_ms() // HOUR_MS * HOUR_MS + 5 * HOUR_MS, 400
    sent = [made(f"m{i}", due + 1_000 * (i % 7)) for i in range(count)]
    broker.ask(SendMessages("t", sent))
    broker.settle()
    checkpoint(world)
    (index,) = [name for name in world.disk.names() if "hours/" in name and "delay.idx" in name]
    whole = bytes(world.disk.open(index).view())
    world.disk.open(index).write((count - 64) * ENTRY_BYTES, b"\xa5" * ENTRY_BYTES * 64)
    read, entries = [], EntryFiles.entries
    monkeypatch.setattr(
        EntryFiles, "entries", lambda self, rows: (read.append(len(rows)), entries(self, rows))[1]
    )
    delay = broker.shard.delay
    (hour,) = [each for each in delay.hours.values() if each.count]
    delay.repair_entries(refs_of(hour.source_id, np.arange(count - 64, count)))
    assert bytes(world.disk.open(index).view()) == whole
    assert sum(read) < count + 64 * 10, "64 times the hour would be 23 000"


def test_a_start_takes_hand_overs_of_damaged_entries_from_the_log(make_world) -> None:
    """They come after the checkpoint, and the page is damaged while nothing runs: nothing is handed over again (P3)."""
    world = make_world(segment_bytes=1 << 20)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + 60_000
    for i in range(30):
        names = [f"m{i}-{j}" for j in range(5)]
        world.broker.ask(SendMessages("t", [made(name, due + i) for name in names]))
    checkpoint(world)
    world.clock.advance(70_000)
    world.broker.settle()
    world.disk.crash(power_cut=False)
    (path,) = [name for name in world.disk.names() if name.endswith("delay.idx")]
    file = world.disk.open(path)
    file.write(64 * ENTRY_BYTES, bytes(64 * ENTRY_BYTES))
    file.sync()
    for _ in range(2):
        world.broker.open()
        world.broker.settle()
        view = world.broker.ask(DescribeBroker())
        assert (view.handed_over, view.pending, view.problems) == (150, 0, [])
        world.disk.crash(power_cut=True)
