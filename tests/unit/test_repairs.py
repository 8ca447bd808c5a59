"""Rot while running: repaired from the log where it has a copy, else quarantined for good, over every restart."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from worlds import checkpoint, take_all, view

from horolog.delay.entry import ENTRY, ENTRY_BYTES
from horolog.delay.far.compaction import FarSettings
from horolog.delay.run.format import HEADER_BYTES
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    FindMessages,
    ListPending,
    MessageState,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import replace_file
from horolog.verify.directory import verify_directory

N = 12
KINDS = ["hour", "buffer", "run"]


def made(message_id: str, due_ms: int):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    body = message_id.encode() * 40
    return encode(topic="t", body=body, message_id=message_id, type=kind, due_ms=due_ms)


def waiting_world(make_world, kind: str, *, log_is_gone: bool = False, keep: int = 0):
    """Messages m0, m1 … that wait in an hour, a far buffer or a run, and perhaps nothing of them in the log."""
    world = make_world()
    world.broker.settings = world.broker.settings._replace(
        far=FarSettings(buffer_bytes=2_000 if kind == "run" else 1 << 20),
        retention_bytes=2 * 65_536 if log_is_gone else 0,
        dedup_ms=0,
    )
    world.broker.open()
    meta = {"format": 1, "log_id": "5eed5eed5eed5eed", "shards": 1, "clock": "simulated"}
    replace_file(world.disk, "", "meta", orjson.dumps({**meta, "segment_bytes": 65_536}))
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.due = world.clock.wall_ms() + (2 * HOUR_MS if kind == "hour" else 3 * DAY_MS)
    world.ids = [f"m{i:02}" for i in range(N)]
    world.broker.ask(SendMessages("t", [made(each, world.due) for each in world.ids]))
    checkpoint(world)
    if log_is_gone:
        for i in range(6):
            fill = [made(f"n{i}-{j:03}", 0) for j in range(150)]
            world.broker.ask(SendMessages("t", fill))
            checkpoint(world)
        assert view(world).log_start > 0
    assert view(world).pending == N
    assert bool(world.broker.shard.delay.far.runs) == (kind == "run")
    return world


def records_file(world, kind: str) -> str:
    part = {"hour": "hours/", "buffer": "runs/buffer", "run": ".run"}[kind]
    name = "delay.log" if kind != "run" else ".run"
    return next(path for path in world.disk.names() if part in path and path.endswith(name))


def rot(world, kind: str, message_id: str) -> None:
    """Flip a bit in the body of that message, under the running broker."""
    path = records_file(world, kind)
    file = world.disk.open(path)
    at = file.read(0, file.size()).index((message_id * 40).encode()) + 7
    world.disk.flip(path, at, 3, 6)
    forget_views(world)


def forget_views(world) -> None:
    """Views of the simulated disk are copies."""
    delay = world.broker.shard.delay
    for source in (*delay.hours.values(), *delay.far.buffers):
        source.drop_views()
    delay.far._opened.close()


def hand_over(world) -> list[str]:
    world.clock.advance(world.due + 1 - world.clock.wall_ms())
    world.broker.settle()
    return [each for each in take_all(world) if each.startswith("m")]


def findings(world):
    return [each.what for each in verify_directory(world.disk).findings.kept]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rotten_record_is_handed_over_from_the_log(make_world, kind) -> None:
    world = waiting_world(make_world, kind)
    rot(world, kind, "m05")
    world.broker.request_checkpoint()
    assert hand_over(world) == world.ids, "P2, P7"
    assert view(world).problems == []
    assert view(world).repairs == 1
    checkpoint(world)
    assert findings(world) == [], "the file is what it was"
    world.reopen(power_cut=True)
    assert view(world).repairs == 1
    assert take_all(world) == [], "P3"


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_hand_over_of_a_repaired_record_is_neither_lost_nor_doubled(
    make_world, kind
) -> None:
    world = waiting_world(make_world, kind)
    rot(world, kind, "m05")
    world.clock.advance(world.due + 1 - world.clock.wall_ms())
    for _ in range(6):
        world.broker.step([])
        world.reopen(power_cut=True)
    assert hand_over(world) == world.ids


@pytest.mark.parametrize("kind", KINDS)
def test_rot_is_repaired_for_listing_look_up_and_recall(make_world, kind) -> None:
    world = waiting_world(make_world, kind)
    for each in ("m03", "m07"):
        rot(world, kind, each)
    pending = world.broker.ask(ListPending(world.due, world.due + 1, "t", 100))
    assert [each.message_id for each in pending] == world.ids
    assert view(world).repairs == 2
    rot(world, kind, "m03")
    assert world.broker.ask(Recall("t", "m03", world.due)).status is RecallStatus.CANCELLED
    assert view(world).problems == []
    assert hand_over(world) == [each for each in world.ids if each != "m03"]


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_quarantine_survives_restarts(make_world, kind, between) -> None:
    """The log has it no more: health, `find` and `verify` say so, whether or not a checkpoint came in between."""
    world = waiting_world(make_world, kind, log_is_gone=True)
    rot(world, kind, "m05")
    assert "m05" not in hand_over(world)
    for life in range(3):
        shown = view(world).problems
        assert len(shown) == 1, life
        assert "1 message quarantined for not verifying" in shown[0]
        assert view(world).pending == 0
        found = world.broker.ask(FindMessages("t", "m05"))
        assert [each.state for each in found] == [MessageState.QUARANTINED]
        if between:
            checkpoint(world)
        world.reopen(power_cut=bool(life % 2))
        world.broker.settle()
    checkpoint(world)
    assert any("m" in what for what in findings(world))
    assert [each for each in take_all(world, "other") if each.startswith("m")] == [
        each for each in world.ids if each != "m05"
    ]


def test_a_loss_stays_in_health_for_a_day_when_its_hour_has_gone(make_world) -> None:
    world = waiting_world(make_world, "hour", log_is_gone=True)
    rot(world, "hour", "m05")
    hand_over(world)
    for _ in range(3):
        world.clock.advance(6 * HOUR_MS)
        checkpoint(world)
        world.reopen()
    assert not world.broker.shard.delay.hours
    assert len(view(world).problems) == 1
    world.clock.advance(DAY_MS)
    checkpoint(world)
    assert view(world).problems == []


def test_a_listing_shows_nothing_that_does_not_verify(make_world) -> None:
    world = waiting_world(make_world, "hour", log_is_gone=True)
    rot(world, "hour", "m05")
    pending = world.broker.ask(ListPending(world.due, world.due + 1, "t", 100))
    assert [each.message_id for each in pending] == [e for e in world.ids if e != "m05"]
    assert len(view(world).problems) == 1
    assert view(world).pending == N - 1


# --- index entries ------------------------------------------------------------------------------------


def index_file(world, kind: str) -> str:
    return records_file(world, kind).replace("delay.log", "delay.idx")


def rot_entry(world, kind: str, row: int, at: int, bits: tuple[int, ...] = (2, 5)) -> None:
    """Flip bits of a byte of an index entry; one of them is put right by the sum of the entry."""
    base = HEADER_BYTES if kind == "run" else 0
    world.disk.flip(index_file(world, kind), base + ENTRY_BYTES * row + at, *bits)
    forget_views(world)


FIELDS = [at for _, at in ENTRY.fields.values()]  # the first byte of each


@pytest.mark.parametrize("bits", [(2,), (2, 5)], ids=["a bit", "two bits"])
@pytest.mark.parametrize("at", FIELDS)
@pytest.mark.parametrize(
    ("kind", "row"),
    [("hour", 0), ("hour", 5), ("buffer", 5), ("run", 0)],  # several runs of two rows or so
)
def test_a_damaged_index_entry_is_rebuilt(make_world, kind, row, at, bits) -> None:
    world = waiting_world(make_world, kind)
    index = world.disk.open(index_file(world, kind))
    before = index.read(0, index.size())
    rot_entry(world, kind, row, at, bits)
    assert hand_over(world) == world.ids
    assert index.read(0, index.size()) == before
    shown = view(world)
    assert (shown.problems, shown.repairs) == ([], 1)
    checkpoint(world)
    assert findings(world) == []
    world.reopen(power_cut=True)
    assert take_all(world, "other") == world.ids, "P3"


@pytest.mark.parametrize("bits", [(2,), (2, 5)], ids=["a bit", "two bits"])
@pytest.mark.parametrize("at", [32, 56])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_index_entry_is_rebuilt_without_the_log(make_world, kind, at, bits) -> None:
    """By the CRC of the entry itself, which is intact."""
    world = waiting_world(make_world, kind, log_is_gone=True)
    rot_entry(world, kind, 0 if kind == "run" else 5, at, bits)
    assert hand_over(world) == world.ids
    assert view(world).repairs == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_that_cannot_be_rebuilt_is_quarantined_and_not_waited_for(
    make_world, kind
) -> None:
    world = waiting_world(make_world, kind, log_is_gone=True)
    rot(world, kind, "m00")
    rot_entry(world, kind, 0, 33)
    assert hand_over(world) == world.ids[1:]
    for _ in range(2):
        shown = view(world)
        assert shown.pending == 0
        assert len(shown.problems) == 1
        assert "1 message quarantined for not verifying" in shown.problems[0]
        checkpoint(world)
        world.reopen()
    assert hand_over(world) == []


def test_an_entry_that_names_another_topic_is_not_counted_for_that_one(make_world) -> None:
    world = waiting_world(make_world, "hour", log_is_gone=True)
    world.broker.ask(CreateTopic("u", TopicType.DELAY, 1))
    later = encode(
        topic="u", body=b"u", message_id="u", type=MessageType.DELAY, due_ms=world.due + 5_000
    )
    world.broker.ask(SendMessages("u", [later]))
    rot(world, "hour", "m00")
    path = records_file(world, "hour").replace("delay.log", "delay.idx")
    world.disk.open(path).write(ENTRY.fields["topic"][1], b"\2")
    forget_views(world)
    assert hand_over(world) == world.ids[1:]
    assert world.broker.ask(CountPending("u")).total == 1
    world.clock.advance(5_000)
    world.broker.settle()
    assert take_all(world, topic="u") == ["u"]
    assert world.broker.ask(CountPending("u")).total == 0


@pytest.mark.parametrize("origin", [0, 1 << 60])
@pytest.mark.parametrize("kind", ["hour", "buffer"])
def test_a_damaged_entry_hides_no_other_one(make_world, kind, origin) -> None:
    """A start that repaired filed them again, so they were handed over twice."""
    world = waiting_world(make_world, kind)
    delay = world.broker.shard.delay
    (source,) = delay.hours.values() if kind == "hour" else delay.far.buffers
    origins = source.entries(np.arange(N))["origin"].copy()
    path = records_file(world, kind).replace("delay.log", "delay.idx")
    at = ENTRY_BYTES * 6 + ENTRY.fields["origin"][1]
    world.disk.open(path).write(at, origin.to_bytes(8, "little"))
    forget_views(world)
    expected = [row if row != 6 else -1 for row in range(N)]
    assert source.find_origins(origins).tolist() == expected
    assert [int(source.find_origins(each)[0]) for each in origins.reshape(N, 1)] == expected
    assert source.find_origins(origins + 1).tolist() == [-1] * N


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_finds_what_was_handed_over_although_its_entry_rotted(make_world, kind) -> None:
    """The tail of the log names an origin that a damaged entry hides: it was refused as a broken invariant."""
    world = waiting_world(make_world, kind)
    got = hand_over(world)
    assert got == world.ids
    rot_entry(world, kind, 0 if kind == "run" else 5, 34)
    world.disk.crash(power_cut=False)
    world.broker.open()
    world.broker.settle()
    assert take_all(world, "other") == world.ids
    assert view(world).pending == 0


def test_a_start_goes_on_when_what_was_handed_over_cannot_be_rebuilt(make_world) -> None:
    """The replay quarantines an entry with another one's frame, and then meets its own hand-over."""
    world = waiting_world(make_world, "hour", log_is_gone=True)
    world.broker.settings = world.broker.settings._replace(turn_bytes=1_000)
    world.reopen()
    assert hand_over(world) == world.ids
    for row, message_id in ((1, "m01"), (9, "m09")):
        rot(world, "hour", message_id)
        rot_entry(world, "hour", row, 33)
    world.disk.crash(power_cut=False)
    for _ in range(2):
        world.broker.open()
        world.broker.settle()
        assert view(world).pending == 0
        checkpoint(world)
        world.disk.crash(power_cut=True)
    world.broker.open()
    assert [each for each in take_all(world, "other") if each.startswith("m")] == world.ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_recall_finds_a_message_whose_entry_rotted(make_world, kind) -> None:
    world = waiting_world(make_world, kind)
    rot_entry(world, kind, 0, 24)
    status = world.broker.ask(Recall("t", "m00", world.due)).status
    assert status is RecallStatus.CANCELLED
    assert hand_over(world) == world.ids[1:]


