"""Salvage: a log that a start refuses is made whole without what is damaged, and what follows it fits (P2, P3)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
from damaged_log import SEGMENT, DamagedFrames, damage_log, open_directory
from worlds import checkpoint, killed_at, refused_start, take_all

from horolog.broker.life.facts import ShardMeta
from horolog.broker.life.salvage import salvage, survey
from horolog.cli.main import run
from horolog.errors import ErrorCode, HorologError
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.record import Kind, kinds_of, offsets_of
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    MessageType,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.transaction_commands import CheckTransactions, SendHalf
from horolog.storage.api import replace_file
from horolog.storage.disk import Disk
from horolog.verify.directory import verify_directory

LOG = "shard-00/log/00000000000000000000.log"
SHARD = "shard-00"
DEADLINE_S = 60.0


def meta_of(world) -> ShardMeta:
    return world.broker.meta


def send(world, ids: list[str], *, in_ms: int = 0, topic: str = "t") -> None:
    now = world.clock.wall_ms()
    kind = MessageType.DELAY if in_ms else MessageType.NORMAL
    messages = [
        encode(topic=topic, body=b"x" * 50, message_id=i, type=kind, due_ms=in_ms and now + in_ms)
        for i in ids
    ]
    world.broker.ask(SendMessages(topic, messages))
    world.clock.advance(1)


def frames(world) -> list[tuple[FrameHeader, list[Kind]]]:
    """The frames of the first segment and what they hold."""
    content = world.disk.open(LOG).read(0, world.disk.open(LOG).size())
    found, at = [], 0
    while (header := parse(content, at)) is not None:
        body = content[at + HEADER_BYTES : header.end]
        kinds = kinds_of(body, offsets_of(body, header.count)).tolist() if header.count else []
        found.append((header, [Kind(kind) for kind in kinds]))
        at = header.end
    return found


def frame_with(world, kind: Kind, nth: int = 0) -> FrameHeader:
    return [header for header, kinds in frames(world) if kind in kinds][nth]


def quiet(world) -> None:
    """The log states that all of it is durable."""
    world.clock.advance(200)
    world.broker.settle()


def salvaged(world) -> list[tuple[int, int]]:
    """Salvage, and start; gives the stretches that were given up."""
    found = survey(world.disk, SHARD, meta_of(world))
    salvage(world.disk, SHARD, meta_of(world), found)
    assert not survey(world.disk, SHARD, meta_of(world)).lost
    world.reopen()
    return [(lost.first, lost.stop) for lost in found.lost]


@pytest.fixture
def sent(world):
    """A topic with one queue; its messages come one frame after the other."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def test_a_whole_log_has_nothing_to_salvage(sent) -> None:
    send(sent, ["a"])
    quiet(sent)
    found = survey(sent.disk, SHARD, meta_of(sent))
    assert not found.lost
    assert found.end == frames(sent)[-1][0].end


@pytest.mark.parametrize("where", ["header", "body"])
def test_one_flipped_bit_costs_one_frame(sent, where) -> None:
    for i in range(6):
        send(sent, [f"m{i}"])
    quiet(sent)
    header = frame_with(sent, Kind.MESSAGE, 2)
    sent.disk.flip(LOG, header.base + (9 if where == "header" else HEADER_BYTES + 100), 3, 6)
    assert "recovery row 4" in refused_start(sent).message
    (lost,) = survey(sent.disk, SHARD, meta_of(sent)).lost
    assert (lost.first, lost.stop) == (header.base, header.end)
    assert lost.records == (1 if where == "body" else -1)
    assert 0 < lost.after_ms <= lost.before_ms
    before = sent.disk.open(LOG).read(header.base, header.end - header.base)
    assert salvaged(sent) == [(header.base, header.end)]
    kept = f"{SHARD}/salvaged/{header.base:020d}.bytes"
    assert sent.disk.open(kept).read(0, 1 << 20) == before
    assert take_all(sent) == ["m0", "m1", "m3", "m4", "m5"]
    problems = sent.broker.ask(DescribeBroker()).problems
    assert any("given up by a salvage" in text and kept in text for text in problems)


