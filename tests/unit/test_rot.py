"""One byte flipped in any file: reported, never delivered, and the rest is, for every reader (P2, P3, P9, P11).

First files whose log is gone, then the log itself with everything that reads it, flipped before a start and while
the broker runs.
"""

from __future__ import annotations

import copy
from random import Random

import numpy as np
import pytest
from worlds import checkpoint

from horolog.delay.entry import ENTRY, ENTRY_BYTES
from horolog.delay.far.compaction import FarSettings
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.record import HEAD_BYTES, KIND_AT, Kind, offsets_of
from horolog.protocol.commands import (
    Ack,
    CountPending,
    CreateTopic,
    DescribeBroker,
    DescribeGroup,
    DescribeTopic,
    FindMessages,
    ListPending,
    MessageType,
    ReadQueue,
    Recall,
    RecallMany,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.move_commands import MoveMany
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.plain_disk import PlainDisk
from horolog.testing.sim_broker import SimBroker

FAR = FarSettings(buffer_bytes=6_000, runs_max=2, part_runs_max=1)
DELAYS = [2 * HOUR_MS, 2 * HOUR_MS + 1, 5 * HOUR_MS, 3 * DAY_MS, 3 * DAY_MS + 7, 50 * DAY_MS]


def body_of(message_id: str) -> bytes:
    return (message_id * 9).encode()


def made(message_id: str, due_ms: int):
    return encode(
        topic="t",
        body=body_of(message_id),
        message_id=message_id,
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
    )


@pytest.fixture(scope="module")
def at_rest(make_world):
    """A disk with hours, a far buffer, runs of both levels, recalled rows, and a log that begins after 0."""
    world = make_world(segment_bytes=65_536)
    world.broker.settings = world.broker.settings._replace(far=FAR, retention_ms=1_000)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    waiting = {}
    start = world.clock.wall_ms()
    for i in range(0, 180, 6):
        batch = {f"m{i + j}": start + delay for j, delay in enumerate(DELAYS)}
        world.broker.ask(SendMessages("t", [made(k, due) for k, due in batch.items()]))
        waiting |= batch
    for i in (0, 3, 4, 5, 60, 63, 65):
        message_id = f"m{i}"
        world.broker.ask(Recall("t", message_id, waiting.pop(message_id)))
    for i in range(8):  # traffic, so that the log moves on and its beginning is dropped
        world.clock.advance(61_000)
        fill = [made(f"n{i}-{j}", 0) for j in range(300)]
        world.broker.ask(SendMessages("t", fill))
        checkpoint(world)
    view = world.broker.ask(DescribeBroker())
    assert view.pending == len(waiting)
    assert view.log_start > 0
    assert not view.problems
    world.disk.crash(power_cut=True)
    return world, waiting


def consume(world) -> dict[str, bytes]:
    got: dict[str, bytes] = {}
    command = Receive("g", "t", -1, "*", 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        for message in messages:
            stored = layout.decode(message.layout)
            message_id = properties.decode(stored.properties)["UNIQ_KEY"]
            assert message_id not in got, "P3"
            got[message_id] = stored.body
        world.broker.ask(Ack("g", "t", [m.receipt_handle for m in messages]))
    return got


def again(before, segment_bytes: int = 65_536):
    """The same disk and clock once more."""
    world = copy.copy(before)
    world.disk, world.clock = copy.deepcopy((before.disk, before.clock))
    world.broker = SimBroker(Random(1), world.disk, world.clock, "sync", segment_bytes)
    world.broker.settings = before.broker.settings
    return world


def on_a_real_disk(before, directory, segment_bytes: int = 65_536):
    """The same files in a directory, and a broker that is not opened."""
    world = copy.copy(before)
    world.disk, world.clock = PlainDisk(directory), copy.deepcopy(before.clock)
    for path in before.disk.names():
        world.disk.make_dir(path.rpartition("/")[0])
        world.disk.open(path, create=True).write(0, before.disk.open(path).view())
    world.broker = SimBroker(Random(1), world.disk, world.clock, "sync", segment_bytes)
    world.broker.settings = before.broker.settings
    return world


def flipped(at_rest, path: str, offset: int, bit: int) -> None:
    """Flip, start, let all time pass, and compare."""
    before, waiting = at_rest
    world = again(before)
    world.disk.flip(path, offset, bit)
    where = f"{path} byte {offset} bit {bit}"
    try:
        world.broker.open()
    except HorologError as error:
        assert error.code is ErrorCode.DAMAGED, where
        return
    world.clock.advance(51 * DAY_MS)
    world.broker.settle(2_000)
    got = {k: v for k, v in consume(world).items() if k.startswith("m")}
    for message_id, body in got.items():
        assert message_id in waiting, f"{where}: {message_id} was recalled"
        assert body == body_of(message_id), f"{where}: {message_id} is garbled"
    missing = waiting.keys() - got.keys()
    problems = world.broker.ask(DescribeBroker()).problems + world.broker.reports
    if missing:
        assert problems, f"{where}: {len(missing)} are missing and nobody says so"
    # Without its header, footer or directories a run can't be read: it is set aside whole.
    whole = path.endswith(".run") and any("quarantined" in problem for problem in problems)
    if path.endswith(("delay.log", "delay.idx", ".run")) and not whole:
        assert len(missing) <= 1, f"{where}: {len(missing)} are missing: {problems}"


def test_nothing_flipped_nothing_missing(at_rest) -> None:
    before, waiting = at_rest
    world = again(before)
    world.broker.open()
    world.clock.advance(51 * DAY_MS)
    world.broker.settle(2_000)
    assert {k for k in consume(world) if k.startswith("m")} == waiting.keys()


@pytest.mark.parametrize(
    "part", ["delay.log", "delay.idx", "state.", ".run", ".ckpt", "/keys/", "/queues/"]
)
def test_a_flipped_byte_is_reported_and_never_delivered(at_rest, part) -> None:
    disk = at_rest[0].disk
    random = Random(part)
    paths = [path for path in disk.names() if part in path]
    assert paths, f"there is no {part} in {disk.names()}"
    for path in paths if len(paths) < 6 else random.sample(paths, 6):
        size = disk.open(path).size()
        offsets = {0, size - 1, *(random.randrange(size) for _ in range(5))}
        for offset in sorted(offsets):
            flipped(at_rest, path, offset, random.randrange(8))


# --- the log, and everything that reads it ---------------------------------------------------------

SENT, BATCH = 96, 12


@pytest.fixture(scope="module")
def logged(make_world):
    """A disk with a log of visible, scheduled and handed-over messages of which a start reads nothing but the end."""
    world = make_world(segment_bytes=16_384)
    world.broker.settings = world.broker.settings._replace(far=FAR._replace(buffer_bytes=2_000))
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    start = world.clock.wall_ms()
    due_of = {}
    for first in range(0, SENT, BATCH):
        dues = [0, 0, 0, start + 60_000, start + 2 * HOUR_MS, start + 3 * DAY_MS] * 2
        batch = [(f"m{first + i}", due) for i, due in enumerate(dues)]
        world.broker.ask(SendMessages("t", [tagged(*each) for each in batch]))
        due_of |= dict(batch)
    world.clock.advance(61_000)
    world.broker.settle()
    world.clock.advance(1_000)
    world.broker.settle()
    checkpoint(world)
    world.disk.crash(power_cut=True)
    return world, due_of


def tagged(message_id: str, due_ms: int):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    key = [f"k-{message_id}"]
    body = body_of(message_id)
    return encode(
        topic="t", body=body, message_id=message_id, type=kind, due_ms=due_ms, tag="A", keys=key
    )


def frames_of(world) -> list[tuple[str, int, FrameHeader, dict[str, int]]]:
    """(Segment, offset, header, {visible message: where its record begins}) of all frames with records."""
    found = []
    for path in [path for path in world.disk.names() if "/log/" in path]:
        content = world.disk.open(path).read(0, 1 << 30)
        at = 0
        while (header := parse(content, at)) is not None:
            body = content[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
            offsets = offsets_of(body, header.count) if not header.padding else np.empty(0, int)
            visible = {}
            for record in offsets.tolist():
                if body[record + KIND_AT] in (Kind.MESSAGE, Kind.HANDED):
                    size = int.from_bytes(body[record : record + 4], "little")
                    stored = layout.decode(body[record + HEAD_BYTES : record + size])
                    decoded = properties.decode(stored.properties)["UNIQ_KEY"]
                    visible[decoded] = at + HEADER_BYTES + record
            if header.count:
                found.append((path, at, header, visible))
            at += HEADER_BYTES + header.length
    return found


def received(world, group: str, tags: str) -> set[str]:
    """All that a group is given and acks; bodies are compared, and nothing comes twice."""
    got: dict[str, bytes] = {}
    command = Receive(group, "t", -1, tags, 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        got |= checked([each.layout for each in messages])
        world.broker.ask(Ack(group, "t", [each.receipt_handle for each in messages]))
    floor = world.broker.ask(DescribeGroup(group, "t"))[0].ack_floor
    assert floor == world.broker.ask(DescribeTopic("t")).queue_offsets[0], "holes are consumed"
    return got.keys()


def checked(layouts: list[bytes]) -> dict[str, bytes]:
    found = {}
    for each in layouts:
        stored = layout.decode(each)
        message_id = properties.decode(stored.properties)["UNIQ_KEY"]
        assert stored.body == body_of(message_id), f"{message_id} is garbled"
        assert message_id not in found, "P3"
        found[message_id] = stored.body
    return found


def read_all(world, due_of: dict[str, int], lost: set[str], where: str) -> None:
    """Every reader there is gives what is intact, and says nothing wrong of the rest."""
    ask = world.broker.ask
    now = world.clock.wall_ms()
    visible = {name for name, due in due_of.items() if due <= now}
    waiting = due_of.keys() - visible
    assert received(world, "g", "*") == visible - lost, where
    assert received(world, "h", "A || B") == visible - lost, where
    bulk = checked([r[HEAD_BYTES:] for r in ask(ReadQueue("t", 0, 0, 500, 1 << 20)).records])
    assert bulk.keys() == visible - lost, where
    listed = checked([each.layout for each in ask(ListPending(now, now + 9 * DAY_MS, "t"))])
    assert listed.keys() == waiting, where
    assert ask(CountPending()).total == len(waiting), where
    window = RecallMany("t", now, now + 9 * DAY_MS, dry_run=True)
    assert ask(window).matched == len(waiting), where
    for name in list(due_of)[::5]:
        by_id = checked([each.layout for each in ask(FindMessages("t", name))])
        by_key = checked([each.layout for each in ask(FindMessages("t", key=f"k-{name}"))])
        if name not in lost:
            assert by_id.keys() == {name}, where
            assert by_key.keys() <= {name}, where
    view = ask(DescribeBroker()).problems
    assert bool(view) or not (lost & visible), f"{where}: nobody says what is missing"


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("place", ["header", "envelope", "body", "anywhere"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_flipped_bit_of_the_log_costs_nothing_and_two_what_their_frame_shows(
    logged, count, place, running
) -> None:
    before, due_of = logged
    random = Random(place)
    frames = [frame for frame in frames_of(before) if frame[3]]
    assert len(frames) > SENT // BATCH
    for path, base, header, visible in random.sample(frames, 7):
        offset = {
            "header": base + random.randrange(HEADER_BYTES),
            "envelope": random.choice(list(visible.values())) + random.randrange(HEAD_BYTES),
            "body": random.choice(list(visible.values())) + HEAD_BYTES + 90,
            "anywhere": base + random.randrange(HEADER_BYTES + header.length),
        }[place]
        bits = random.sample(range(8), count)
        world = again(before, 16_384)
        if running:
            world.broker.open()
        world.disk.flip(path, offset, *bits)
        if not running:
            world.broker.open()
        where = f"{path} byte {offset} bits {bits}"
        read_all(world, due_of, set() if count == 1 else set(visible), where)
        online = world.broker.ask(DescribeGroup("g", "t"))
        world.disk.crash(power_cut=False)
        world.broker.open()
        assert world.broker.ask(DescribeGroup("g", "t")) == online, where
        name = next(name for name, due in due_of.items() if due > world.clock.wall_ms())
        recalled = world.broker.ask(Recall("t", name, due_of[name]))
        assert recalled.status is RecallStatus.CANCELLED, where
        world.clock.advance(4 * DAY_MS)
        world.broker.settle(2_000)
        rest = received(world, "g", "*")
        assert rest == {
            n for n, due in due_of.items() if due > world.clock.wall_ms() - 4 * DAY_MS
        } - {name}, where


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("part", ["delay.log", "delay.idx", "state.", ".run", "/keys/", "/queues/"])
def test_flipped_bits_of_a_derived_file_cost_nothing_that_the_log_has(
    logged, part, running
) -> None:
    before, due_of = logged
    random = Random(part)
    paths = [path for path in before.disk.names() if part in path and before.disk.open(path).size()]
    assert paths
    for turn in range(8):
        path = random.choice(paths)
        offset = random.randrange(before.disk.open(path).size())
        bits = random.sample(range(8), 1 + turn % 2)  # one is put right by a check sum
        world = again(before, 16_384)
        if running:
            world.broker.open()
        world.disk.flip(path, offset, *bits)
        if not running:
            world.broker.open()
        read_all(world, due_of, set(), f"{path} byte {offset} bits {bits}")


@pytest.mark.parametrize("part", ["delay.log", "delay.idx", ".run", "/keys/", "/queues/"])
def test_bytes_that_rot_after_they_were_read_cost_nothing_that_the_log_has(
    logged, tmp_path, part
) -> None:
    """On a real disk: files stay mapped there, and what was verified at their opening is read again and again."""
    before, due_of = logged
    random = Random(part)
    for number in range(12):
        world = on_a_real_disk(before, tmp_path / str(number), 16_384)
        world.broker.open()
        now = world.clock.wall_ms()
        for question in (CountPending("t"), ListPending(now, now + 9 * DAY_MS, "t")):
            world.broker.ask(question)
        for name in due_of:
            world.broker.ask(FindMessages("t", name))
        path = random.choice([path for path in before.disk.names() if part in path])
        file = world.disk.open(path)
        offset = random.randrange(file.size())
        end = file.size() if part == ".run" else offset + 16  # what follows its records is small
        offset = max(offset, end - 300) if part == ".run" else offset
        file.write(offset, random.randbytes(min(16, end - offset, file.size() - offset)))
        read_all(world, due_of, set(), f"{path} byte {offset}")


@pytest.mark.parametrize("field", ["key", "due_ms", "topic", "sum"])
def test_a_window_takes_messages_whose_index_entries_rot(world, field) -> None:
    """What an entry says stands in its record too: a recall of a window must not leave such a message behind (P8)."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + 2 * HOUR_MS
    world.broker.ask(SendMessages("t", [made(f"m{i}", due + i) for i in range(20)]))
    world.broker.settle()
    (hour,) = [name for name in world.disk.names() if name.endswith("delay.idx")]
    assert ENTRY.fields is not None
    world.disk.flip(hour, 7 * ENTRY_BYTES + ENTRY.fields[field][1] + 3, 1)
    found = world.broker.ask(RecallMany("t", due, due + HOUR_MS))
    assert found.cancelled == 20
    world.clock.advance(3 * HOUR_MS)
    world.broker.settle()
    assert not consume(world)


@pytest.mark.parametrize("delay_ms", [2 * HOUR_MS, 3 * DAY_MS], ids=["near", "far"])
@pytest.mark.parametrize("place", [20, HEAD_BYTES + 84, -30], ids=["tag", "size", "properties"])
def test_a_window_takes_messages_whose_records_rot(world, delay_ms, place) -> None:
    """Tag and earlier moves stand in the record: one that the log has whole is compared as it was (P8)."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + delay_ms
    world.broker.ask(SendMessages("t", [tagged(f"m{i}", due + i) for i in range(20)]))
    world.broker.settle()

    def rot(row: int) -> None:
        (path,) = [name for name in world.disk.names() if name.endswith("delay.log")]
        index = world.disk.open(path.replace("delay.log", "delay.idx"))
        entry = np.frombuffer(index.read(0, index.size()), ENTRY)[row]
        at = int(entry["position"]) + place % int(entry["size"])
        world.disk.open(path).write(at, bytes([0xA5]) * 8)

    rot(7)
    moved = world.broker.ask(MoveMany("t", due, due + 100, tag="A", shift_ms=1, operation="once"))
    assert moved.moved == 20
    rot(3 + 20)  # the copies come after them
    moved = world.broker.ask(MoveMany("t", due, due + 100, shift_ms=1, operation="once"))
    assert moved.matched == 0
    rot(9 + 20)
    assert world.broker.ask(RecallMany("t", due, due + 100, tag="A")).cancelled == 20
    world.clock.advance(4 * DAY_MS)
    world.broker.settle()
    assert not consume(world)
