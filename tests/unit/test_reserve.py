"""Descriptors that are kept for the broker's own files, and what happens when there is none at all."""

from __future__ import annotations

import asyncio
import errno
import gc
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from horolog.broker import relations
from horolog.broker.life.opening import ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.broker.topics import Topics
from horolog.clock import SimulatedClock, SystemClock
from horolog.delay.far.compaction import FarSettings
from horolog.errors import ErrorCode, HorologError
from horolog.limits import (
    FILES_RESERVE_MAX,
    HOUR_MS,
    MIB,
    QUEUE_FILES_OPEN_MAX,
    RUNS_OPEN_MAX,
)
from horolog.log.queue_unit import UNIT
from horolog.log.segment import SegmentReader, SegmentWriter, Write
from horolog.protocol.commands import (
    CountBy,
    CountPending,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine
from horolog.storage.descriptors import (
    Reserve,
    hard_limit,
    queue_files_max,
    reserve_of,
    runs_open_max,
)
from horolog.storage.disk import Disk
from horolog.storage.mapped import Mapped
from horolog.testing.disk import FaultyDisk


@contextmanager
def all_taken() -> Iterator[int]:
    """Take every descriptor below the soft limit; give how many were free.

    Garbage of earlier tests may hold open files: it is collected first, or it would be in between.
    """
    gc.collect()
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield len(taken)
    finally:
        for fd in taken:
            os.close(fd)


@pytest.fixture
def _limits() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("hard", "kept"), [(64, 32), (256, 64), (1_024, 256), (20_000, 4_096), (1 << 20, 4_096)]
)
def test_how_many_are_kept(hard: int, kept: int) -> None:
    assert reserve_of(hard) == kept
    assert kept <= FILES_RESERVE_MAX


@pytest.mark.usefixtures("_limits")
def test_what_must_be_opened_can_be_when_connections_have_taken_all() -> None:
    reserve = Reserve()
    in_use = len(os.listdir("/dev/fd"))
    soft = reserve.keep(16)
    assert soft <= in_use + 16 + reserve_of(hard_limit())
    with all_taken():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        first = reserve.use(lambda: os.open(os.devnull, os.O_RDONLY))
        assert first >= soft
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
        with pytest.raises(FileNotFoundError):
            reserve.use(lambda: os.open("/nowhere/at/all", os.O_RDONLY))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
        os.close(first)
    reserve.give_up()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard_limit()