def test_what_was_given_up_is_a_problem_until_its_bytes_are_removed(sent) -> None:
    send(sent, ["a"])
    send(sent, ["b"])
    quiet(sent)
    header = frame_with(sent, Kind.MESSAGE)
    sent.disk.flip(LOG, header.base + 80, 1, 4)
    salvaged(sent)
    checkpoint(sent)
    sent.reopen()
    assert sent.broker.ask(DescribeBroker()).problems
    sent.disk.remove(f"{SHARD}/salvaged/{header.base:020d}.bytes")
    sent.reopen()
    assert not [p for p in sent.broker.ask(DescribeBroker()).problems if "salvage" in p]


def test_a_topic_whose_record_is_lost_is_made_from_its_messages(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.DELAY, 4))
    send(world, [f"m{i}" for i in range(8)], in_ms=60_000)
    quiet(world)
    world.disk.flip(LOG, frame_with(world, Kind.TOPIC).base + 70, 1, 4)
    salvaged(world)
    assert world.broker.ask(DescribeTopic("t")).type is TopicType.MIXED
    world.clock.advance(60_000)
    world.broker.settle()
    assert sorted(take_all(world)) == [f"m{i}" for i in range(8)]
    assert world.broker.ask(CreateTopic("other", TopicType.MIXED, 1))


def test_a_lost_hand_over_is_done_again(sent) -> None:
    send(sent, ["a", "b"], in_ms=1_000)
    sent.clock.advance(1_000)
    quiet(sent)
    send(sent, ["later"])
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.HAND_OVER).base + 90, 1, 4)
    salvaged(sent)
    sent.broker.settle()
    assert sorted(take_all(sent)) == ["a", "b", "later"]


def test_a_hand_over_of_what_is_lost_is_still_there(sent) -> None:
    send(sent, ["a", "b"], in_ms=1_000)
    send(sent, ["c"], in_ms=1_000)
    sent.clock.advance(1_000)
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.SCHEDULED).base + 90, 1, 4)
    salvaged(sent)
    sent.broker.settle()
    assert take_all(sent) == ["a", "b", "c"]


def test_acks_of_what_is_lost_do_not_hide_what_comes(sent) -> None:
    """Offsets that were acknowledged and then lost stay consumed, and no new message gets one of them (P2)."""
    send(sent, ["a", "b"])
    taken = sent.broker.ask(Receive("g", "t", 0, "*", 32, 60_000, False, 0, "c")).messages
    sent.broker.ask(Ack("g", "t", [message.receipt_handle for message in taken]))
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.MESSAGE).base + 90, 1, 4)
    salvaged(sent)
    send(sent, ["new"])
    assert take_all(sent, "g") == ["new"]
    assert take_all(sent, "other") == ["new"]


def test_a_lost_group_and_its_progress_are_passed_over(sent) -> None:
    send(sent, ["a", "b"])
    take_all(sent, "g")
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.GROUP).base + 66, 1, 4)
    salvaged(sent)
    assert take_all(sent, "g") == ["a", "b"], "at least once"


def test_a_recall_of_what_is_lost_is_passed_over(sent) -> None:
    due = sent.clock.wall_ms() + 60_000
    send(sent, ["a"], in_ms=60_000)
    send(sent, ["b"], in_ms=60_000)
    assert sent.broker.ask(Recall("t", "a", due)).status is RecallStatus.CANCELLED
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.SCHEDULED).base + 90, 1, 4)
    salvaged(sent)
    sent.clock.advance(60_001)
    sent.broker.settle()
    assert take_all(sent) == ["b"]


def test_checks_of_a_transaction_after_what_is_lost_are_counted(sent) -> None:
    send(sent, ["lost"])
    half = encode(topic="t", body=b"x", message_id="half", type=MessageType.TRANSACTION)
    (position,) = sent.broker.ask(SendHalf("t", [half])).origins
    sent.broker.ask(CheckTransactions((position, position)))  # one record that has it twice
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.MESSAGE).base + HEADER_BYTES + 100, 3, 6)
    assert "recovery row 4" in refused_start(sent).message
    salvaged(sent)
    assert sent.broker.shard.halves.open[position].checks == 2
    (check,) = sent.broker.ask(CheckTransactions((position,)))
    assert check.checks == 3


