"""Recovery when the log has been cut: the older checkpoint, repairing from the rest of the log, quarantine (row 12)."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from cut_worlds import HOUR, SEGMENT, cut_world, damage_state
from worlds import checkpoint, killed_at, names, send, view

from horolog.delay.entry import ENTRY, ENTRY_BYTES
from horolog.errors import ErrorCode, HorologError
from horolog.log import consume_queue
from horolog.log.frame import HEADER_BYTES
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeTopic,
    FindMessages,
    MessageState,
    ReadQueue,
    Recall,
    RecallMany,
    RecallStatus,
    Receive,
    Reschedule,
    RescheduleStatus,
    TopicType,
)
from horolog.storage.api import replace_file
from horolog.testing.sim_broker import properties_of
from horolog.verify.directory import verify_directory


def take(world, group: str = "g") -> list[str]:
    got = []
    while messages := world.broker.ask(
        Receive(group, "t", -1, "*", 32, 60_000, False, 0, "c")
    ).messages:
        got += [properties_of(m)["UNIQ_KEY"] for m in messages]
    return got


def test_row_8_when_only_the_newest_checkpoint_names_what_is_bad(make_world) -> None:
    world = cut_world(make_world)
    send(world, "more-due", 3, due_ms=world.due)
    checkpoint(world)
    damage_state(world, world.due, slice(-1, None))
    world.reopen()
    assert "recovery row 8: older one: files of the newest are bad" in world.broker.reports[-1]
    assert view(world).pending == 47
    assert view(world).problems == []
    world.reopen(power_cut=True)
    assert view(world).pending == 47
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    assert len([i for i in take(world) if "-due" in i]) == 17


def test_row_12_quarantines_the_hour_and_serves_the_rest(make_world) -> None:
    """Old messages of that hour are lost and counted; young ones, still in the log, are repaired; others are served."""
    world = cut_world(make_world)
    damage_state(world, world.due)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    shown = view(world)
    assert shown.pending == 34
    assert len(shown.problems) == 1
    assert "10 of 14 messages due" in shown.problems[0]
    assert "are quarantined" in shown.problems[0]
    aside = f"shard-00/hours/quarantined-{world.due // HOUR:010d}"
    assert {"delay.log", "delay.idx", "note.json"} <= set(world.disk.list(aside))
    assert world.broker.ask(Recall("t", "young-due0", world.due)).status is RecallStatus.NOT_FOUND
    assert world.broker.ask(Recall("t", "young-due1", world.due)).status is RecallStatus.CANCELLED
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    got = [i for i in take(world) if i.startswith(("old", "young"))]
    assert sorted(i for i in got if "-due" in i) == [f"young-due{i}" for i in range(2, 5)]
    assert len([i for i in got if "-later" in i]) == 15
    assert len([i for i in got if "-far" in i]) == 15
    assert len(got) == len(set(got))


@pytest.mark.parametrize("kind", ["hour", "buffer"])
def test_row_12_repairs_without_what_was_recalled_in_bulk_or_moved(make_world, kind) -> None:
    """Nothing that was answered CANCELLED comes back from the log (P8), nor does the old time of what was moved."""
    world = cut_world(make_world)
    due = world.due if kind == "hour" else world.far
    send(world, "bulk", 3, due_ms=due + 1_000)
    send(world, "moved", 1, due_ms=due)
    assert world.broker.ask(RecallMany("t", due + 1_000, due + 2_000)).cancelled == 3
    moved = world.broker.ask(Reschedule("t", "moved0", due, due + 7_000))
    assert moved.status is RescheduleStatus.RESCHEDULED
    for _ in range(2):
        checkpoint(world)
        send(world, "x", 1)
    if kind == "hour":
        damage_state(world, due)
    else:
        buffer = next(name for name in names(world, "runs") if name.startswith("buffer."))
        world.disk.open(f"shard-00/runs/{buffer}/delay.idx").truncate(64)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    assert view(world).pending == 35
    found = world.broker.ask(FindMessages("t", "moved0"))
    assert sorted((m.state, m.due_ms) for m in found) == [
        (MessageState.MOVED, due), (MessageState.PENDING, due + 7_000),
    ]  # fmt: skip
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    got = take(world)
    assert [i for i in got if i.startswith("bulk")] == []
    assert got.count("moved0") == 1


def test_row_12_stays_red_until_the_directory_is_taken_away(make_world) -> None:
    world = cut_world(make_world)
    damage_state(world, world.due)
    world.reopen()
    checkpoint(world)
    send(world, "x", 1)
    checkpoint(world)
    for power_cut in (False, True):
        world.reopen(power_cut=power_cut)
        assert "recovery row 12" not in world.broker.reports[-1]
        assert "are quarantined" in view(world).problems[0]
        assert view(world).pending == 34
    aside = f"shard-00/hours/quarantined-{world.due // HOUR:010d}"
    world.disk.remove_dir(aside)
    world.reopen()
    assert view(world).problems == []
    assert view(world).pending == 34


def test_verify_is_not_clean_while_health_is_red(make_world) -> None:
    world = cut_world(make_world)
    meta = {"format": 1, "log_id": "5eed5eed5eed5eed", "shards": 1, "clock": "simulated"}
    replace_file(world.disk, "", "meta", orjson.dumps({**meta, "segment_bytes": SEGMENT}))
    damage_state(world, world.due)
    world.reopen()
    for _ in range(2):
        send(world, "x", 1)
        checkpoint(world)
    aside = f"shard-00/hours/quarantined-{world.due // HOUR:010d}"
    assert "are quarantined" in view(world).problems[0]
    (found,) = verify_directory(world.disk).findings.kept
    assert found.file == aside
    assert "10 of 14 messages" in found.what
    world.disk.open(f"{aside}/note.json").truncate(10)
    assert "cannot be read" in verify_directory(world.disk).findings.kept[0].what
    world.disk.remove_dir(aside)
    world.reopen()
    assert view(world).problems == []
    checkpoint(world)
    assert verify_directory(world.disk).clean


def test_verify_finds_what_the_broker_has_met_if_nothing_else_is_found(make_world) -> None:
    world = cut_world(make_world)
    meta = {"format": 1, "log_id": "5eed5eed5eed5eed", "shards": 1, "clock": "simulated"}
    replace_file(world.disk, "", "meta", orjson.dumps({**meta, "segment_bytes": SEGMENT}))
    assert verify_directory(world.disk).clean
    world.broker.shard.problems.append("something is lost")
    send(world, "x", 1)
    checkpoint(world)
    (found,) = verify_directory(world.disk).findings.kept
    assert found.what == "met by the broker: something is lost"


def test_a_note_that_cannot_be_read_is_refused_and_named(make_world) -> None:
    world = cut_world(make_world)
    damage_state(world, world.due)
    world.reopen()
    note = f"shard-00/hours/quarantined-{world.due // HOUR:010d}/note.json"
    world.disk.open(note).truncate(10)
    with pytest.raises(HorologError) as refused:
        world.reopen()
    assert refused.value.code is ErrorCode.DAMAGED
    assert f"{note} cannot be read" in refused.value.message


def test_row_12_can_be_killed_at_any_effect_and_begins_again(make_world) -> None:
    """Between setting aside and the next checkpoint the hour is always found in quarantine, with the same count."""
    for after in range(300):
        world = cut_world(make_world)
        damage_state(world, world.due)
        world.disk.crash(power_cut=False)
        with killed_at(world.disk, after) as life:
            world.broker.open()
            checkpoint(world)
        world.reopen(power_cut=after % 2 == 0)
        shown = view(world)
        assert shown.pending == 34, after
        assert len(shown.problems) == 1, after
        assert "10 of 14 messages" in shown.problems[0]
        aside = [name for name in names(world, "hours") if name.startswith("quarantined-")]
        assert len(aside) == 1, after
        if not life.killed:
            assert after > 20
            return
    raise AssertionError("it never came to the end")


def test_row_12_a_hand_over_in_the_tail_of_a_quarantined_hour_is_no_broken_invariant(
    make_world,
) -> None:
    world = cut_world(make_world)
    world.clock.advance(world.due - world.clock.wall_ms())
    world.broker.step([])
    world.broker.settle()
    damage_state(world, world.due)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    got = [i for i in take(world) if "-due" in i]
    assert len(got) == 14, "they had been handed over before"
    assert [i for i in take(world, "other") if "-due" in i] == got
    assert view(world).pending == 30


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["buffer", "run"])
def test_row_12_a_far_buffer_or_run(make_world, kind, both) -> None:
    """With a run the old messages are in it and the young ones in a buffer, which is whole."""
    world = cut_world(make_world, buffer_bytes=8_192 if kind == "run" else 65_536)
    bad = next(n for n in names(world, "runs") if n.endswith(".run") or kind == "buffer")
    path = f"shard-00/runs/{bad}" + ("/delay.idx" if kind == "buffer" else "")
    world.disk.open(path).truncate(64)
    if both:
        damage_state(world, world.due)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    shown = view(world)
    lost = "10 of 15 messages due" if kind == "buffer" else "10 of 10 messages due"
    assert lost in " ".join(shown.problems)
    assert shown.pending == (24 if both else 34)
    aside = [name for name in names(world, "runs") if name.startswith("quarantined-")]
    assert aside == [f"quarantined-{bad.removesuffix('.run')}"]
    for _ in range(3):
        send(world, "x", 1)
        checkpoint(world)
    world.reopen(power_cut=True)
    assert view(world).pending == (24 if both else 34)
    assert aside[0] in names(world, "runs")
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    got = take(world)
    assert sorted(i for i in got if "-far" in i) == [f"young-far{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("first", "rows", "rotten", "lost"),
    [
        (3, 1, "bit", set()),
        (3, 1, "all", {"old-far3"}),
        (11, 3, "all", set()),
        (11, 3, "records", set()),
        (2, 2, "records", {"old-far2", "old-far3"}),
    ],
)
def test_row_12_entries_of_a_far_buffer_are_made_again_from_their_records_or_the_log(
    make_world, first, rows, rotten, lost
) -> None:
    """A bit of its index cost a message whose record is whole; no start told that it could be read.

    bit      of the entry's key: the record has the sum that the entry says
    all      the entries are zeros, so that only the log says that their records are whole
    records  these as well: only the log has the messages, unless it is gone
    """
    world = cut_world(make_world)
    (buffer,) = names(world, "runs")
    index = f"shard-00/runs/{buffer}/delay.idx"
    entries = np.frombuffer(world.disk.open(index).read(0, 15 * ENTRY_BYTES), ENTRY)
    if rotten == "bit":
        world.disk.flip(index, first * ENTRY_BYTES + ENTRY.fields["key"][1], 1)
    else:
        world.disk.open(index).write(first * ENTRY_BYTES, bytes(rows * ENTRY_BYTES))
    if rotten == "records":
        gone = bytes(int(entries["size"][first : first + rows].sum()))
        records = world.disk.open(f"shard-00/runs/{buffer}/delay.log")
        records.write(int(entries["position"][first]), gone)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    shown = view(world)
    assert shown.pending == 44 - len(lost)
    assert shown.repairs == rows - len(lost)
    assert len(shown.problems) == bool(lost), shown.problems
    world.reopen(power_cut=True)
    assert view(world).pending == 44 - len(lost)
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    far = {f"old-far{i}" for i in range(10)} | {f"young-far{i}" for i in range(5)}
    got = [name for name in take(world) if "-far" in name]
    assert sorted(got) == sorted(far - lost)


def test_row_12_a_short_queue_is_rebuilt_from_the_log_without_loss(make_world) -> None:
    world = cut_world(make_world)
    topic = world.broker.ask(DescribeTopic("t"))
    expected = take(world, "before")
    queue = f"shard-00/queues/{names(world, 'queues')[0]}"
    world.disk.open(f"{queue}/{world.disk.list(queue)[0]}").truncate(20)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    again = world.broker.ask(DescribeTopic("t"))
    assert again.min_offsets == topic.min_offsets
    assert again.queue_offsets == topic.queue_offsets
    assert view(world).problems == []
    assert take(world) == expected
    world.reopen(power_cut=True)
    assert take(world, "third") == expected


def test_row_12_offsets_whose_log_is_damaged_become_holes(make_world) -> None:
    world = cut_world(make_world)
    expected = take(world, "before")
    start = view(world).log_start
    segment = f"shard-00/log/{start:020d}.log"
    log = world.broker.shard.log
    after = log.frame(log.frame(start + HEADER_BYTES).end + HEADER_BYTES)
    queue = f"shard-00/queues/{names(world, 'queues')[0]}"
    world.disk.open(f"{queue}/{world.disk.list(queue)[0]}").truncate(20)
    world.disk.flip(segment, after.base - start + HEADER_BYTES + 100, 1, 4)
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    assert "are passed over" in view(world).problems[0]
    got = take(world)
    lost = [i for i in expected if i not in got]
    assert 0 < len(lost) <= 20
    assert [i for i in expected if i in got] == got
    first = world.broker.ask(DescribeTopic("t")).min_offsets[0]
    bulk = world.broker.ask(ReadQueue("t", 0, first, 10_000, 1 << 30))
    assert len(bulk.records) == len(got), "a bulk read passes them over as well"
    send(world, "new", 1)
    assert take(world) == ["new0"], "the group has passed the holes"


def test_rebuilt_queues_are_trusted_only_when_they_are_whole(make_world, monkeypatch) -> None:
    """Killed at any effect of the rebuild: the next start begins it again, and nothing is missing."""
    monkeypatch.setattr(consume_queue, "QUEUE_FILE_UNITS", 64)
    for after in range(100):
        world = cut_world(make_world)
        expected = take(world, "before")
        queue = f"shard-00/queues/{names(world, 'queues')[0]}"
        world.disk.open(f"{queue}/{world.disk.list(queue)[-1]}").truncate(20)
        world.disk.crash(power_cut=False)
        with killed_at(world.disk, after) as life:
            world.broker.open()
        world.reopen(power_cut=True)
        assert take(world) == expected, after
        if not life.killed:
            assert after > 10
            return
    raise AssertionError("it never came to the end")


def test_row_12_with_a_torn_tail(make_world) -> None:
    world = cut_world(make_world)
    end = view(world).log_end
    damage_state(world, world.due)
    size = SEGMENT
    base = end - end % size
    world.disk.open(f"shard-00/log/{base:020d}.log").write(end - base, b"HLGF torn" + bytes(100))
    world.reopen()
    assert any("torn tail cut" in line for line in world.broker.reports)
    assert "recovery row 12" in world.broker.reports[-1]
    assert view(world).pending == 34
    assert world.broker.ask(CountPending()).total == 34


@pytest.mark.parametrize("rotten", ["state", "delay.log", "queues"])
def test_bad_files_and_a_rotten_frame_below_the_checkpoint_cost_what_they_hold(
    make_world, rotten
) -> None:
    """Two flipped bits: the log cannot rebuild all, though it begins at 0, and repairs what it can."""
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = (world.clock.wall_ms() // HOUR + 2) * HOUR
    send(world, "now", 40)
    for i in range(40):
        send(world, f"later{i}.", 1, due_ms=due)
    checkpoint(world)
    (hour,) = names(world, "hours")
    (lost,) = world.broker.ask(FindMessages("t", "later7.0"))
    log = "shard-00/log/00000000000000000000.log"
    world.disk.flip(log, lost.origin + 200, 1, 4)
    if rotten == "queues":
        (queue,) = names(world, "queues")
        world.disk.open(f"shard-00/queues/{queue}/{0:020d}.cq").truncate(100)
    elif rotten == "state":
        damage_state(world, due)
    else:
        world.disk.open(f"shard-00/hours/{hour}/delay.log").truncate(2_000)
    world.disk.crash(power_cut=False)
    world.broker.open()
    assert "recovery row 12" in world.broker.reports[-1]
    assert len(take(world)) == 40
    world.clock.advance(due - world.clock.wall_ms())
    world.broker.settle()
    got = [name for name in take(world) if name.startswith("later")]
    assert sorted(got) == sorted(f"later{i}.0" for i in range(40) if rotten == "queues" or i != 7)
    if rotten != "queues":
        assert any("1 of 40 messages" in text for text in view(world).problems)