def test_a_run_repairs_the_next_row_when_the_one_before_it_has_gone(make_world) -> None:
    """The search for what is due next meets the damaged entry first, and no load of a second."""
    world = waiting_world(make_world, "run")
    rot_entry(world, "run", 1, 24)
    assert world.broker.ask(Recall("t", "m00", world.due)).status is RecallStatus.CANCELLED
    assert hand_over(world) == world.ids[1:]
    assert view(world).problems == []


@pytest.mark.parametrize("at", FIELDS)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_damaged_entry_at_the_end_of_a_run_does_not_wait_for_ever(
    make_world, at, restarted
) -> None:
    """No row after it says that it is due; the footer does.  It waited until the next start."""
    world = waiting_world(make_world, "run")
    (first, *_) = world.broker.shard.delay.far.runs.values()
    assert first.count > 1
    rot_entry(world, "run", first.count - 1, at)
    if restarted:
        world.reopen()
    assert hand_over(world) == world.ids
    shown = view(world)
    assert (shown.pending, shown.repairs) == (0, 1)


@pytest.mark.parametrize("rows", [[0], [5], [5, 6], [N - 1], list(range(N))], ids=str)
@pytest.mark.parametrize("log_is_gone", [False, True])
@pytest.mark.parametrize("kind", ["hour", "buffer"])
def test_a_start_takes_the_keys_of_damaged_entries_from_their_records(
    make_world, kind, log_is_gone, rows
) -> None:
    """It reads keys from the entries: a recall found nothing, and the message was handed over (P8)."""
    world = waiting_world(make_world, kind, log_is_gone=log_is_gone)
    world.disk.crash(power_cut=True)
    assert ENTRY.fields is not None
    for row in rows:
        rot_entry(world, kind, row, ENTRY.fields["key"][1])
        rot_entry(world, kind, row, ENTRY.fields["key"][1] + 5)
    world.broker.open()
    for row in rows:
        (found,) = world.broker.ask(FindMessages("t", world.ids[row]))
        assert found.state is MessageState.PENDING
        status = world.broker.ask(Recall("t", world.ids[row], world.due)).status
        assert status is RecallStatus.CANCELLED
    assert hand_over(world) == [each for i, each in enumerate(world.ids) if i not in rows]