def test_the_end_of_the_log_may_be_lost(sent) -> None:
    """Nothing intact follows: the checkpoint says how far the log went (row 5)."""
    send(sent, ["a", "b"], in_ms=60_000)
    checkpoint(sent)
    size = sent.disk.open(LOG).size()
    sent.disk.open(LOG).truncate(200)
    sent.disk.open(LOG).allocate(size)
    assert "recovery row 5" in refused_start(sent).message
    assert salvaged(sent)
    send(sent, ["c"], in_ms=60_000)
    sent.reopen()
    sent.clock.advance(60_000)
    sent.broker.settle()
    assert take_all(sent) == ["a", "b", "c"]


def test_a_missing_segment_is_given_up(sent) -> None:
    ids = [f"m{i}" for i in range(900)]
    for first in range(0, 900, 100):
        send(sent, ids[first : first + 100], in_ms=3_600_000)
    checkpoint(sent)
    logs = sent.disk.list(f"{SHARD}/log")
    assert len(logs) >= 4
    sent.disk.remove(f"{SHARD}/log/{logs[1]}")
    assert "recovery row 6" in refused_start(sent).message
    (lost,) = salvaged(sent)
    assert lost == (65_536, 131_072)
    listed = [p for p in sent.broker.ask(DescribeBroker()).problems if "given up by a salvage" in p]
    assert len(listed) == 1, "also below the checkpoint, where no replay comes by"
    assert f"log positions {lost[0]} to {lost[1]} said" in listed[0]
    checkpoint(sent)
    sent.reopen()
    assert listed[0] in sent.broker.ask(DescribeBroker()).problems
    sent.clock.advance(3_600_000)
    sent.broker.settle()
    assert sorted(take_all(sent)) == sorted(ids), "hours have them"


def test_a_place_below_the_checkpoint_is_a_problem_until_its_bytes_are_removed(sent) -> None:
    """Health was green after a salvage, and nobody was told what was lost, until somebody read there."""
    send(sent, ["a"])
    send(sent, ["b"])
    header = frame_with(sent, Kind.MESSAGE)
    checkpoint(sent)
    sent.disk.flip(LOG, header.base + 80, 1, 4)
    assert salvaged(sent) == [(header.base, header.end)]
    assert [p for p in sent.broker.ask(DescribeBroker()).problems if "given up" in p]
    kept = f"{SHARD}/salvaged/{header.base:020d}.bytes"
    before = sent.disk.open(kept).read(0, 1 << 20)
    sent.disk.remove(kept)
    sent.reopen()
    assert not [p for p in sent.broker.ask(DescribeBroker()).problems if "given up" in p]
    # An intact frame stands at that position: the file alone says nothing.
    other = frame_with(sent, Kind.MESSAGE).base
    replace_file(sent.disk, f"{SHARD}/salvaged", f"{other:020d}.bytes", before)
    sent.reopen()
    assert not [p for p in sent.broker.ask(DescribeBroker()).problems if "given up" in p]


