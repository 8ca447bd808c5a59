"""Recalls and reschedules of what is in the lake, as the core decides them; killed at every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offloads import begin, exported, hour_after, open_world, pending, schedule
from worlds import changes_of, checkpoint, killed_at, made

from horolog.broker.recall import bulk_recalls
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core import recalls as lake_recalls
from horolog.lake.core.recalled_set import LAKE_ROW, RecalledSet
from horolog.lake.table import given_up
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import (
    FindMessages,
    MessageState,
    MessageType,
    Recall,
    RecallMany,
    RecallStatus,
    Receive,
    Reschedule,
    SendMessages,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.tier_commands import (
    CommitOffload,
    DescribeTier,
    Elsewhere,
    ListRecalled,
    RecallRows,
    TierRow,
)
from horolog.storage.api import read_file, replace_file
from horolog.testing.sim_broker import Answer, properties_of
from horolog.testing.sim_lake_rows import frozen_messages

ALL_MS = 1 << 50


def offloaded(world, count: int = 60) -> dict[str, Any]:
    """Message id → row of the table, of all that is due in more than two days; all of it is in the lake."""
    schedule(world, count)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = {row.message_id: row for row in frozen_messages(world.broker.place, view)}
    assert world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake")).waiting == len(rows)
    return rows


def move(row, new_due_ms: int, record: bytes | None = None) -> Reschedule:
    """The command for one row of offload 1."""
    place = TierRow(1, row.position, row.row, row.due_ms)
    topic = "tu"[int(row.message_id[1:]) % 2]
    content = row.record if record is None else record
    found = Elsewhere((place,), (1,), (content,))
    return Reschedule(topic, row.message_id, row.due_ms, new_due_ms, elsewhere=found)


def lake_rows(rows) -> Any:
    return np.array([(1, row.position, row.row, row.topic, row.due_ms) for row in rows], LAKE_ROW)


def states(world, name: str) -> list[tuple[int, MessageState]]:
    found = world.broker.ask(FindMessages("tu"[int(name[1:]) % 2], message_id=name))
    return sorted((each.due_ms, each.state) for each in found)


def visible(world, topic: str) -> list[str]:
    """Message ids of all that is visible, by a group that reads it once."""
    found: list[str] = []
    while got := world.broker.ask(
        Receive("g", topic, -1, "*", 32, 600_000, False, 0, "client")
    ).messages:
        found += [
            each.message_id
            for message in got
            for each in world.broker.ask(FindMessages(topic, message_id=id_of(message)))
            if each.state is MessageState.DELIVERED
        ]
    return found


def body_of(stored: bytes) -> bytes:
    return layout.decode(stored).body


def id_of(message) -> str:
    return properties_of(message)[properties.UNIQ_KEY]


def test_a_message_in_the_lake_is_moved_in_one_frame(make_world) -> None:
    world = open_world(make_world)
    row = offloaded(world)["m2"]
    new_ms = world.clock.wall_ms() + HOUR_MS
    done = world.broker.ask(move(row, new_ms))
    assert (done.status.value, done.due_ms, done.copies) == ("RESCHEDULED", new_ms, 1)
    for _ in range(2):
        assert pending(world) == 60
        assert world.broker.ask(DescribeTier(ALL_MS)).waiting == 49
        assert world.broker.ask(ListRecalled(1)) == [row.origin]
        assert states(world, "m2") == [
            (new_ms, MessageState.PENDING),
            (row.due_ms, MessageState.MOVED),
        ]
        again = world.broker.ask(move(row, new_ms + 1))
        assert again.status.value == "NOT_FOUND"
        assert "was moved to" in again.detail
        checkpoint(world)
        world.reopen(power_cut=True)
    world.clock.advance(HOUR_MS)
    world.broker.settle()
    assert visible(world, "t") == ["m2"]


def test_copies_here_and_in_the_lake_go_on_as_one(make_world) -> None:
    """The same message id and due time was sent again, long after, and not offloaded."""
    world = open_world(make_world)
    row = offloaded(world)["m2"]
    world.clock.advance(2 * HOUR_MS)
    copy = encode(
        topic="t", body=b"x" * 40, message_id="m2", type=MessageType.DELAY, due_ms=row.due_ms
    )
    assert not world.broker.ask(SendMessages("t", [copy])).refused
    before = pending(world)
    done = world.broker.ask(move(row, row.due_ms + 5))
    assert done.copies == before - 59
    assert pending(world) == 60
    world.reopen()
    assert pending(world) == 60
    assert world.broker.ask(DescribeTier(ALL_MS)).waiting == 49


def test_messages_of_one_id_and_different_bodies_all_go_on(make_world) -> None:
    """P2: two in the lake, and one that is here, of producers that make the same ids; killed at every change."""
    for after in range(100):
        world = open_world(make_world)
        due_ms = world.clock.wall_ms() + 33 * DAY_MS
        for body in (b"one", b"two", b"one"):
            world.broker.ask(SendMessages("t", [made("m", due_ms, body=body)]))
            world.clock.advance(world.broker.settings.dedup_ms + 1)
        view = begin(world, hour_after(world, 48 * HOUR_MS))
        rows = frozen_messages(world.broker.place, view)
        world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake"))
        world.clock.advance(2 * HOUR_MS)
        world.broker.ask(SendMessages("t", [made("m", due_ms, body=b"three")]))
        checkpoint(world)
        places = tuple(TierRow(1, row.position, row.row, row.due_ms) for row in rows)
        found = Elsewhere(places, (1,), tuple(row.record for row in rows))
        new_ms = world.clock.wall_ms() + HOUR_MS
        with killed_at(world.disk, after) as life:
            done = world.broker.ask(Reschedule("t", "m", due_ms, new_ms, elsewhere=found))
        world.reopen(power_cut=after % 2 == 0)
        gone = world.broker.ask(ListRecalled(1))
        left = {body_of(row.record[HEAD_BYTES:]) for row in rows if row.origin not in gone}
        here = world.broker.ask(FindMessages("t", message_id="m"))
        waits = [body_of(each.layout) for each in here if each.state is MessageState.PENDING]
        assert sorted([*waits, *left]) == [b"one", b"three", b"two"]
        if not life.killed:
            assert (done.copies, left) == (4, set())
            assert after > 1
            return
    raise AssertionError("it never came to the end")


def test_messages_of_one_id_that_fit_no_frame_are_not_moved(make_world) -> None:
    world = open_world(make_world)
    due_ms = world.clock.wall_ms() + 33 * DAY_MS
    for body in (b"1" * 40_000, b"2" * 40_000):
        world.broker.ask(SendMessages("t", [made("m", due_ms, body=body)]))
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = frozen_messages(world.broker.place, view)
    world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake"))
    places = tuple(TierRow(1, row.position, row.row, row.due_ms) for row in rows)
    found = Elsewhere(places, (1,), tuple(row.record for row in rows))
    with pytest.raises(HorologError, match="at most 65536 can be moved from there at once"):
        world.broker.ask(Reschedule("t", "m", due_ms, due_ms + 1, elsewhere=found))
    assert world.broker.ask(DescribeTier(ALL_MS)).waiting == 2
    assert pending(world) == 2


def test_another_record_is_not_put_in_its_place(make_world) -> None:
    world = open_world(make_world)
    rows = offloaded(world)
    for record in (rows["m4"].record, b"", b"short"):
        with pytest.raises(HorologError) as refused:
            world.broker.ask(move(rows["m2"], rows["m2"].due_ms + 1, record))
        assert refused.value.code is ErrorCode.IN_TIER
    assert pending(world) == 60
    assert world.broker.ask(DescribeTier(ALL_MS)).waiting == 50
    assert states(world, "m2") == [(rows["m2"].due_ms, MessageState.IN_TIER)]


def test_what_came_into_the_lake_meanwhile_is_looked_for_again(make_world) -> None:
    world = open_world(make_world)
    row = offloaded(world)["m2"]
    unseen = move(row, row.due_ms + 1)
    for command in (
        Reschedule("t", "m2", row.due_ms, row.due_ms + 1, elsewhere=Elsewhere(())),
        RecallMany("t", 0, ALL_MS, looked=(2,)),
    ):
        with pytest.raises(HorologError, match="offload 1 came into the lake meanwhile") as refused:
            world.broker.ask(command)
        assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    assert pending(world) == 60
    assert world.broker.ask(unseen).status.value == "RESCHEDULED"


def test_rows_of_a_window_are_recalled_once(make_world) -> None:
    world = open_world(make_world)
    rows = [row for row in offloaded(world).values() if row.topic == 1]
    named = lake_rows(rows)
    counted = world.broker.ask(RecallRows(named, dry_run=True))
    assert counted.tolist() == [True] * len(rows)
    assert pending(world) == 60
    first, half = world.broker.ask(RecallRows(named[:3])), len(rows) - 3
    assert first.tolist() == [True] * 3
    unknown = named[:1].copy()
    unknown["number"] = 9
    assert world.broker.ask(RecallRows(unknown)).tolist() == [False]
    done = world.broker.ask(RecallRows(named))
    assert done.tolist() == [False] * 3 + [True] * half
    for _ in range(2):
        assert pending(world) == 60 - len(rows)
        assert not world.broker.ask(RecallRows(named)).any()
        left = world.broker.ask(RecallMany("t", 0, ALL_MS, dry_run=True, looked=(1,)))
        assert left.matched == 30 - len(rows)
        world.reopen(power_cut=True)


@pytest.mark.parametrize("place", ["older copy", "directory"])
def test_another_thing_in_the_place_of_the_state_of_the_lake(make_world, place) -> None:
    """A rebuild begins its versions again, so a copy from before has the same name."""
    world = open_world(make_world)
    named = lake_rows(list(offloaded(world).values()))
    checkpoint(world)
    (path,) = [name for name in world.disk.names() if "lake.state" in name]
    copied = read_file(world.disk, path)
    world.disk.crash(power_cut=False)
    for name in world.disk.list("shard-00/checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.broker.open()
    assert world.broker.ask(RecallRows(named[:3])).all()
    checkpoint(world)
    assert read_file(world.disk, path) != copied
    world.disk.crash(power_cut=False)
    if place == "directory":
        world.disk.remove(path)
        world.disk.make_dir(path)
    else:
        replace_file(world.disk, *path.rsplit("/", 1), copied)
    world.broker.open()
    assert pending(world) == 57
    assert not world.broker.ask(RecallRows(named[:3])).any()


def test_recalls_that_are_remembered_are_bounded(make_world, monkeypatch) -> None:
    """P4: what is recalled in the lake takes memory until its hour is promoted."""
    world = open_world(make_world)
    rows = offloaded(world)
    monkeypatch.setattr(lake_recalls, "LAKE_RECALLED_MAX", 2)
    named = list(rows.values())
    assert world.broker.ask(RecallRows(lake_rows(named[:2]))).all()
    third = named[2]
    place = TierRow(1, third.position, third.row, third.due_ms)
    topic = "tu"[int(third.message_id[1:]) % 2]
    for command in (
        RecallRows(lake_rows([third]), done=7),
        Recall(topic, third.message_id, third.due_ms, elsewhere=Elsewhere((place,), (1,))),
        move(third, third.due_ms + 1),
    ):
        with pytest.raises(HorologError, match="at most 2 can be") as refused:
            world.broker.ask(command)
        assert refused.value.code is ErrorCode.IN_TIER
    assert world.broker.ask(RecallRows(lake_rows(named[:2]))).tolist() == [False] * 2
    assert pending(world) == 58


def test_nothing_leaves_for_the_lake_under_a_bulk_recall(make_world, monkeypatch) -> None:
    """A commit that overtook it would have taken what it means, un-recalled."""
    monkeypatch.setattr(bulk_recalls, "BULK_ROWS", 8)
    world = open_world(make_world)
    schedule(world, 60)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = exported(world, view)
    asked = [
        Answer(RecallMany("t", 0, ALL_MS)),
        Answer(CommitOffload(view.offload_id, len(rows), "lake")),
    ]
    world.broker.step(asked)
    world.broker.settle()
    many, committed = (answer.result for answer in asked)
    assert many.cancelled == 30
    assert committed.waiting == 30
    assert pending(world) == 30
    world.reopen(power_cut=True)
    assert pending(world) == 30
    assert world.broker.ask(RecallMany("t", 0, ALL_MS, dry_run=True, looked=(1,))).matched == 0


def story(world, noted: dict[str, Any]) -> None:
    """Moves into near hours, the far store and the present, and a bulk recall; `told`: what was acknowledged."""
    noted["rows"] = rows = offloaded(world, 24)
    now = world.clock.wall_ms()
    for name, new_ms in (("m2", now + HOUR_MS), ("m3", now + 40 * DAY_MS), ("m4", now)):
        noted["asked"] = name
        world.broker.ask(move(rows[name], new_ms))
        noted["moved"] = name
        checkpoint(world)
    noted["asked"] = "many"
    world.broker.ask(RecallRows(lake_rows([rows["m5"], rows["m8"]])))
    noted["moved"] = "many"
    checkpoint(world)


def changes_of_story(make_world) -> int:
    world = open_world(make_world)
    with changes_of(world.disk) as seen:
        story(world, {})
    return len(seen)


ORDER = ["m2", "m3", "m4", "many"]


@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_at_every_change(make_world, power_cut) -> None:
    count = changes_of_story(make_world)
    assert count > 60
    for nth in range(0, count, 1 if power_cut else 2):
        kill_at(make_world, nth, power_cut)


def kill_at(make_world, nth: int, power_cut: bool) -> None:
    world = open_world(make_world)
    noted: dict[str, Any] = {}
    with killed_at(world.disk, nth):
        story(world, noted)
    world.reopen(power_cut=power_cut)
    world.broker.settle()
    if "asked" not in noted:
        return
    gone = set(world.broker.ask(ListRecalled(1)))
    done = ORDER.index(noted["moved"]) + 1 if "moved" in noted else 0
    rows = noted["rows"]
    for at, name in enumerate(ORDER):
        names = ["m5", "m8"] if name == "many" else [name]
        are_gone = {rows[each].origin in gone for each in names}
        assert len(are_gone) == 1
        is_gone = are_gone.pop()
        if at < done or at >= ORDER.index(noted["asked"]) + 1:
            assert is_gone == (at < done)
        if name == "many":
            assert pending(world) == 24 - (2 if is_gone else 0) - ("m4" in moved_of(gone, rows))
        else:
            dues = {state for _, state in states(world, name)}
            expected = {MessageState.MOVED} if is_gone else {MessageState.IN_TIER}
            assert expected <= dues
            assert len(dues) == 1 + is_gone
    world.clock.advance(2 * HOUR_MS)
    world.broker.settle()
    wanted = [name for name in ("m2", "m4") if rows[name].origin in gone]
    assert sorted(visible(world, "t")) == wanted
    for name in wanted:
        row = rows[name]
        found = Elsewhere((TierRow(1, *row.origin, row.due_ms),), (1,))
        named = Recall("t", name, row.due_ms, elsewhere=found)
        assert world.broker.ask(named).status is not RecallStatus.CANCELLED


def moved_of(gone: set[tuple[int, int]], rows) -> set[str]:
    return {name for name, row in rows.items() if row.origin in gone}


def test_recalled_rows_are_a_set() -> None:
    chance = np.random.default_rng(3)
    model: set[tuple[int, ...]] = set()
    found = RecalledSet()
    for _ in range(60):
        rows = np.zeros(int(chance.integers(0, 9)), LAKE_ROW)
        for name, high in (("number", 3), ("position", 9), ("row", 3), ("due_ms", 4)):
            rows[name] = chance.integers(0, high, len(rows))
        rows["due_ms"] = rows["position"] % 4  # a message has one due time
        known = found.knows(rows)
        keys = [tuple(row) for row in rows[["number", "position", "row"]].tolist()]
        assert known.tolist() == [key in model for key in keys]
        found.add(rows[~known])
        model |= set(keys)
        if chance.random() < 0.2:
            number = int(chance.integers(0, 3))
            assert found.drop(found.all["number"] == number) == any(
                key[0] == number for key in model
            )
            model = {key for key in model if key[0] != number}
        assert {key[1:] for key in model} == {
            (position, row) for position in range(9) for row in range(3) if found.has(position, row)
        }


def test_a_note_of_no_offload_is_passed_over(tmp_path: Path) -> None:
    """Files that somebody else left beside the notes: `²` ended every job with a traceback."""
    uri = str(tmp_path)
    given_up.note(uri, "feed", 8)
    for name in ("feed-²", "feed-٣", "feed-8.bak"):
        (tmp_path / "_given_up" / name).touch()
    assert given_up.noted(uri, "feed") == [8]