@pytest.mark.usefixtures("_limits")
def test_files_of_the_broker_leave_connections_their_room() -> None:
    """Hundreds of queues, and few connections: there were more files than the soft limit, and every connection was reset."""
    reserve = Reserve()
    reserve.keep(16)
    own = [
        reserve.use(lambda: os.open(os.devnull, os.O_RDONLY))
        for _ in range(reserve_of(hard_limit()) * 3 // 4)
    ]
    try:
        with all_taken() as connections:
            assert connections >= 16
    finally:
        for fd in own:
            os.close(fd)
        reserve.give_up()


def test_a_hard_limit_that_was_lowered_later_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`prlimit --nofile` of a running broker; it wanted its own limit back, which the kernel refused, and ended."""
    limits = [(64, 256)]
    reserve = Reserve()

    def set_limits(_: int, new: tuple[int, int]) -> None:
        if new[0] > new[1]:
            raise ValueError("current limit exceeds maximum limit")
        limits[0] = new

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    assert reserve.keep(1_000) == 192

    def opening() -> int:
        if limits[0] == (192, 256):
            limits[0] = (40, 40)
            raise OSError(errno.EMFILE, "Too many open files")
        return 7

    assert reserve.use(opening) == 7
    assert limits[0] == (40, 40)
    reserve.give_up()


@pytest.mark.usefixtures("_limits")
def test_a_file_for_which_there_is_no_descriptor_is_no_failed_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.open("here", create=True).close()
    disk.make_dir("below")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    asked = [
        lambda: disk.open("here"),
        lambda: disk.open("new", create=True),
        lambda: disk.list("below"),
        lambda: disk.sync_dir("below"),
    ]
    with all_taken():
        for ask in asked:
            with pytest.raises(HorologError) as refused:
                ask()
            assert refused.value.code is ErrorCode.TOO_MANY_FILES
            assert refused.value.retriable
            assert not refused.value.fatal
    disk.open("here").close()


def test_messages_wait_in_memory_for_files_that_cannot_be_opened() -> None:
    """As on a full disk: nothing ends, and all is filed when there are descriptors again."""

    def none_left(effect: str) -> None:
        operation, _, path = effect.partition(" ")
        if operation == "create" and "/log/" not in path:
            raise HorologError(
                ErrorCode.TOO_MANY_FILES, f"open {path}: {os.strerror(errno.EMFILE)}"
            )

    async def run() -> None:
        disk = FaultyDisk()
        clock = SystemClock()
        meta = ShardMeta(1, 0, 16 * MIB)
        opened = open_shard(
            disk, "shard-00", meta, ShardSettings(), wall_ms=clock.wall_ms(), mono_ms=0
        )
        engine = Engine(opened, disk, clock)
        await engine.start()
        await engine.submit(CreateTopic("t", TopicType.MIXED, 2))
        disk.on_effect = none_left
        due = clock.wall_ms() + HOUR_MS
        for hour in range(5):
            message = encode(
                topic="t",
                body=b"x",
                message_id=f"m{hour}",
                type=MessageType.DELAY,
                due_ms=due + hour * HOUR_MS,
            )
            await engine.submit(SendMessages("t", [message]))
            await engine.submit(
                SendMessages("t", [encode(topic="t", body=b"x", message_id=f"n{hour}")])
            )
        engine.broker.checkpoints.request()
        assert (await engine.submit(DescribeBroker())).pending == 5
        assert engine.broker.shard.delay.stalled
        assert (await engine.submit(DescribeTopic("t"))).pending == 5
        for asked in (
            CountPending(),
            CountPending("t"),
            CountPending(by=CountBy.DAY),
            CountPending(by=CountBy.TOPIC),
        ):
            assert (await engine.submit(asked)).total == 5, asked
        seconds = await engine.submit(CountPending(hour=due // HOUR_MS + 2))
        assert seconds.rows == [((due + 2 * HOUR_MS) // 1000 * 1000, 1)]
        assert not engine.failed.done()
        disk.on_effect = None
        await engine.checkpoint()
        assert (await engine.submit(CountPending("t"))).total == 5
        assert (await engine.submit(DescribeBroker())).pending == 5
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.usefixtures("_limits")
def test_a_file_that_cannot_be_mapped_is_read(tmp_path: Path) -> None:
    """Also what is written over an end that a full disk had left there."""
    file = Disk(tmp_path).open("a", create=True)
    views = Mapped(file)
    file.write(0, b"abcdef")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    with all_taken():
        with pytest.raises(HorologError, match=r"^map .*/a: Too many open files$") as refused:
            views.mapped(4)
        assert refused.value.code is ErrorCode.TOO_MANY_FILES
        assert bytes(views.view(4)) == b"abcd"
        file.write(4, b"xyz")
        assert bytes(views.view(7)) == b"abcdxyz"
    file.write(7, b"!")
    assert bytes(views.mapped(8)) == b"abcdxyz!"
    views.drop()
    file.close()


def test_a_file_for_which_there_is_no_mapping_is_no_failed_disk(tmp_path, monkeypatch) -> None:
    file = Disk(tmp_path).open("a", create=True)
    file.write(0, b"abcdef")

    def none_left(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", none_left)
    with pytest.raises(HorologError, match=r"^map .*/a: Cannot allocate memory$") as refused:
        file.view()
    assert not refused.value.fatal
    file.close()


@pytest.mark.usefixtures("_limits")
def test_messages_are_filed_and_handed_over_when_nothing_can_be_mapped(tmp_path: Path) -> None:
    """It ended the broker: "failed map …/delay.idx: Too many open files"."""

    async def run() -> None:
        engine = await open_engine(tmp_path, clock="simulated")
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        due_ms = engine.clock.wall_ms() + HOUR_MS

        async def send(name: str) -> None:
            message = encode(
                topic="t", body=b"x", message_id=name, type=MessageType.DELAY, due_ms=due_ms
            )
            await engine.submit(SendMessages("t", [message]))

        await send("before")
        await engine.until_quiet()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
        with all_taken():
            for i in range(3):
                await send(f"meanwhile{i}")
            assert await engine.submit(CountPending("t", due_ms, due_ms + 1))
            assert isinstance(engine.clock, SimulatedClock)
            engine.clock.advance(HOUR_MS)
            await engine.until_quiet()
            assert (await engine.submit(DescribeTopic("t"))).pending == 0
        assert engine.broker.shard.topics.by_name["t"].queues[0].length == 4
        assert await engine.checkpoint()
        assert not engine.failed.done()
        await engine.stop()

    asyncio.run(run())


@pytest.mark.usefixtures("_limits")
def test_many_queues_have_few_files_open(tmp_path: Path) -> None:
    """Each kept its own until the end: at a checkpoint of 480 queues there was no descriptor for anything else."""
    disk = Disk(tmp_path)
    topics = Topics(disk, "queues")
    most = topics.open_queues.most = 64
    queues = topics.put(1, "t", TopicType.NORMAL, 480).queues
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + most + 8, hard))
    for round_, queue in product(range(2), queues):
        units = np.zeros(3, UNIT)
        units["position"] = 3 * queues.index(queue) + np.arange(3)
        queue.append(units)
        assert queue.flush(), (round_, "no descriptor, so it stayed in memory")
        queue.check_invariants()
    for at, queue in enumerate(queues):
        assert queue.read(3, 3)["position"].tolist() == [3 * at, 3 * at + 1, 3 * at + 2]
        assert len(os.listdir("/dev/fd")) <= before + most + 1
        queue.check_invariants()
    for queue in queues:
        queue.close()
    assert len(os.listdir("/dev/fd")) == before


def test_idle_files_are_closed_and_opened_again(tmp_path: Path, make_world) -> None:
    """Files that nobody used kept those that runs needed, and buffers gathered for good."""
    world = with_runs(tmp_path, make_world)
    shard = world.broker.shard
    world.broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="n")]))
    world.broker.settle()
    queue = next(queue for _, _, queue in shard.topics.all_queues() if queue.length)
    assert queue.flush()
    assert len(queue.read(0, 1)) == 1
    for name in shard.delay.far.runs:
        shard.delay.far.open_run(name)
    shard.close_idle()
    assert not len(shard.topics.open_queues)
    assert len(queue.read(0, 1)) == 1
    assert shard.log.record(int(queue.read(0, 1)["position"][0]))
    relations.check_shard(shard)


def test_a_queue_in_use_keeps_its_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    topics = Topics(disk, "queues")
    topics.open_queues.most = 8
    busy, *others = topics.put(1, "t", TopicType.NORMAL, 40).queues
    busy.append(np.zeros(3, UNIT))
    busy.flush()
    opened = []
    monkeypatch.setattr(os, "open", partial(noted, opened, os.open))
    for queue in others:
        for each in (queue, busy):
            each.append(np.zeros(3, UNIT))
            assert each.flush()
            assert len(each.read(0, 3)) == 3
    assert not [path for path in opened if "00001-00000" in str(path)]
    for queue in (busy, *others):
        queue.close()


@pytest.mark.parametrize(
    ("hard", "queues", "runs"),
    [(128, 32, 16), (256, 32, 16), (2_048, 256, 128), (1 << 20, 1_024, 128)],
)
def test_queues_and_runs_leave_a_part_of_the_reserve(monkeypatch, hard, queues, runs) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (hard, hard))
    assert (queue_files_max(), runs_open_max()) == (queues, runs)
    assert queues + runs < reserve_of(hard)
    assert queues <= QUEUE_FILES_OPEN_MAX
    assert runs <= RUNS_OPEN_MAX


@pytest.mark.usefixtures("_limits")
def test_a_segment_is_opened_in_the_place_of_others(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.make_dir("log")
    writer = SegmentWriter(disk, "log", 1_024)
    writer.write([Write(0, b"a" * 1_024), Write(1_024, b"b")])
    writer.close()
    reader = SegmentReader(disk, "log", 1_024)
    assert reader.bytes_at(0, 1) == b"a"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    with all_taken():
        assert reader.bytes_at(1_024, 1) == b"b"
        assert reader.bytes_at(0, 1) == b"a"
        reader.close()
        with all_taken(), pytest.raises(HorologError) as refused:
            reader.bytes_at(0, 1)
    assert refused.value.code is ErrorCode.TOO_MANY_FILES


def with_runs(tmp_path: Path, make_world):
    """A broker on the real disk with messages in several runs."""
    world = make_world(root=tmp_path)
    world.broker.settings = world.broker.settings._replace(far=FarSettings(buffer_bytes=4_096))
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    for i in range(40):
        message = encode(
            topic="t",
            body=bytes(1_000),
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=world.clock.wall_ms() + 72 * HOUR_MS,
        )
        world.broker.ask(SendMessages("t", [message]))
        world.broker.settle()
    return world


@pytest.mark.usefixtures("_limits")
def test_a_run_is_opened_in_the_place_of_others(tmp_path: Path, make_world) -> None:
    """A run that could not be mapped ended the broker, which had others mapped that nobody read."""
    world = with_runs(tmp_path, make_world)
    far = world.broker.shard.delay.far
    first, *others = far.runs
    assert others
    for name in others:
        far.open_run(name)
    far.unmap_file(first)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    with all_taken():
        assert far.open_run(first).info == far.runs[first].info
    far.check_invariants()


@pytest.mark.usefixtures("_limits")
def test_a_run_that_cannot_be_opened_now_is_not_damaged(tmp_path: Path, make_world) -> None:
    """Its messages were quarantined until the next start, and miscounted after that."""
    world = with_runs(tmp_path, make_world)
    far = world.broker.shard.delay.far
    due_ms = world.clock.wall_ms() + 72 * HOUR_MS
    assert world.broker.ask(Recall("t", "m0", due_ms)).status is RecallStatus.CANCELLED
    run = next(run for run in far.runs.values() if run.counts.gone_by)
    gone = dict(run.counts.gone_by)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    far.close_runs()
    with all_taken():
        with pytest.raises(HorologError) as refused:
            world.broker.ask(CountPending("t"))
        assert refused.value.code is ErrorCode.TOO_MANY_FILES
        world.clock.advance(2_000)
        world.broker.ask(DescribeBroker())
        assert run.capture().gone_by == gone
    assert not far.problems
    assert world.broker.ask(CountPending("t")).total == 39
    assert world.broker.ask(DescribeBroker()).pending == 39
    relations.check_shard(world.broker.shard)


def noted(opened: list[object], opening: Callable[..., int], path: object, *rest: int) -> int:
    opened.append(path)
    return opening(path, *rest)
