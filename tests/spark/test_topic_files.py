"""A topic from its files says what the broker says: with and without checkpoints, over retention, restarts, holes."""

from __future__ import annotations

import json
import os
import random

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    MessageType,
    ReadQueue,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.spark.topic_files import TopicFiles
from horolog.spark.topic_parts import read_part

SEGMENT = 65_536


@pytest.fixture
def world(make_world, tmp_path):
    """A broker on a real directory that keeps an hour of its log."""
    made = make_world(root=tmp_path, segment_bytes=SEGMENT)
    made.root = tmp_path
    made.broker.settings = made.broker.settings._replace(retention_ms=HOUR_MS)
    made.broker.open()
    meta = {"format": 1, "shards": 1, "clock": "simulated", "segment_bytes": SEGMENT}
    meta["log_id"] = f"{made.broker.meta.log_id:016x}"
    (tmp_path / "meta").write_text(json.dumps(meta))
    made.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    return made


def send(world, first: int, count: int, *, in_ms: int = 0, topic: str = "t") -> None:
    due = world.clock.wall_ms() + in_ms if in_ms else 0
    kind = MessageType.DELAY if due else MessageType.NORMAL
    for number in range(first, first + count, 20):
        numbers = range(number, min(number + 20, first + count))
        made = [
            encode(
                topic=topic,
                body=b"%d" % each * (each % 50 + 1),
                message_id=f"m{each}",
                type=kind,
                due_ms=due,
            )
            for each in numbers
        ]
        world.broker.ask(SendMessages(topic, made))


def commit(world) -> int:
    return world.broker.ask(DescribeBroker()).commit_position


def files_of(world, topic: str = "t") -> TopicFiles:
    return TopicFiles(str(world.root), topic, commit(world))


def from_files(files: TopicFiles, queue: int, first: int, stop: int) -> list[bytes]:
    return [
        record
        for records in read_part(files.part(queue, first, stop))
        for record in records.as_bytes()
    ]


def same(world) -> int:
    """Compare every queue; gives how many messages there are."""
    files, view = files_of(world), world.broker.ask(DescribeTopic("t"))
    bounds = files.bounds()
    assert [bounds[queue].stop for queue in sorted(bounds)] == view.queue_offsets
    total = 0
    for queue, (first, stop) in bounds.items():
        kept = view.min_offsets[queue]
        assert first <= kept  # the checkpoint may be older than what was dropped since
        asked = world.broker.ask(ReadQueue("t", queue, kept, 100_000, 1 << 30)).records
        assert from_files(files, queue, kept, stop) == asked
        middle = (kept + stop) // 2
        assert from_files(files, queue, middle, stop) == asked[middle - kept :]
        total += len(asked)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_files_say_what_the_broker_says(world, seed: int) -> None:
    chance = random.Random(seed)
    world.broker.ask(CreateTopic("other", TopicType.MIXED, 1))
    sent = 500  # more than a segment
    send(world, 0, sent)
    for _ in range(40):
        match chance.randrange(7):
            case 0 | 1:
                count = chance.randrange(1, 60)
                send(world, sent, count)
                sent += count
            case 2:
                send(world, sent, 5, in_ms=chance.randrange(1, 60_000))
                sent += 5
            case 3:
                send(world, 0, 7, topic="other")
            case 4:
                world.clock.advance(chance.randrange(1, 60_000))
                world.broker.settle()
            case 5:
                checkpoint(world)
            case 6:
                world.reopen()
        same(world)
    world.clock.advance(2 * HOUR_MS)
    for _ in range(3):
        send(world, sent, 100)
        sent += 100
        checkpoint(world)
        same(world)
    assert max(world.broker.ask(DescribeTopic("t")).min_offsets) > 0  # retention was at work
    assert same(world) > 0


