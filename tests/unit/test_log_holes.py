"""Rot in the commit log while it is read: a hole is passed over, named, and logged as consumed (P2, P3, P11)."""

from __future__ import annotations

import pytest
from worlds import checkpoint, view

from horolog.limits import FRAMES_OPEN_BYTES
from horolog.log import frame_reader
from horolog.log.checkpoint import checkpoint_name
from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.segment import SegmentReader
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DescribeBroker,
    FindMessages,
    MessageType,
    ReadQueue,
    RecallByKey,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import Pull, PullStatus
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode

LOG = "shard-00/log/00000000000000000000.log"
N, BATCH = 200, 20
LEASE_MS = 60_000


def message(i: int, *, size: int = 1, due_ms: int = 0):
    return encode(
        topic="t",
        body=b"%06d" % i * size,
        message_id=f"m{i}",
        tag="A" if i % 2 else "B",
        keys=[f"k{i}"],
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
    )


def filled(world, n: int = N, **more):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    for first in range(0, n, BATCH):
        batch = [message(i, **more) for i in range(first, first + BATCH)]
        world.broker.ask(SendMessages("t", batch))
    world.clock.advance(1_000)  # a mark is the last frame that the checkpoint names
    world.broker.settle()
    checkpoint(world)
    return world


def frames(world, path: str = LOG) -> list:
    """Headers of the frames of messages."""
    content = world.disk.open(path).read(0, 1 << 30)
    found, at = [], 0
    while (header := parse(content, at)) is not None:
        found.append(header)
        at = header.end
    return [header for header in found if header.count == BATCH]


