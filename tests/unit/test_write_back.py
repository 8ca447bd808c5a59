"""What a checkpoint will sync, the system begins to write before: in pieces, and each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS, KIB, MIB
from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.write_back import WriteBack
from horolog.testing.sim_broker import Answer

PIECE = 256 * KIB


class Files:
    """A delay store whose files are as long as the test says, and a storage that notes what it is asked for."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.asked: list[tuple[str, int, int]] = []
        self.jobs: list[tuple[Callable[[], Any], Callable[[BaseException | None], None]]] = []
        self.failure: BaseException | None = None

    def unsynced(self):
        """As of `DelayStore`."""
        return iter(self.sizes.items())

    def open(self, path: str):
        """As of a storage."""
        if self.failure is not None:
            raise self.failure
        files = self

        class File:
            def begin_write_back(self, offset: int, length: int) -> None:
                files.asked.append((path, offset, length))

            def close(self) -> None:
                pass

        return File()

    def submit(self, job, done) -> None:
        """As of a thread."""
        self.jobs.append((job, done))

    def work(self) -> list[tuple[str, int, int]]:
        """What the thread asks the system for now."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            error: BaseException | None = None
            try:
                job()
            except HorologError as failure:
                error = failure
            done(error)
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def write_back(files) -> WriteBack:
    return WriteBack(files, files, files)


def test_whole_pages_are_written_once_when_the_log_has_grown(files, write_back) -> None:
    files.sizes = {"a": 3 * PIECE + 5, "b": PIECE - 1}
    write_back.begin_if_due(4 * MIB - 1)
    assert files.work() == []
    write_back.begin_if_due(4 * MIB)
    assert files.work() == [("a", 0, 3 * PIECE)]
    files.sizes = {"a": 4 * PIECE - 1, "b": PIECE + 4_095}
    write_back.begin_if_due(8 * MIB)
    assert files.work() == [("b", 0, PIECE)]
    files.sizes = {"a": 4 * PIECE, "b": PIECE + 4_095}
    write_back.begin_if_due(12 * MIB)
    assert files.work() == [("a", 3 * PIECE, PIECE)]


def test_one_job_at_a_time(files, write_back) -> None:
    files.sizes = {"a": PIECE}
    write_back.begin_if_due(4 * MIB)
    files.sizes = {"a": 3 * PIECE}
    write_back.begin_if_due(8 * MIB)
    assert len(files.jobs) == 1
    assert files.work() == [("a", 0, PIECE)]
    write_back.begin_if_due(8 * MIB)
    assert files.work() == [("a", PIECE, 2 * PIECE)]


def test_what_is_gone_or_cannot_be_opened_is_left_to_the_checkpoint(files, write_back) -> None:
    files.sizes = {"a": PIECE}
    files.failure = FileNotFoundError("a")
    write_back.begin_if_due(4 * MIB)
    assert files.work() == []
    files.sizes = {"a": 2 * PIECE}
    files.failure = HorologError(ErrorCode.TOO_MANY_FILES, "open a: too many open files")
    write_back.begin_if_due(8 * MIB)
    assert files.work() == []
    files.sizes, files.failure = {"a": 3 * PIECE}, None
    write_back.begin_if_due(12 * MIB)
    assert files.work() == [("a", 2 * PIECE, PIECE)]


def test_unsynced_are_the_files_that_the_next_checkpoint_syncs(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    made = [
        encode(
            topic="t",
            body=b"x" * 100,
            message_id=f"m{n}",
            type=MessageType.DELAY,
            due_ms=world.clock.wall_ms() + (2 + n % 40) * HOUR_MS,
        )
        for n in range(400)
    ]
    broker.step([Answer(SendMessages("t", made))])
    broker.settle()
    delay = broker.shard.delay
    found = dict(delay.unsynced())
    assert found
    assert {path: world.disk.open(path).size() for path in found} == found
    _, _, near = delay.near.capture()
    far = [path for buffer in delay.far.buffers for path in buffer.sync_paths()]
    assert {*near, *far} == set(found)
    assert not [path for path, _ in delay.unsynced() if path in near]