def test_a_segment_of_another_log_is_not_given_up(world, make_world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    other = make_world()
    other.broker.meta = other.broker.meta._replace(log_id=1)
    other.broker.open()
    content = other.disk.open(LOG).read(0, 65_536)
    world.disk.open(LOG).write(0, content)
    with pytest.raises(HorologError, match="belongs to another log") as caught:
        survey(world.disk, SHARD, meta_of(world))
    assert caught.value.code is ErrorCode.DIRECTORY_FOREIGN


@pytest.mark.parametrize("nth", range(0, 14, 2))
def test_a_salvage_that_is_killed_can_be_done_again(sent, nth) -> None:
    for i in range(4):
        send(sent, [f"m{i}"])
    quiet(sent)
    sent.disk.flip(LOG, frame_with(sent, Kind.MESSAGE, 1).base + 80, 1, 4)
    found = survey(sent.disk, SHARD, meta_of(sent))
    with killed_at(sent.disk, nth):
        salvage(sent.disk, SHARD, meta_of(sent), found)
    sent.disk.crash(power_cut=True)
    if survey(sent.disk, SHARD, meta_of(sent)).lost:
        salvaged(sent)
    else:
        sent.reopen()
    assert take_all(sent) == ["m0", "m2", "m3"]


@pytest.mark.parametrize("seed", range(8))
def test_any_damaged_frame_can_be_salvaged(world, seed) -> None:
    """Whatever a frame held: after a salvage the broker serves, its invariants hold, and sends and receives go on."""
    random = Random(seed)
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 2))
    for i in range(12):
        topic = random.choice("tu")
        send(
            world,
            [f"{i}.{j}" for j in range(3)],
            in_ms=random.choice([0, 0, 5, 90_000]),
            topic=topic,
        )
        if random.random() < 0.5:
            got = world.broker.ask(Receive("g", topic, -1, "*", 4, 20, False, 0, "c")).messages
            acked = [message.receipt_handle for message in got[:2]]
            if acked:
                world.broker.ask(Ack("g", topic, acked))
        world.clock.advance(random.randrange(30))
        world.broker.settle()
        if random.random() < 0.2:
            checkpoint(world)
    quiet(world)
    whole = frames(world)
    for header, _ in random.sample(whole, 3):
        at = header.base + random.randrange(header.end - header.base)
        world.disk.flip(LOG, at, *random.sample(range(8), 2))
    found = survey(world.disk, SHARD, meta_of(world))
    salvage(world.disk, SHARD, meta_of(world), found)
    for _ in range(2):
        world.reopen()
        world.broker.core.check_invariants()
    for topic in ("t", "u"):
        if topic not in world.broker.shard.topics.by_name:
            world.broker.ask(CreateTopic(topic, TopicType.MIXED, 2))
    send(world, ["new"], in_ms=90_000)
    world.clock.advance(200_000)
    world.broker.settle()
    assert "new" in take_all(world, "after")
    checkpoint(world)
    world.reopen()
    world.broker.core.check_invariants()


# --- the command ------------------------------------------------------------------------------------


def damage_without_checkpoints(data_dir: Path) -> DamagedFrames:
    """The whole log is read at the next start, and a message in it is damaged."""
    for checkpoint_file in (data_dir / "shard-00/checkpoint").iterdir():
        checkpoint_file.unlink()
    return damage_log(data_dir, "body", 0.5)


def test_the_command_lists_first_and_gives_up_on_request(data_dir, capsys) -> None:
    damage = damage_without_checkpoints(data_dir)
    before = {path: path.read_bytes() for path in (data_dir / "shard-00/log").iterdir()}
    assert run(["salvage", str(data_dir)]) == 6
    shown = capsys.readouterr().out
    assert f"{damage.first}  " in shown
    assert "Nothing was changed" in shown
    (line,) = [
        line for line in shown.splitlines() if line.split()[1:2] in (["MESSAGE"], ["HANDED"])
    ]
    assert " t m" in line
    assert line.endswith("BAD"), "its body is what is damaged"
    assert {path: path.read_bytes() for path in before} == before

    async def start() -> list[str]:
        engine = await open_directory(data_dir)
        try:
            return (await engine.submit(DescribeBroker())).problems
        finally:
            await engine.stop()

    with pytest.raises(HorologError, match="`horolog salvage` says what would be lost"):
        asyncio.run(start())
    assert run(["salvage", str(data_dir), "--yes", "--json"]) == 0
    (lost,) = json.loads(capsys.readouterr().out)["lost"]
    assert (lost["first"], lost["bytes"]) == (damage.first, damage.bytes)
    assert run(["salvage", str(data_dir)]) == 0
    assert "there is nothing to salvage" in capsys.readouterr().out
    assert any("given up by a salvage" in text for text in asyncio.run(start()))
    found = verify_directory(Disk(data_dir, read_only=True))
    assert (found.holes, found.hole_bytes) == (1, damage.bytes)
    assert not found.clean, "as long as health is red"
    (kept,) = (data_dir / "shard-00/salvaged").iterdir()
    assert run(["inspect", str(kept)]) == 0
    assert line.split()[4] in capsys.readouterr().out
    kept.unlink()
    assert not asyncio.run(start())
    found = verify_directory(Disk(data_dir, read_only=True))
    assert found.clean, found.findings.kept
    assert any("were given up by a salvage" in note for note in found.findings.notes)
    assert run(["inspect", str(data_dir / LOG), "--limit", "10000"]) == 0
    assert "given up by a salvage" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["nothing", "in use"])
