"""Adoptions and crashes: killed at every change, rebuilt from the log, dropped log, damaged files, backups."""

from __future__ import annotations

import pytest
from offloads import SMALL
from worlds import adopted_files, changes_of, checkpoint, killed_at, take_all, view

from horolog.broker.adopt import staging
from horolog.broker.adopt.staging import Begun, ShardFiles
from horolog.errors import HorologError
from horolog.limits import DAY_MS, HOUR_MS, MAX_DELAY_MS, STAGING_TTL_MS
from horolog.protocol.adoption_commands import Adopted, BeginAdoption, DescribeAdoption
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_adoptions import Transaction

DELAYS = [-5_000, 2_000, 3 * HOUR_MS, 30 * HOUR_MS, 5 * DAY_MS]


def made(message_id: str, due_ms: int):
    return encode(
        topic="t", body=b"x" * 50, message_id=message_id, type=MessageType.DELAY, due_ms=due_ms
    )


def open_world(make_world, **settings):
    world = make_world(segment_bytes=65_536)
    world.broker.settings = world.broker.settings._replace(
        far=SMALL, **{"retention_ms": MAX_DELAY_MS, **settings}
    )
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def parts_of(version: int, start_ms: int):
    return [
        [made(f"v{version}p{part}r{row}", start_ms + delay) for row, delay in enumerate(DELAYS)]
        for part in range(2)
    ]


def adopt(world, version: int, parts, token: str = "", *, inline: bool = False) -> Adopted:
    """Begin (or go on), stage and commit one version; whatever was done before is not done again."""
    answer = world.broker.ask(BeginAdoption("load", version, "t"))
    now = world.clock.wall_ms()
    token = token or f"{version:016x}"
    made_before = Begun(token, "load", version, "t", now)
    transaction = Transaction(world.broker.place, made_before, answer.topic_id, answer.queues)
    if not answer.already:
        transaction.begin()
        transaction.stage(parts)
        done = world.broker.ask(transaction.prepare(now, inline=inline))
        assert not done.already
    else:
        done = Adopted(True)
    transaction.end()
    return done


def again(world, version: int, parts, *, inline: bool) -> None:
    """After a crash: the same commit once more, or all of it again if what was staged is gone."""
    answer = world.broker.ask(BeginAdoption("load", version, "t"))
    if answer.already:
        return
    now = world.clock.wall_ms()
    kept = Begun(f"{version:016x}", "load", version, "t", now)
    transaction = Transaction(world.broker.place, kept, answer.topic_id, answer.queues)
    others = Transaction(
        ShardFiles(world.other, "", world.broker.meta.log_id),
        kept._replace(token="b" * 16),
        1,
        answer.queues,
    )
    others.begin()
    others.stage(parts)
    transaction.claims = others.claims  # the same bytes, so the same manifest
    try:
        done = world.broker.ask(transaction.prepare(now, inline=inline))
    except HorologError:
        adopt(world, version, parts, f"{version + 100:016x}", inline=inline)
    else:
        assert not done.already
        transaction.end()


def names_of(versions) -> set[str]:
    return {f"v{v}p{p}r{r}" for v in versions for p in range(2) for r in range(len(DELAYS))}


def story(world, start_ms: int, *, inline: bool) -> None:
    for version in range(2):
        adopt(world, version, parts_of(version, start_ms), inline=inline)
        checkpoint(world)
    for _ in range(3):
        world.clock.advance(2 * DAY_MS)
        world.broker.settle(2_000)
        checkpoint(world)
    for _ in range(3):
        world.broker.ask(SendMessages("t", [made("end", 0)]))
        checkpoint(world)


def changes_of_story(make_world, inline: bool) -> int:
    """How many changes of the disk the story makes."""
    world = open_world(make_world)
    with changes_of(world.disk) as seen:
        story(world, world.clock.wall_ms(), inline=inline)
    assert not adopted_files(world)
    return len(seen)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_kill_at_every_seventh_change(make_world, power_cut, inline) -> None:
    """Exactly the rows, once, whatever change of the disk is the last: of staging, commit, hand-over, removal."""
    for nth in range(3 * power_cut + 2 * inline, changes_of_story(make_world, inline), 7):
        kill_at(make_world, nth, power_cut, inline)


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_kill_at_every_change(make_world, power_cut, inline) -> None:
    for nth in range(changes_of_story(make_world, inline)):
        kill_at(make_world, nth, power_cut, inline)