def test_a_topic_and_queues_that_no_checkpoint_knows(world) -> None:
    checkpoint(world)
    send(world, 0, 30)
    world.broker.ask(CreateTopic("new", TopicType.MIXED, 1))
    world.broker.ask(ChangeTopic("t", 4))
    send(world, 30, 30)
    send(world, 0, 3, topic="new")
    assert same(world) == 60
    assert sum(stop for _, stop in files_of(world, "new").bounds().values()) == 3
    with pytest.raises(HorologError) as refused:
        files_of(world, "nope")
    assert refused.value.code is ErrorCode.TOPIC_NOT_FOUND


def test_what_is_not_committed_is_not_seen(world) -> None:
    send(world, 0, 10)
    position = commit(world)
    send(world, 10, 10)
    files = TopicFiles(str(world.root), "t", position)
    assert sum(stop for _, stop in files.bounds().values()) == 10
    whole = TopicFiles(str(world.root), "t", None)
    assert sum(stop for _, stop in whole.bounds().values()) == 20
    with pytest.raises(HorologError, match="is it the directory of this broker"):
        TopicFiles(str(world.root), "t", position + 10_000)


def test_a_changed_byte_is_reported(world) -> None:
    send(world, 0, 20)
    checkpoint(world)
    files = files_of(world)
    segment = next((world.root / "shard-00" / "log").iterdir())
    content = bytearray(segment.read_bytes())
    at = content.index(b"\xda\xa3\x20\xa7") - 4 + 20  # its queue offset
    content[at] ^= 3
    segment.write_bytes(content)
    with pytest.raises(
        HorologError, match=r"of queue 0 cannot be read: log position \d+ is damaged"
    ):
        [from_files(files, queue, 0, stop) for queue, (_, stop) in files.bounds().items()]


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_segment_that_was_cut_short_is_damage(world, share) -> None:
    send(world, 0, 600)
    checkpoint(world)
    files = files_of(world)
    stop = files.bounds()[0].stop
    part = files.part(0, 0, stop)
    first = min((world.root / "shard-00" / "log").iterdir())
    os.truncate(first, int(first.stat().st_size * share))
    with pytest.raises(HorologError, match=r"of queue 0 cannot be read: log position \d+ is damag"):
        list(read_part(part))
    rest = [n for records in read_part(part._replace(lossy=True)) for n in records.queue_offsets]
    assert 0 < len(rest) < stop
    assert rest[-1] == stop - 1


def test_a_segment_that_is_dropped_while_it_is_read(world) -> None:
    send(world, 0, 600)
    checkpoint(world)
    files = files_of(world)
    stop = files.bounds()[0].stop
    part = files.part(0, 0, stop)
    segments = sorted((world.root / "shard-00" / "log").iterdir())
    segments[0].unlink()
    with pytest.raises(HorologError, match="is older than the retention") as refused:
        list(read_part(part))
    assert refused.value.code is ErrorCode.NOT_FOUND
    rest = [n for records in read_part(part._replace(lossy=True)) for n in records.queue_offsets]
    assert 0 < len(rest) < stop
    assert rest == list(range(stop - len(rest), stop))


def test_times_are_found_by_halving(world) -> None:
    marks = []
    for number in range(5):
        send(world, number * 10, 10)
        marks.append(world.clock.wall_ms())
        world.clock.advance(1_000)
    checkpoint(world)
    files = files_of(world)
    for queue, (first, stop) in files.bounds().items():
        times = [files.store_ms(queue, offset) for offset in range(first, stop)]
        assert times == sorted(times)
        assert set(times) == set(marks)
        assert files.store_ms(queue, stop) == -1


@pytest.mark.parametrize("lossy", [False, True])
def test_a_task_that_sees_another_directory_does_not_call_it_loss(world, lossy) -> None:
    """At the same path on another disk; with failOnDataLoss=false its rows would just have been left out."""
    send(world, 0, 40)
    part = files_of(world).part(0, 0, 5)._replace(lossy=lossy)
    assert sum(len(records) for records in read_part(part)) == 5
    meta = json.loads((world.root / "meta").read_text())
    (world.root / "meta").write_text(json.dumps(meta | {"log_id": f"{1:016x}"}))
    with pytest.raises(HorologError, match="another data directory for this task") as refused:
        list(read_part(part))
    assert refused.value.code is ErrorCode.DIRECTORY_FOREIGN
