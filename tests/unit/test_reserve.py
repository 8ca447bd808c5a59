"""Descriptors that are kept for the broker's own files, and what happens when there is none at all."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from horolog.broker.life.opening import ShardMeta, open_shard
from horolog.broker.settings import Settings
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import FILES_RESERVE_MAX, FILES_RESERVE_MIN, HOUR_MS, MIB
from horolog.protocol.commands import (
    CountBy,
    CountPending,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.storage.descriptors import Reserve, hard_limit, reserve_of
from horolog.storage.disk import Disk
from horolog.testing.disk import FaultyDisk


@contextmanager
def all_taken() -> Iterator[None]:
    """Every descriptor below the soft limit is in use."""
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
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
    assert soft <= in_use + 16 + FILES_RESERVE_MIN
    with all_taken():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        first = reserve.opened(lambda: os.open(os.devnull, os.O_RDONLY))
        assert first >= soft
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
        with pytest.raises(FileNotFoundError):
            reserve.opened(lambda: os.open("/nowhere/at/all", os.O_RDONLY))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
        os.close(first)
    reserve.give_up()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard_limit()


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
        opened = open_shard(disk, "shard-00", meta, Settings(), wall_ms=clock.wall_ms(), mono_ms=0)
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
        engine.broker.checkpoints.want()
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
