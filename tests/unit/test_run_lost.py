"""A run that rots while it is in use: made whole from its index, else set aside with its counts; the rest serves."""

from __future__ import annotations

import pytest
from worlds import checkpoint, take_all, view

from horolog.delay.far.compaction import FarSettings
from horolog.delay.run import reader as run_module
from horolog.delay.run.format import FOOTER_BYTES, HEADER_BYTES, KEY_GROUP, TOPIC_HOUR
from horolog.limits import DAY_MS
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    FindMessages,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode


def made(message_id: str, due_ms: int):
    body = message_id.encode() * 40
    return encode(
        topic="t", body=body, message_id=message_id, type=MessageType.DELAY, due_ms=due_ms
    )


def two_runs(make_world, root=None):
    """m0 … m9 in one run, n0 … n9 in another."""
    world = make_world(root=root)
    world.broker.settings = world.broker.settings._replace(
        far=FarSettings(buffer_bytes=2_000, runs_max=8), dedup_ms=0
    )
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.due = world.clock.wall_ms() + 3 * DAY_MS
    world.ids = []
    for prefix in "mn":
        ids = [f"{prefix}{i}" for i in range(10)]
        world.broker.ask(SendMessages("t", [made(each, world.due) for each in ids]))
        world.ids += ids
        world.broker.settle()
        world.clock.advance(2_000)
        world.broker.settle()
    checkpoint(world)
    far = world.broker.shard.delay.far
    assert len(far.runs) == 2
    return world


def path_of(world, number: int = 0) -> str:
    far = world.broker.shard.delay.far
    return f"{far.directory}/{sorted(far.runs)[number]}.run"


def forget(world) -> None:
    """As when more runs are in use than stay mapped: the next question opens the file again."""
    world.broker.shard.delay.far._opened.close()


def hand_over(world) -> list[str]:
    world.clock.advance(world.due + 1 - world.clock.wall_ms())
    world.broker.settle()
    return take_all(world)


@pytest.mark.parametrize("part", ["header", "fences", "directory", "footer"])
def test_what_follows_from_the_index_is_rebuilt_while_running(make_world, part) -> None:
    world = two_runs(make_world)
    path = path_of(world)
    size = world.disk.open(path).size()
    before = world.disk.open(path).read(0, size)
    at = {
        "header": 20,
        "fences": size - FOOTER_BYTES - TOPIC_HOUR.itemsize - 16 - 3,
        "directory": size - FOOTER_BYTES - 5,
        "footer": size - 60,
    }[part]
    world.disk.flip(path, at, 3)
    forget(world)
    assert world.broker.ask(CountPending()).total == 20
    assert view(world).repairs == 1
    assert view(world).problems == []
    assert world.disk.open(path).read(0, size) == before
    assert hand_over(world) == world.ids


@pytest.mark.parametrize("part", ["fences", "key directory", "directory"])
def test_parts_that_rot_while_they_are_mapped_mislead_nobody(make_world, tmp_path, part) -> None:
    """They were verified when the run was opened; the real disk shows what became of them since."""
    world = two_runs(make_world, tmp_path)
    assert len(world.broker.ask(FindMessages("t", "m3"))) == 1
    assert world.broker.ask(CountPending()).total == 20
    file = world.disk.open(path_of(world))
    end = file.size() - FOOTER_BYTES - TOPIC_HOUR.itemsize
    first, stop = {
        "fences": (end - KEY_GROUP.itemsize - 8, end - KEY_GROUP.itemsize),
        "key directory": (end - KEY_GROUP.itemsize, end),
        "directory": (end, file.size() - FOOTER_BYTES),
    }[part]
    for content in (b"\xff" * (stop - first), bytes(stop - first)):
        file.write(first, content)
        assert len(world.broker.ask(FindMessages("t", "m3"))) == 1
        assert world.broker.ask(CountPending()).total == 20
    assert world.broker.ask(Recall("t", "m3", world.due)).status is RecallStatus.CANCELLED
    assert view(world).problems == []
    assert hand_over(world) == [each for each in world.ids if each != "m3"]


