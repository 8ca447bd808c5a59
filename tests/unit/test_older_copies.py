"""Other files in the place of those that a checkpoint names, such as older copies (P2, P3, P8)."""

from __future__ import annotations

import pytest
from worlds import checkpoint, made, names, take_all, view

from horolog.broker.adopt.staging import Begun, ShardFiles
from horolog.errors import HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import BeginAdoption
from horolog.protocol.commands import CreateTopic, ListTopics, Recall, SendMessages, TopicType
from horolog.storage.api import read_file, replace_file
from horolog.storage.meta import FORMAT, Meta, encode_meta
from horolog.testing.sim_adoptions import Transaction
from horolog.verify.directory import verify_directory

IDS = [f"m{i}" for i in range(10)]


def send(world, due: int) -> None:
    world.broker.ask(SendMessages("t", [made(each, due) for each in IDS]))


def adopt(world, due: int) -> None:
    place = ShardFiles(world.disk, "shard-00", world.broker.meta.log_id)
    answer = world.broker.ask(BeginAdoption("load", 1, "t"))
    begun = Begun(f"{1:016x}", "load", 1, "t", world.clock.wall_ms())
    transaction = Transaction(place, begun, answer.topic_id, answer.queues)
    transaction.begin()
    transaction.stage([[made(each, due) for each in IDS]])
    world.broker.ask(transaction.prepare(world.clock.wall_ms()))
    transaction.end()


def states(world) -> dict[str, bytes]:
    return {path: read_file(world.disk, path) for path in world.disk.names() if "state." in path}


