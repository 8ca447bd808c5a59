"""The one list of problems: bounded, each once, kept over a restart, gone with what it is about."""

from __future__ import annotations

import numpy as np
from worlds import checkpoint, view

from horolog.broker.problems import Problems
from horolog.delay.far.compaction import FarSettings
from horolog.errors import Problem
from horolog.limits import DAY_MS, HOUR_MS, PROBLEM_TEXT_MAX, PROBLEMS_MAX
from horolog.protocol.commands import (
    CreateTopic,
    ListPending,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode


def always(_: str) -> bool:
    return True


def again(problems: Problems, exists=always, now_ms: int = 0) -> Problems:
    """As a start finds it."""
    found = Problems()
    found.restore(problems.captured(), exists, now_ms)
    found.check_invariants()
    return found


def test_repeated_problems_are_listed_and_reported_once() -> None:
    problems = Problems()
    for _ in range(3):
        problems.append("a")
        problems += ["b", Problem("c of 1", key="c")]
    problems.append(Problem("c of 2", key="c"))
    assert list(problems) == ["a", "b", "c of 2"]
    assert problems.take_unreported() == ["a", "b", "c of 1"]
    problems.append("a")
    assert problems.take_unreported() == []
    assert again(problems).take_unreported() == ["a", "b", "c of 2"], "once in every life"


def test_the_list_is_bounded_and_says_what_it_leaves_out() -> None:
    problems = Problems()
    for i in range(PROBLEMS_MAX + 5):
        problems.append(f"{i}" + "x" * 2 * PROBLEM_TEXT_MAX)
    problems.check_invariants()
    assert len(list(problems)) == PROBLEMS_MAX + 1
    assert list(problems)[-1] == (
        f"more than {PROBLEMS_MAX} problems: 5 that were met after them are not listed"
    )
    assert max(len(text) for text in problems) == PROBLEM_TEXT_MAX
    assert len(problems.take_unreported()) == PROBLEMS_MAX + 1
    assert list(again(problems)) == list(problems)
    gone = again(problems)
    for key in list(gone._listed):
        gone.remove(key)
    assert not list(gone)


def test_a_problem_goes_with_its_part_or_its_time() -> None:
    problems = Problems()
    problems += [Problem("of a", "dir/a"), Problem("of b", "dir/b"), Problem("till 5", until_ms=5)]
    assert list(again(problems, lambda path: path == "dir/b", 4)) == ["of b", "till 5"]
    problems.sweep(lambda path: path == "dir/a", 5)
    assert list(problems) == ["of a", "till 5"], "a day is left to see it"
    kept = again(problems, now_ms=4 + DAY_MS)
    assert list(kept) == list(problems)
    kept.sweep(always, 5 + DAY_MS)
    assert list(kept) == ["of a"]


def test_a_repair_is_counted_and_reported_but_no_problem() -> None:
    problems = Problems()
    problems.append(Problem("two are lost", key="x"))
    problems.note_repaired("two were repaired", 2)
    problems.remove("x")
    assert list(problems) == []
    assert problems.take_unreported() == ["two are lost", "two were repaired"]
    assert again(problems).repairs == 2


# --- from every part of a broker --------------------------------------------------------------------


def far_world(make_world, n: int = 30):
    """Far messages in a run."""
    world = make_world()
    world.broker.settings = world.broker.settings._replace(far=FarSettings(buffer_bytes=4_096))
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.due = world.clock.wall_ms() + 3 * DAY_MS
    send(world, "far", n, world.due)
    world.broker.settle()
    assert world.broker.shard.delay.far.runs
    return world


def send(world, prefix: str, n: int, due_ms: int = 0) -> None:
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    ids = [f"{prefix}{i}" for i in range(n)]
    world.broker.ask(
        SendMessages(
            "t",
            [
                encode(topic="t", body=bytes(300), message_id=i, type=kind, due_ms=due_ms)
                for i in ids
            ],
        )
    )


def test_what_a_run_says_is_read(make_world) -> None:
    """`Run.problems` had no reader."""
    world = far_world(make_world)
    far = world.broker.shard.delay.far
    run = far.open_run(next(iter(far.runs)))
    run._add_problem("key group 0 is damaged; its rows are scanned instead")
    assert "key group 0 is damaged" in view(world).problems[0]


def test_what_the_far_store_says_is_read(make_world) -> None:
    """`FarStore.problems` had no reader: rows that a flush leaves out were lost without a word."""
    world = far_world(make_world)
    far = world.broker.shard.delay.far
    far.problems.append(Problem("a buffer is damaged"))
    assert view(world).problems == ["a buffer is damaged"]
    assert far.problems == []


def test_what_the_key_index_says_is_read_and_does_not_gather(make_world) -> None:
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    index = world.broker.shard.key_index
    for i in range(5):
        send(world, f"n{i}-", 256)
    assert index.flush()
    chunk = index._chunks[0]
    chunk.damage = "heads are damaged"
    index.find(12_345)
    assert "look-ups read all of its rows" in view(world).problems[0]
    assert index.problems == []


def test_problems_survive_a_restart_and_older_checkpoints_know_none(make_world) -> None:
    world = far_world(make_world)
    world.broker.shard.problems.append("something is wrong")
    checkpoint(world)
    world.reopen(power_cut=True)
    assert view(world).problems == ["something is wrong"]
    assert list(again(Problems())) == []
    empty = Problems()
    empty.restore({}, always, 0)
    assert list(empty) == []


def test_listing_again_and_again_does_not_repeat_a_problem(make_world) -> None:
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + 5 * HOUR_MS
    send(world, "m", 3, due)
    hour = world.broker.shard.delay.hours[due // HOUR_MS]
    entries = hour.entries(np.arange(3))
    entries["due_ms"][1] ^= 3
    world.disk.open(f"{hour.directory}/delay.idx").write(0, entries.tobytes())
    world.disk.flip(f"{hour.directory}/delay.log", int(entries["position"][1]) + 4, 1, 4)
    hour.drop_views()
    log = min(name for name in world.disk.names() if "/log/" in name)
    world.disk.flip(log, int(entries["origin"][1]) + 40, 1, 4)
    for _ in range(4):
        world.broker.ask(ListPending(due - 1, due + 1_000, "t", 10))
    assert len(view(world).problems) == 1


def test_finished_adoptions_are_forgotten_with_their_files(make_world) -> None:
    """One name for each adopted run that ever was handed over stayed in memory."""
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    far = world.broker.shard.delay.far
    far.finished = {f"adopted.x.{i:06d}": 0 for i in range(1_000)}
    checkpoint(world)
    assert far.finished == {}