def kill_at(make_world, nth: int, power_cut: bool, inline: bool) -> None:
    world = open_world(make_world)
    world.other = make_world().disk
    start_ms = world.clock.wall_ms()
    with killed_at(world.disk, nth):
        story(world, start_ms, inline=inline)
    world.reopen(power_cut=power_cut)
    for version in range(2):
        again(world, version, parts_of(version, start_ms), inline=inline)
    world.clock.advance(10 * DAY_MS)
    world.broker.settle(2_000)
    got = take_all(world)
    assert len(set(got) - {"end"}) == len([name for name in got if name != "end"]), "P3"
    assert set(got) - {"end"} == names_of(range(2)), "P2"
    for number in range(4):
        world.broker.ask(SendMessages("t", [made(f"end{number}", 0)]))
        checkpoint(world)
    world.clock.advance(10 * DAY_MS)
    checkpoint(world)
    world.reopen()
    assert not adopted_files(world)
    assert world.broker.ask(DescribeBroker()).problems == []


def test_a_rebuild_from_the_log_keeps_adopted_files(make_world) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    for version in range(2):
        adopt(world, version, parts_of(version, start))
    due = start + DELAYS[3]
    assert world.broker.ask(Recall("t", "v0p0r3", due)).status is RecallStatus.CANCELLED
    world.clock.advance(10_000)
    checkpoint(world)
    before = set(take_all(world))
    assert before == {f"v{v}p{p}r{r}" for v in range(2) for p in range(2) for r in range(2)}
    for name in world.disk.list("shard-00/checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.disk.crash(power_cut=False)
    world.broker.open()
    assert "rebuilt" in " ".join(world.broker.reports)
    assert world.broker.ask(CountPending()).total == 12 - 1
    assert world.broker.ask(DescribeAdoption("load")).version == 1
    assert world.broker.ask(Recall("t", "v0p0r3", due)).status is RecallStatus.NOT_FOUND
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    assert set(take_all(world)) == names_of(range(2)) - before - {"v0p0r3"}


def test_a_rebuild_passes_over_what_was_finished(make_world) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    adopt(world, 0, parts_of(0, start))
    world.clock.advance(20 * DAY_MS)
    world.broker.settle(2_000)
    assert set(take_all(world)) == names_of([0])
    for i in range(3):
        world.broker.ask(SendMessages("t", [made(f"more{i}", 0)]))
        checkpoint(world)
    assert not adopted_files(world)
    adopt(world, 1, parts_of(1, world.clock.wall_ms()))
    for name in world.disk.list("shard-00/checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.reopen(power_cut=True)
    assert world.broker.ask(DescribeBroker()).problems == []
    assert world.broker.ask(CountPending()).total == 8
    world.clock.advance(20 * DAY_MS)
    world.broker.settle(2_000)
    rest = set(take_all(world)) - {"more0", "more1", "more2"}
    assert rest == names_of([1])


def test_the_log_of_an_adoption_may_go_while_its_rows_wait(make_world) -> None:
    world = open_world(make_world, retention_ms=1_000)
    start = world.clock.wall_ms()
    position = adopt(world, 0, parts_of(0, start)).position
    for i in range(30):
        world.broker.ask(SendMessages("t", [made(f"s{i}-{j}", 0) for j in range(20)]))
        world.clock.advance(20_000)
        checkpoint(world)
    assert world.broker.ask(DescribeBroker()).log_start > position
    world.reopen(power_cut=True)
    assert world.broker.ask(CountPending()).total == 6
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    last = {f"v0p{p}r{r}" for p in range(2) for r in range(2, 5)}
    assert last <= set(take_all(world, "late"))


@pytest.mark.parametrize(("log_is_cut", "tail"), [(False, False), (False, True), (True, False)])
def test_a_damaged_file_is_reported_and_never_delivered(make_world, log_is_cut, tail) -> None:
    """In the header, so the file as a whole; before (`tail`) or after a checkpoint names it."""
    world = open_world(make_world, retention_ms=1_000 if log_is_cut else MAX_DELAY_MS)
    start = world.clock.wall_ms()
    checkpoint(world)
    adopt(world, 0, parts_of(0, start))
    if not tail:
        checkpoint(world)
    for i in range(30 if log_is_cut else 0):
        world.broker.ask(SendMessages("t", [made(f"s{i}-{j}", 0) for j in range(20)]))
        world.clock.advance(20_000)
        checkpoint(world)
    world.broker.settle()
    world.disk.flip(f"shard-00/runs/{adopted_files(world)[0]}", 20, 3)
    for _ in range(3):
        world.reopen(power_cut=True)
        problems = world.broker.ask(DescribeBroker()).problems
        assert any("adopted." in problem for problem in problems), problems
    gone = {f"v0p0r{r}" for r in range(len(DELAYS))}
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    got = set(take_all(world, "late"))
    assert got & names_of([0]) >= names_of([0]) - gone - (
        {"v0p1r0", "v0p1r1"} if log_is_cut else set()
    )
    assert not got & {f"v0p0r{r}" for r in (3, 4)}
    assert any("quarantined" in name for name in world.disk.list("shard-00/runs"))


def test_another_run_in_the_place_of_an_adopted_file_is_reported_at_the_start(make_world) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    adopt(world, 0, parts_of(0, start))
    adopt(world, 1, [part[2:] for part in parts_of(1, start)])
    checkpoint(world)
    first, *_, other = sorted(adopted_files(world))
    file, from_other = (world.disk.open(f"shard-00/runs/{name}") for name in (first, other))
    file.truncate(from_other.size())
    file.write(0, from_other.read(0, from_other.size()))
    file.sync()
    for _ in range(3):
        world.reopen()
        problems = world.broker.ask(DescribeBroker()).problems
        assert any("4 of its messages wait and cannot" in each for each in problems), problems
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    waited = {f"v1p{p}r{r}" for p in range(2) for r in range(2, 5)}
    expected = waited | {f"v0p1r{r}" for r in range(5)} | {"v0p0r0"}  # which was handed over
    assert sorted(take_all(world)) == sorted(expected)


def flip_in_row(world, where: str, *bits: int) -> None:
    """In the index entry, or the record, of the fourth row of an adopted run."""
    offset = 64 + 64 * 3 + 24 if where == "index" else 64 + 64 * 5 + 3 * 230 + 100
    world.disk.flip(f"shard-00/runs/{adopted_files(world)[0]}", offset, *bits)


@pytest.mark.parametrize("where", ["index", "record"])
def test_one_flipped_bit_of_a_row_costs_nothing(make_world, where) -> None:
    """P2: no log has it, but its own check sum says which bit it is."""
    world = open_world(make_world)
    adopt(world, 0, parts_of(0, world.clock.wall_ms()))
    flip_in_row(world, where, 3)
    checkpoint(world)
    world.reopen(power_cut=True)
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    assert sorted(take_all(world)) == sorted(names_of([0]))
    shown = view(world)
    assert (shown.problems, shown.repairs) == ([], 1)


@pytest.mark.parametrize("where", ["index", "record"])
def test_a_damaged_row_is_reported_and_never_delivered(make_world, where) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    adopt(world, 0, parts_of(0, start))
    flip_in_row(world, where, 3, 6)
    checkpoint(world)
    world.reopen(power_cut=True)
    world.clock.advance(6 * DAY_MS)
    world.broker.settle(2_000)
    got = take_all(world)
    lost = names_of([0]) - set(got)
    assert len(lost) == 1
    assert lost < {f"v0p0r{r}" for r in range(5)}
    assert len(got) == 9
    assert world.broker.ask(DescribeBroker()).problems
    assert world.broker.ask(CountPending()).total == 0


def test_orphans_are_swept(make_world) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    left = Begun("d" * 16, "load", 7, "t", start)
    for token, parts in (("d" * 16, 1), ("e" * 16, 2)):
        transaction = Transaction(world.broker.place, left._replace(token=token), 1, 1)
        transaction.begin()
        transaction.stage(parts_of(7, start)[:parts])
        transaction.prepare(start)
    transaction.undo()
    assert len(adopted_files(world)) == 1
    world.clock.advance(STAGING_TTL_MS - 1)
    checkpoint(world)
    world.broker.ask(SendMessages("t", [made("x", 0)]))
    checkpoint(world)
    world.reopen()
    assert len(adopted_files(world)) == 1
    assert world.disk.list("shard-00/staging") == ["d" * 16]
    world.clock.advance(1)
    world.disk.idle["shard-00/staging/" + "d" * 16] = STAGING_TTL_MS - 1
    world.reopen()
    assert len(adopted_files(world)) == 1  # a commit has just moved it, and may be sent again
    world.disk.idle.clear()
    world.reopen()
    assert adopted_files(world) == []
    assert world.disk.list("shard-00/staging") == []


def begun_load(world) -> Transaction:
    """Begin a load and stage its runs."""
    start = world.clock.wall_ms()
    transaction = Transaction(world.broker.place, Begun("d" * 16, "load", 7, "t", start), 1, 1)
    transaction.begin()
    transaction.stage(parts_of(7, start))
    return transaction


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_load_staged_is_kept_while_it_cannot_be_read_whose_it_is(make_world, moved) -> None:
    """A start took it for that of a committed version, and removed at once what a load had written for days."""
    world = open_world(make_world)
    load = begun_load(world)
    if moved:
        load.prepare(world.clock.wall_ms())
    staged = f"shard-00/staging/{load.begun.token}"
    flip_back = world.disk.flip(f"{staged}/begin.json", 0, 1)
    world.disk.idle[staged] = 0
    world.reopen()
    assert len(adopted_files(world)) == (len(load.claims) if moved else 0)
    assert flip_back()
    assert world.broker.ask(load.prepare(world.clock.wall_ms())).rows == 2 * len(DELAYS)
    world.reopen()
    assert world.disk.list("shard-00/staging") == []
    assert view(world).pending == 8


def test_what_was_staged_by_an_unknown_load_is_swept_after_a_while(make_world) -> None:
    world = open_world(make_world)
    load = begun_load(world)
    load.prepare(world.clock.wall_ms())
    staged = f"shard-00/staging/{load.begun.token}"
    world.disk.flip(f"{staged}/begin.json", 0, 1)
    world.clock.advance(STAGING_TTL_MS)
    world.disk.idle[staged] = STAGING_TTL_MS - 1
    world.reopen()
    assert len(adopted_files(world)) == len(load.claims)
    world.disk.idle.clear()
    world.reopen()
    assert adopted_files(world) == world.disk.list("shard-00/staging") == []


def test_a_task_that_still_writes_leaves_no_file_when_its_load_is_aborted(make_world) -> None:
    world = open_world(make_world)
    load = begun_load(world)
    refused = []

    def write_one_more(effect: str) -> None:
        if effect.startswith("remove"):
            with pytest.raises(FileNotFoundError):
                world.disk.open(f"shard-00/staging/{load.begun.token}/late.run", create=True)
            refused.append(effect)

    world.disk.on_effect = write_one_more
    load.undo()
    load.undo()  # there is nothing left to remove
    assert refused
    assert world.disk.list("shard-00/staging") == []


@pytest.mark.parametrize("restarted", [True, False])
def test_an_abort_that_was_cut_off_leaves_nothing_for_long(make_world, restarted: bool) -> None:
    world = open_world(make_world)
    load = begun_load(world)
    world.disk.fail_next("remove")
    with pytest.raises(HorologError, match="Input/output error"):
        load.undo()
    assert world.disk.list("shard-00/staging") == [f"{load.begun.token}.ended"]
    if restarted:
        world.reopen()
    else:
        begun_load(world).undo()
    assert world.disk.list("shard-00/staging") == []


def test_what_was_staged_for_a_committed_version_is_swept(make_world) -> None:
    world = open_world(make_world)
    start = world.clock.wall_ms()
    late = Transaction(world.broker.place, Begun("f" * 16, "load", 0, "t", start), 1, 1)
    late.begin()
    late.stage(parts_of(0, start))
    adopt(world, 0, parts_of(0, start))
    world.reopen()
    assert world.disk.list("shard-00/staging") == []
    assert len(adopted_files(world)) == 2
    with pytest.raises(HorologError) as found:
        staging.find(world.broker.place, "f" * 16)
    assert found.value.field == "token"