def test_a_large_directory_that_is_bad_at_its_first_use_does_not_end_the_turn(
    make_world, monkeypatch
) -> None:
    monkeypatch.setattr(run_module, "_DIRECTORY_AT_OPEN_BYTES", 0)
    world = two_runs(make_world)
    path = path_of(world)
    world.disk.flip(path, world.disk.open(path).size() - FOOTER_BYTES - 5, 3)
    world.reopen()
    assert world.broker.ask(CountPending()).total == 20
    assert view(world).repairs == 1
    assert hand_over(world) == world.ids


@pytest.mark.parametrize("how", ["cut", "directory and index", "removed"])
def test_a_run_that_cannot_be_made_whole_is_set_aside_and_the_rest_serves(make_world, how) -> None:
    world = two_runs(make_world)
    path = path_of(world)
    file = world.disk.open(path)
    if how == "cut":
        file.truncate(300)
    elif how == "removed":
        world.disk.remove(path)
    else:
        world.disk.flip(path, file.size() - FOOTER_BYTES - 5, 3)
        world.disk.flip(path, HEADER_BYTES + 30, 3)
    forget(world)
    world.broker.ask(FindMessages("t", "m3"))
    shown = view(world)
    assert "10 messages that wait in it are quarantined until the next start" in shown.problems[0]
    assert (len(shown.problems), shown.pending) == (1, 10)
    assert world.broker.ask(Recall("t", "m3", world.due)).status is RecallStatus.NOT_FOUND
    assert world.broker.ask(Recall("t", "n3", world.due)).status is RecallStatus.CANCELLED
    assert hand_over(world) == [each for each in world.ids if each[0] == "n" and each != "n3"]
    checkpoint(world)
    world.reopen()
    world.broker.settle()
    assert view(world).problems == []
    assert take_all(world) == [each for each in world.ids if each[0] == "m"], (
        "from the log, P2 and P3"
    )


@pytest.mark.parametrize("how", ["header", "footer", "removed"])
def test_a_run_that_has_rotted_since_it_was_opened_does_not_end_a_merge(
    make_world, tmp_path, how
) -> None:
    world = two_runs(make_world, tmp_path)
    assert len(world.broker.ask(FindMessages("t", "m3"))) == 1
    path = path_of(world)
    if how == "removed":
        world.disk.remove(path)
    else:
        file = world.disk.open(path)
        file.write(10 if how == "header" else file.size() - 20, b"\xa5")
    world.broker.shard.delay.far.compaction.settings = FarSettings(buffer_bytes=2_000, runs_max=1)
    for _ in range(3):
        world.clock.advance(20_000)
        world.broker.settle()
    shown = view(world)
    if how == "removed":
        assert "10 messages that wait in it are quarantined" in shown.problems[0]
        checkpoint(world)
        world.reopen()
    else:
        assert (shown.repairs, shown.problems) == (1, [])
        assert len(world.broker.shard.delay.far.runs) == 1, "they are merged"
    assert world.broker.ask(CountPending()).total == 20
    assert sorted(hand_over(world)) == sorted(world.ids)


def test_another_run_in_the_place_of_one_hands_nothing_over_twice(make_world) -> None:
    world = two_runs(make_world)
    ids = [f"o{i}" for i in range(14)]
    world.broker.ask(SendMessages("t", [made(each, world.due) for each in ids]))
    world.broker.settle()
    other = world.disk.open(path_of(world, 2))
    content = other.read(0, other.size())
    file = world.disk.open(path_of(world))
    file.truncate(len(content))
    file.write(0, content)
    forget(world)
    world.ids = world.ids[10:] + ids
    assert sorted(hand_over(world)) == sorted(world.ids), "the first run is set aside"
    assert any("another file is in its place" in each for each in view(world).problems)
    world.reopen()
    world.broker.settle()
    assert sorted(take_all(world)) == [f"m{i}" for i in range(10)], "made again from the log"