@pytest.mark.parametrize("fill", [send, adopt])
def test_an_older_state_under_the_name_of_a_newer_one_is_not_taken(make_world, fill) -> None:
    """A rebuild begins versions again: what was recalled waited once more, and was handed over."""
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + (2 * HOUR_MS if fill is send else 3 * DAY_MS)
    fill(world, due)
    world.broker.ask(Recall("t", "m0", due))
    checkpoint(world)
    copied = states(world)
    world.disk.crash(power_cut=False)
    for name in names(world, "checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.broker.open()
    world.broker.ask(Recall("t", "m1", due))
    checkpoint(world)
    ((path, before),) = states(world).items()
    assert copied[path] != before
    world.disk.crash(power_cut=False)
    replace_file(world.disk, *path.rsplit("/", 1), copied[path])
    world.broker.open()
    assert view(world).pending == 8
    world.clock.advance(4 * DAY_MS)
    world.broker.settle(2_000)
    assert take_all(world) == IDS[2:]


@pytest.mark.parametrize("name", ["delay.idx", "delay.log"])
def test_the_file_of_another_hour_in_the_place_of_one(make_world, name) -> None:
    """Its entries are whole, but due at other times: what waited in the hour was passed over."""
    world = make_world()
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + 2 * HOUR_MS
    send(world, due)
    others = [made(f"other{i}", due + HOUR_MS, body=bytes(99)) for i in range(12)]
    world.broker.ask(SendMessages("t", others))
    checkpoint(world)
    path, other = (each for each in world.disk.names() if each.endswith(name))
    world.disk.crash(power_cut=False)
    replace_file(world.disk, *path.rsplit("/", 1), read_file(world.disk, other))
    world.broker.open()
    world.clock.advance(4 * DAY_MS)
    world.broker.settle(2_000)
    assert set(take_all(world)) == {*IDS, *(f"other{i}" for i in range(12))}
    assert view(world).problems == []


def dropping_world(make_world, keep_bytes: int = 65_536):
    """Retention keeps about so much of the log."""
    world = make_world(segment_bytes=65_536)
    settings = world.broker.settings
    world.broker.settings = settings._replace(retention_bytes=keep_bytes, dedup_ms=0)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def drop(world) -> None:
    """Fill the log, so that its beginning is dropped."""
    if "fill" not in world.broker.shard.topics.by_name:
        world.broker.ask(CreateTopic("fill", TopicType.NORMAL, 1))
    for i in range(8):
        fill = [made(f"n{i}-{j}", topic="fill", body=bytes(500)) for j in range(60)]
        world.broker.ask(SendMessages("fill", fill))
        checkpoint(world)
    assert view(world).log_start > 0


def test_an_older_copy_of_a_queue_that_is_empty_by_now(make_world) -> None:
    """The start left the short file as it was, and every `verify` after it found it."""
    world = dropping_world(make_world)
    world.broker.ask(SendMessages("t", [made(each) for each in IDS]))
    checkpoint(world)
    path = "shard-00/queues/00001-00000/00000000000000000000.cq"
    copied = read_file(world.disk, path)
    world.broker.ask(SendMessages("t", [made(f"later{each}") for each in IDS]))
    drop(world)
    (topic,) = [each for each in world.broker.ask(ListTopics()) if each.name == "t"]
    assert (topic.min_offsets, topic.queue_offsets) == ([20], [20])
    world.disk.crash(power_cut=False)
    replace_file(world.disk, *path.rsplit("/", 1), copied)
    world.broker.open()
    checkpoint(world)
    meta = Meta(FORMAT, world.broker.meta.log_id, 1, "simulated", 65_536)
    replace_file(world.disk, "", "meta", encode_meta(meta))
    assert verify_directory(world.disk).clean
    world.broker.ask(SendMessages("t", [made("next")]))
    assert take_all(world) == ["next"]


def test_an_older_checkpoint_under_the_name_of_the_newest_is_passed_over(make_world) -> None:
    """It asked for segments that retention had dropped, so the start was refused."""
    world = dropping_world(make_world)
    send(world, world.clock.wall_ms() + 2 * HOUR_MS)
    checkpoint(world)
    (name,) = names(world, "checkpoint")
    copied = read_file(world.disk, f"shard-00/checkpoint/{name}")
    drop(world)
    world.disk.crash(power_cut=False)
    newest = names(world, "checkpoint")[-1]
    replace_file(world.disk, "shard-00/checkpoint", newest, copied)
    world.broker.open()
    assert f"checkpoint {newest} is of log position" in " ".join(world.broker.reports)
    assert view(world).pending == 10


def test_older_checkpoints_beside_a_newer_log_are_named_as_what_they_may_be(make_world) -> None:
    """The refusal spoke of a missing segment, and led to a search for what retention had dropped."""
    world = dropping_world(make_world)
    drop(world)
    kept = names(world, "checkpoint")
    copied = {name: read_file(world.disk, f"shard-00/checkpoint/{name}") for name in kept}
    drop(world)
    world.disk.crash(power_cut=False)
    for name in names(world, "checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    for name, content in copied.items():
        replace_file(world.disk, "shard-00/checkpoint", name, content)
    first = names(world, "log")[0]
    with pytest.raises(HorologError, match="recovery row 6") as refused:
        world.broker.open()
    assert f"the first one after it is {first}: if retention has" in refused.value.message
    assert "that checkpoint is an older copy" in refused.value.message


def test_a_start_does_not_go_back_to_a_checkpoint_whose_log_was_dropped(make_world) -> None:
    """An older copy over the directory brought it back; the log seemed to begin where nothing was."""
    world = dropping_world(make_world, 3 * 65_536)
    due = world.clock.wall_ms() + 2 * HOUR_MS
    drop(world)
    send(world, due)
    checkpoint(world)
    parts = ("/checkpoint/", "/hours/")
    copied = {
        path: read_file(world.disk, path)
        for path in world.disk.names()
        if any(part in path for part in parts)
    }
    first, end = view(world).log_start, view(world).log_end
    for i in range(20):
        if names(world, "log")[0] > f"{first:020d}.log":
            break
        fill = made(f"fill{i}", topic="fill", body=bytes(10_000))
        world.broker.ask(SendMessages("fill", [fill]))
        checkpoint(world)
    assert first < view(world).log_start < end
    for name in ("late", "later"):
        world.broker.ask(SendMessages("t", [made(name, due)]))
        checkpoint(world)
    world.disk.crash(power_cut=False)
    for path, content in copied.items():
        replace_file(world.disk, *path.rsplit("/", 1), content)
    world.broker.open()
    world.broker.core.check_invariants()
    assert any("row 12" in each for each in world.broker.reports)
    assert view(world).problems == []
    world.clock.advance(DAY_MS)
    world.broker.settle(2_000)
    assert take_all(world) == [*IDS, "late", "later"]