def flip_body(world, frame: int) -> None:
    """One bit, in the middle of a frame's body."""
    header = frames(world)[frame]
    world.disk.flip(LOG, header.base + HEADER_BYTES + header.length // 2, 3, 6)


def receive(world, group: str = "g", tags: str = "*", n: int = 32):
    command = Receive(group, "t", -1, tags, n, LEASE_MS, False, 0, "c")
    return world.broker.ask(command).messages


def ids(messages) -> list[str]:
    found = []
    for each in messages:
        stored = layout.decode(each.layout)
        decoded = properties.decode(stored.properties)["UNIQ_KEY"]
        assert stored.body.startswith(b"%06d" % int(decoded[1:])), "garbled"
        found.append(decoded)
    return found


def consume(world, group: str = "g", tags: str = "*") -> list[str]:
    got = []
    while messages := receive(world, group, tags):
        got += ids(messages)
        world.broker.ask(Ack(group, "t", [each.receipt_handle for each in messages]))
    return got


def problems(world) -> list[str]:
    return world.broker.ask(DescribeBroker()).problems


def progress(world, group: str):
    shard = world.broker.shard
    found = shard.ready.progress_of(shard.ready.groups.ids[group], shard.topics.get("t").id, 0)
    return found.floor, found.next, sorted(found.acked), sorted(found.leases)


def same_after_a_restart(world, *groups: str) -> None:
    """What replay makes of the log is what the running process has."""
    online = [progress(world, group) for group in groups]
    world.reopen()
    assert [progress(world, group) for group in groups] == online


def expected(lost_frame: int, tag: int | None = None) -> list[str]:
    lost = range(lost_frame * BATCH, (lost_frame + 1) * BATCH)
    return [f"m{i}" for i in range(N) if i not in lost and tag in (None, i % 2)]


# --- every reader -------------------------------------------------------------------------------


@pytest.mark.parametrize(("tags", "tag"), [("*", None), ("A", 1)])
def test_a_rotten_frame_is_passed_over_with_and_without_a_tag(world, tags, tag) -> None:
    flip_body(filled(world), 3)
    world.reopen()
    assert consume(world, tags=tags) == expected(3, tag)
    named = problems(world)
    assert len(named) == (2 if tags == "*" else 11), named
    assert "commit log: the frame at log position" in named[0]
    assert any("topic t: queue 0 offset" in each for each in named[1:])
    assert consume(world, "another", tags=tags) == expected(3, tag)
    assert problems(world)[: len(named)] == named, "each is named once, whoever comes by"
    same_after_a_restart(world, "g", "another")


def test_a_bulk_read_passes_over_a_hole(world) -> None:
    flip_body(filled(world), 3)
    world.reopen()
    found = world.broker.ask(ReadQueue("t", 0, 0, 1_000, 1 << 30))
    assert len(found.records) == N - BATCH
    assert found.next_offset == N
    assert problems(world)


@pytest.mark.parametrize(("tags", "step"), [("*", 1), ("A", 2)])
def test_a_pull_passes_over_a_rotten_frame(world, tags, step) -> None:
    flip_body(filled(world), 3)
    world.reopen()
    found, at = [], 0
    while at < N:
        pulled = world.broker.ask(Pull("t", 0, at, 32, 1 << 18, tags, 0))
        assert pulled.next_offset > at
        assert pulled.status is (PullStatus.FOUND if pulled.layouts else PullStatus.FILTERED)
        found += [layout.decode(bytes(each)).queue_offset for each in pulled.layouts]
        at = pulled.next_offset
    wanted = [i for i in range(step - 1, N, step) if not 60 <= i < 80]
    assert found == wanted
    assert any("queue 0 offset" in each for each in problems(world))


@pytest.mark.parametrize("restart", [False, True])
def test_rot_is_found_in_frames_of_this_process_too(make_world, restart) -> None:
    world = make_world(segment_bytes=16 << 20)
    world.broker.open()
    size = 2 * FRAMES_OPEN_BYTES // N // 6
    filled(world, size=size)
    flip_body(world, 3)
    if restart:
        world.reopen()
    assert consume(world) == expected(3)
    assert problems(world)


@pytest.mark.parametrize("bit", [*range(0, 512, 37), 511])
def test_a_damaged_header_costs_the_messages_of_its_frame(world, bit) -> None:
    filled(world)
    header = frames(world)[3]
    due = world.clock.wall_ms() + 3_600_000
    world.broker.ask(SendMessages("t", [message(i, due_ms=due) for i in range(900, 920)]))
    checkpoint(world)
    world.disk.flip(LOG, header.base + bit // 8, bit % 8, (bit + 3) % 8)
    world.reopen()
    assert consume(world) == expected(3)
    assert any("the header of a frame is damaged" in each for each in problems(world))
    assert len([each for each in problems(world) if each.startswith("commit log")]) == 1
    for i in (0, 59, 80, 199):
        (found,) = world.broker.ask(FindMessages("t", f"m{i}"))
        assert found.message_id == f"m{i}"
        assert len(world.broker.ask(FindMessages("t", key=f"k{i}"))) == 1
    (recalled,) = world.broker.ask(RecallByKey("t", "k907"))
    assert recalled.status is RecallStatus.CANCELLED
    assert world.broker.ask(FindMessages("t", "m65")) == []


def test_the_search_after_a_damaged_header_is_made_once(world) -> None:
    filled(world)
    flipped = frames(world)[3]
    world.disk.flip(LOG, flipped.base + 20, 1, 4)
    world.reopen()
    shard = world.broker.shard
    segments = shard.log._segments
    read, asked = segments.bytes_at, [0]

    def counting(position: int, length: int) -> bytes:
        asked[0] += length
        return read(position, length)

    shard.log._frames.index._read = counting
    for _ in range(3):
        assert len(world.broker.ask(ReadQueue("t", 0, 0, 1_000, 1 << 30)).records) == N - BATCH
    assert asked[0] < 4 * 65_536, "the segment is walked once, and its gap searched once"


def test_a_gap_at_the_end_of_a_segment_and_frames_in_the_next(make_world) -> None:
    world = make_world(segment_bytes=16_384)
    world.broker.open()
    filled(world)
    assert world.broker.shard.log.end > 2 * 16_384
    last = frames(world)[-1]
    world.disk.flip(LOG, last.base + 4, 1, 4)
    world.reopen()
    assert len(consume(world)) == N - BATCH
    same_after_a_restart(world, "g")


# --- progress -----------------------------------------------------------------------------------


def test_a_hole_does_not_stop_the_ack_floor(world) -> None:
    flip_body(filled(world), 0)
    world.reopen()
    consume(world)
    consume(world, "h", "A")
    assert progress(world, "g") == (N, N, [], [])
    assert progress(world, "h") == (N, N, [], [])
    same_after_a_restart(world, "g", "h")
    checkpoint(world)
    name = checkpoint_name(world.broker.shard.checkpoint_position)
    assert world.disk.open(f"shard-00/checkpoint/{name}").size() < 1_000


def test_a_receive_that_finds_only_holes_logs_them(world) -> None:
    filled(world)
    for frame in range(N // BATCH):
        flip_body(world, frame)
    world.reopen()
    assert consume(world) == []
    assert progress(world, "g") == (N, N, [], [])
    same_after_a_restart(world, "g")


def test_holes_between_leases_and_acks_are_the_same_after_a_restart(world) -> None:
    flip_body(filled(world), 1)
    world.reopen()
    held = receive(world, n=32)
    assert ids(held) == expected(1)[:32]
    same_after_a_restart(world, "g")
    world.broker.ask(Ack("g", "t", [each.receipt_handle for each in held[10:]]))
    same_after_a_restart(world, "g")
    assert progress(world, "g")[3] == list(range(10))


def test_what_rots_while_it_is_leased_is_consumed_when_the_lease_ends(world) -> None:
    filled(world)
    held = receive(world, n=30)
    checkpoint(world)
    flip_body(world, 0)
    world.reopen()
    world.broker.ask(Ack("g", "t", [held[3].receipt_handle]))
    world.clock.advance(LEASE_MS + 1)
    assert ids(receive(world, n=5)) == [f"m{i}" for i in range(20, 25)]
    assert progress(world, "g")[0] == 20, "the hole is consumed, with the one that was acked"
    assert any("offsets 0 to 2 cannot be read" in each for each in problems(world))
    same_after_a_restart(world, "g")


# --- the queue's own files ----------------------------------------------------------------------


def queue_file(world) -> str:
    (directory,) = world.disk.list("shard-00/queues")
    (name,) = world.disk.list(f"shard-00/queues/{directory}")
    return f"shard-00/queues/{directory}/{name}"


def test_a_message_whose_unit_leads_nowhere_is_found_in_the_log(world) -> None:
    """Past the log, into a body, to another message, of another size, at both ends, a whole stretch, cut and blank."""
    filled(world)
    flips = [(0, 1), (3, 5), (5, 0), (7, 1), (9, 8), (N - 1, 0), *((i, 1) for i in range(50, 90))]
    for offset, byte in flips:
        world.disk.flip(queue_file(world), offset * 20 + byte, 4)
    world.disk.open(queue_file(world)).write(120 * 20, bytes(400))
    world.reopen()
    assert consume(world) == [f"m{i}" for i in range(N)]
    assert len(world.broker.ask(ReadQueue("t", 0, 0, 1_000, 1 << 30)).records) == N
    assert problems(world) == []
    assert (view(world).repairs, view(world).holes) == (len(flips) + 20, 0)


@pytest.mark.parametrize("is_written", [True, False])
def test_units_that_lead_nowhere_are_rebuilt_while_running(world, is_written) -> None:
    filled(world)
    path = queue_file(world)
    whole = world.disk.open(path).read(0, N * 20)
    world.disk.open(path).write(30 * 20, bytes(200))  # ten units
    assert len(consume(world)) == N
    assert view(world).repairs == 10
    if is_written:
        checkpoint(world)
    assert world.disk.open(path).read(0, N * 20) == whole, "tags code and all"
    world.reopen(power_cut=is_written)
    assert consume(world, "another") == [f"m{i}" for i in range(N)]
    assert view(world).repairs == (10 if is_written else 0), "durable with a checkpoint"


def test_holes_are_counted_once(world) -> None:
    filled(world)
    flip_body(world, 2)
    world.reopen()
    for group in ("g", "h"):
        consume(world, group)
    assert view(world).holes == 20
    assert view(world).repairs == 0


def test_a_search_finds_what_the_log_has(world) -> None:
    """Units and frames are damaged: only what lies in the frames is lost."""
    filled(world)
    for offset in range(30, 100):
        world.disk.flip(queue_file(world), offset * 20 + 2, 4)
    flip_body(world, 2)
    flip_body(world, 3)
    world.reopen()
    assert consume(world) == [f"m{i}" for i in range(N) if not 40 <= i < 80]
    assert any("offsets 40 to 79 cannot be read" in each for each in problems(world))
    same_after_a_restart(world, "g")


def test_a_queue_file_that_is_cut_while_running_costs_nothing_for_good(world) -> None:
    filled(world)
    world.disk.open(queue_file(world)).truncate(50 * 20 + 7)
    got = consume(world)
    assert got == [f"m{i}" for i in range(3 * BATCH)], "of a frame that is read no further unit"
    assert "is cut short" in problems(world)[0]
    assert receive(world) == []
    assert len(problems(world)) == 1
    world.reopen()
    assert problems(world) == [], "that is repaired"
    assert got + consume(world) == [f"m{i}" for i in range(N)]


def test_small_frames_that_follow_each_other_are_read_many_at_once(world, monkeypatch) -> None:
    """As many as lie within what is read ahead, and each is verified all the same."""
    monkeypatch.setattr(frame_reader, "FRAMES_OPEN_MAX", 2)
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    for number in range(100):
        world.broker.ask(SendMessages("t", [message(number)]))
    reads, read = [], SegmentReader.bytes_at
    monkeypatch.setattr(
        SegmentReader, "bytes_at", lambda *asked: (reads.append(asked[1]), read(*asked))[1]
    )
    assert consume(world) == [f"m{number}" for number in range(100)]
    assert len(reads) < 30, "without reading ahead two for each message"
    assert problems(world) == []
