"""The commit log against rot, torn writes and ghosts: never a silently shorter log, never a ghost."""

from __future__ import annotations

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode, HorologError
from horolog.log.frame import HEADER_BYTES, parse, seal
from horolog.log.frame_reader import Hole
from horolog.log.scan import Identity, LogEnd, LogScan
from horolog.log.segment import SegmentReader, SegmentWriter, Write, segment_name
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk, Killed

LOG = "shard-00/log/00000000000000000000.log"


def send(world, *ids: str, size: int = 20) -> None:
    due = world.clock.wall_ms() + 60_000
    world.broker.ask(
        SendMessages(
            "t",
            [
                encode(
                    topic="t",
                    body=b"b" * size,
                    message_id=i,
                    type=MessageType.DELAY,
                    due_ms=due,
                )
                for i in ids
            ],
        )
    )


def frames(world) -> list:
    content = world.disk.open(LOG).read(0, 65_536)
    found, at = [], 0
    while (header := parse(content, at)) is not None and header.base == at:
        found.append(header)
        at = header.end
    return found


def filled(world):
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    send(world, "a", "b")
    send(world, "c")
    send(world, "d")
    world.clock.advance(150)
    world.broker.settle()  # the idle log states its durable position
    return world


@pytest.mark.parametrize("bit", range(HEADER_BYTES * 8))
def test_each_bit_of_a_mid_log_header_flipped(world, bit) -> None:
    filled(world)
    header = frames(world)[2]
    world.disk.flip(LOG, header.base + bit // 8, bit % 8, (bit + 3) % 8)
    with pytest.raises(HorologError) as caught:
        world.reopen()
    assert caught.value.code is ErrorCode.DAMAGED
    assert str(header.base) in caught.value.message


@pytest.mark.parametrize("which", range(1, 5))
def test_a_flipped_body_byte_of_any_synced_frame_is_damage(world, which) -> None:
    filled(world)
    header = frames(world)[which]
    if header.length:
        world.disk.flip(LOG, header.base + HEADER_BYTES + header.length // 2, 5, 0)
        with pytest.raises(HorologError) as caught:
            world.reopen()
        assert caught.value.code is ErrorCode.DAMAGED


def test_idle_log_ends_with_a_mark_that_states_the_durable_position(world) -> None:
    filled(world)
    last = frames(world)[-1]
    assert last.count == 0
    assert last.durable == last.base
    end = world.broker.ask(DescribeBroker()).log_end
    world.clock.advance(30_000)
    world.broker.settle()
    assert world.broker.ask(DescribeBroker()).log_end == end, "one mark, then rest"


def test_power_cut_before_the_sync_loses_only_unanswered_sends(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    send(world, "a")
    log = world.broker.shard.log
    end = log.end
    header = seal(
        log_id=log.log_id,
        shard=0,
        base=end,
        durable=end,
        append_ms=0,
        epoch=1,
        count=1,
        body=b"never synced",
    )
    world.disk.open(LOG).write(end, header + b"never syn")
    world.reopen()
    assert world.broker.ask(CountPending()).total == 1


def test_torn_tail_then_a_shorter_frame_then_another_cut_leaves_no_ghost(world) -> None:
    """Frames B, C are written and not synced; B is torn.  The next life writes a shorter frame and is cut
    too.  C, still valid by itself at its old place, must never come back.
    """
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    send(world, "a")
    log = world.broker.shard.log
    end, durable = log.end, log.durable_position

    def frame(base: int, body: bytes, epoch: int) -> bytes:
        return (
            seal(
                log_id=log.log_id,
                shard=0,
                base=base,
                durable=durable,
                append_ms=0,
                epoch=epoch,
                count=1,
                body=body,
            )
            + body
        )

    b = frame(end, b"B" * 200, 1)
    ghost_at = end + len(b)
    ghost = frame(ghost_at, b"C" * 50, 1)
    file = world.disk.open(LOG)
    file.write(end, b[:-10] + bytes(10) + ghost)
    world.reopen()
    assert world.broker.ask(CountPending()).total == 1
    file = world.disk.open(LOG)
    assert file.read(ghost_at, len(ghost)) == bytes(len(ghost)), "the cut tail is zeroed"
    # Even if the zeros never reached the disk: a frame of the new epoch that ends just where the ghost begins.
    new_end = world.broker.shard.log.end
    filler = frame(new_end, b"F" * (ghost_at - new_end - HEADER_BYTES), 2)
    file.write(new_end, filler)
    file.write(ghost_at, ghost)
    # The filler holds no valid record, so a scan alone is asked: where does the valid log end?
    scan = LogScan(
        SegmentReader(world.disk, "shard-00/log", 65_536),
        Identity(log.log_id, 0),
        start=0,
        limit=131_072,
        epoch=0,
        durable=0,
    )
    seen = [header.base for header, _ in scan.frames()]
    assert ghost_at not in seen
    assert scan.end == ghost_at
    assert scan.outcome is LogEnd.TORN


def test_a_promise_is_found_where_two_reads_meet() -> None:
    """The only frame that proves damage begins two bytes before the end of the first 4 MiB, which are read at once."""
    disk, size, at = FaultyDisk(), 8 << 20, (4 << 20) - 2
    disk.make_dir("log")
    file = disk.open(f"log/{segment_name(0)}", create=True)
    file.write(0, b"no frame")
    file.write(
        at,
        seal(log_id=7, shard=0, base=at, durable=at, append_ms=0, epoch=1, count=0, body=b""),
    )
    file.truncate(size)
    reader = SegmentReader(disk, "log", size)
    scan = LogScan(reader, Identity(7, 0), start=0, limit=size, epoch=0, durable=0)
    assert list(scan.frames()) == []
    assert (scan.outcome, scan.stated_by) == (LogEnd.DAMAGED, at)


def test_a_forged_frame_inside_a_body_is_never_served(world) -> None:
    """A client sends a body that is a whole valid frame image: its position betrays it."""
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    log = world.broker.shard.log
    forged = seal(
        log_id=log.log_id,
        shard=0,
        base=log.end,
        durable=1 << 40,
        append_ms=0,
        epoch=9,
        count=0,
        body=b"",
    )
    due = world.clock.wall_ms() + 60_000
    world.broker.ask(
        SendMessages(
            "t",
            [
                encode(
                    topic="t",
                    body=forged,
                    message_id="forger",
                    type=MessageType.DELAY,
                    due_ms=due,
                )
            ],
        )
    )
    origin = log.end
    assert isinstance(log.record(origin - 100 + HEADER_BYTES), Hole)
    world.disk.open(LOG).write(log.end, b"garbage after the end")
    world.reopen()
    assert world.broker.ask(CountPending()).total == 1
    assert world.broker.ask(DescribeBroker()).epoch == 2


def test_hand_over_not_synced_is_invisible_under_a_long_poll(world) -> None:
    """Power cut between a hand-over and its fsync, with a poll waiting: the poll saw nothing of it."""
    from horolog.protocol.commands import Receive
    from horolog.testing.sim_broker import Answer

    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    send(world, "a")
    poll = Answer(Receive("g", "t", -1, "*", 32, 60_000, False, 20_000, "c"))
    world.clock.advance(59_000)
    world.broker.settle()
    world.broker.step([poll])
    world.clock.advance(1_000)
    broker = world.broker.core
    effects = broker.step(
        [],
        wall_ms=world.clock.wall_ms(),
        mono_ms=world.clock.monotonic_ms(),
        commit=world.broker._commit,
        durable=world.broker._durable,
    )
    assert effects.writes, "the hand-over is appended …"
    world.broker.writer.write(effects.writes)  # … and written, but not synced
    assert not poll.done
    world.reopen(power_cut=True)
    world.broker.settle()
    got = world.broker.ask(Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c")).messages
    assert len(got) == 1
    assert got[0].queue_offset == 0


def test_a_segment_made_by_a_killed_process_gets_its_name_synced() -> None:
    """Killed between allocating a segment and syncing its name; the next process uses it; then the power goes."""
    for seed in range(20):
        disk = FaultyDisk(seed)
        disk.make_dir("log")

        def kill(what: str) -> None:
            if what.startswith("sync"):
                raise Killed(what)

        disk.on_effect = kill
        with pytest.raises(Killed):
            SegmentWriter(disk, "log", 1_024).prepare(0)
        disk.on_effect = None
        disk.crash(power_cut=False)
        writer = SegmentWriter(disk, "log", 1_024)
        writer.write([Write(0, b"promised")])
        writer.sync()
        disk.crash(power_cut=True)
        assert disk.open("log/00000000000000000000.log").read(0, 8) == b"promised"


def test_a_part_of_an_entry_left_by_a_full_disk_does_no_harm(world) -> None:
    """The delay index ends with half an entry: what is whole is still loaded and handed over."""
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    send(world, "a", "b")
    hour = world.disk.list("shard-00/hours")[0]
    index = world.disk.open(f"shard-00/hours/{hour}/delay.idx")
    index.write(index.size(), b"x" * 7)
    shard = world.broker.shard
    shard.delay.hours[int(hour)]._index_view.drop()
    world.clock.advance(61_000)
    world.broker.settle()
    assert world.broker.ask(DescribeBroker()).handed_over == 2


@pytest.fixture(params=["os", "interval", "sync"])
def covered(make_world, request):
    """Messages that a checkpoint covers, and one more; a frame below the checkpoint is for a test to rot."""
    world = make_world(flush=request.param)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    for name in "abc":
        send(world, name)
    checkpoint(world)
    send(world, "d")
    return world


def rot_below(world) -> bytes:
    """Flip a bit of a frame below the checkpoint; gives the log as it is then."""
    bad = frames(world)[2]
    before = world.disk.open(LOG).read(0, 65_536)
    world.disk.flip(LOG, bad.base + HEADER_BYTES + 3, 1, 4)
    rotten: bytes = world.disk.open(LOG).read(0, 65_536)
    assert rotten != before
    return rotten


def rots_below_and_is_refused(world) -> None:
    """The start refuses, and leaves the log as it is."""
    rotten = rot_below(world)
    with pytest.raises(HorologError, match="which the checkpoint says was durable") as caught:
        world.reopen()
    assert caught.value.code is ErrorCode.DAMAGED
    assert world.disk.open(LOG).read(0, 65_536) == rotten


def test_what_a_checkpoint_covers_is_no_torn_tail(covered) -> None:
    """Without syncs no frame says what is durable; but a checkpoint syncs the log up to its position (P2)."""
    (index,) = [path for path in covered.disk.names() if path.endswith("delay.idx")]
    (state,) = [path for path in covered.disk.names() if "/state." in path]
    covered.disk.flip(index, 5, 1)
    for at in (70, 90):
        covered.disk.flip(state, at, 1)  # so that all would be rebuilt from the log
    end = frames(covered)[-1].end
    rotten = rot_below(covered)
    covered.reopen()
    assert "recovery row 12" in covered.broker.reports[-1]
    assert covered.disk.open(LOG).read(0, end) == rotten[:end], "nothing is cut off"
    view = covered.broker.ask(DescribeBroker())
    assert view.pending == 3, "all but what the frame held, also what is after the checkpoint"
    assert any("1 of 3 messages" in text for text in view.problems)


def test_what_a_rotten_checkpoint_covers_is_no_torn_tail_either(covered) -> None:
    """Its name says how far the log was synced, whatever became of its content (P2)."""
    for path in [path for path in covered.disk.names() if path.endswith(".ckpt")]:
        covered.disk.flip(path, 100, 1)
    rots_below_and_is_refused(covered)