def test_the_command_refuses_what_is_no_stopped_brokers_directory(tmp_path, capsys, what) -> None:
    data_dir = tmp_path / "data"
    if what == "nothing":
        assert run(["salvage", str(data_dir)]) == 3
        assert "is not a data directory" in capsys.readouterr().err
        return

    async def meanwhile() -> int:
        engine = await open_directory(data_dir)
        try:
            return run(["salvage", str(data_dir), "--yes"])
        finally:
            await engine.stop()

    assert asyncio.run(asyncio.wait_for(meanwhile(), DEADLINE_S)) == 4
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.parametrize("at", [b'"format"', b"2", b'"log_id": "'])
def test_a_damaged_meta_is_written_again_from_the_log(data_dir, capsys, at) -> None:
    """What cannot be read, another segment size, another log id."""
    meta = data_dir / "meta"
    whole = meta.read_bytes()
    start = whole.rindex(b'": 2') + 3 if at == b"2" else whole.index(at) + len(at)
    damaged = whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1 :]
    meta.write_bytes(damaged)
    assert run(["salvage", str(data_dir)]) == 6
    shown = capsys.readouterr().out
    assert "it must be: log id" in shown
    assert "simulated clock, segments of 262144 bytes" in shown
    assert meta.read_bytes() == damaged
    assert run(["salvage", str(data_dir), "--yes"]) == 0
    assert meta.read_bytes() == whole
    assert (data_dir / "shard-00/salvaged/meta").read_bytes() == damaged
    assert run(["salvage", str(data_dir)]) == 0
    assert verify_directory(Disk(data_dir, read_only=True)).clean


def test_a_meta_that_is_gone_is_written_again(data_dir, capsys) -> None:
    """An empty file in its place was; without any, start and salvage said only that there was none."""
    meta = data_dir / "meta"
    whole = meta.read_bytes()
    meta.unlink()
    assert run(["verify", str(data_dir)]) == 3
    assert "`horolog salvage` writes" in capsys.readouterr().err
    with pytest.raises(HorologError, match=r"without meta \(found .*\); `horolog salvage` writes"):
        asyncio.run(open_directory(data_dir))
    assert run(["salvage", str(data_dir)]) == 6
    assert "meta is gone; it must be: log id" in capsys.readouterr().out
    assert not meta.exists()
    (data_dir / "restoring").touch()
    assert run(["salvage", str(data_dir), "--yes"]) == 3, "a restore that was interrupted"
    (data_dir / "restoring").unlink()
    assert run(["salvage", str(data_dir), "--yes"]) == 0
    assert meta.read_bytes() == whole
    assert not (data_dir / "shard-00/salvaged").exists()
    assert verify_directory(Disk(data_dir, read_only=True)).clean


def test_a_simulated_clock_that_was_never_moved_stays_one(data_dir, capsys) -> None:
    """It leaves no file, so salvage took it for the machine's clock, and the next start was refused."""
    (data_dir / "clock").unlink()
    meta = data_dir / "meta"
    whole = meta.read_bytes()
    assert run(["salvage", str(data_dir)]) == 0
    assert "meta says something else" not in capsys.readouterr().out
    meta.write_bytes(whole.replace(b'": 2', b'": 3'))
    assert run(["salvage", str(data_dir), "--yes"]) == 0
    assert meta.read_bytes() == whole


def test_a_meta_that_nothing_can_replace_is_refused(data_dir, capsys) -> None:
    (data_dir / "meta").write_bytes(b"{")
    for segment in (data_dir / "shard-00/log").iterdir():
        segment.write_bytes(bytes(SEGMENT))
    for checkpoint_file in (data_dir / "shard-00/checkpoint").iterdir():
        checkpoint_file.unlink()
    assert run(["salvage", str(data_dir), "--yes"]) == 1
    assert "the log does not say what was in it" in capsys.readouterr().err