# --- jobs ---------------------------------------------------------------------------------------------


def test_a_flush_leaves_out_nothing_that_can_be_rebuilt(make_world) -> None:
    """A damaged entry of a buffer was left out of its run, without a word."""
    world = waiting_world(make_world, "buffer")
    rot_entry(world, "buffer", 5, 33)
    world.broker.shard.delay.far.seal()
    world.clock.advance(5_000)
    world.broker.settle()
    assert world.broker.shard.delay.far.runs
    assert not world.broker.shard.delay.far.buffers
    assert (view(world).pending, view(world).repairs, view(world).problems) == (N, 1, [])
    assert hand_over(world) == world.ids


def test_a_merge_leaves_out_nothing_that_can_be_rebuilt(make_world) -> None:
    world = waiting_world(make_world, "run")
    far = world.broker.shard.delay.far
    world.broker.settings = world.broker.settings._replace(
        far=FarSettings(buffer_bytes=2_000, runs_max=1, part_runs_max=1)
    )
    more = [f"m{i}" for i in range(20, 30)]
    rot_entry(world, "run", 0, 33)
    far.compaction.settings = world.broker.settings.far
    world.broker.ask(SendMessages("t", [made(each, world.due) for each in more]))
    for _ in range(6):
        world.clock.advance(2_000)
        world.broker.settle()
    assert [run.level for run in far.runs.values()] == [1]
    assert (view(world).pending, view(world).repairs, view(world).problems) == (N + 10, 1, [])
    assert hand_over(world) == world.ids + more
