"""A file that belongs to another user: the start is refused, names it, and takes nothing for damaged (P2)."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest
from directories import FAR, SEGMENT, make

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import DescribeBroker
from horolog.server.open_broker import open_engine

PARTS = ("log", "checkpoint", "hours", "runs", "queues", "keys")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("left") / "data"
    asyncio.run(asyncio.wait_for(make(data_dir), 60))
    return data_dir


def contents(data_dir: Path) -> dict[str, bytes]:
    """All files but the note of a crash, which is of each process."""
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in files}


def pending_after_start(data_dir: Path) -> int:
    async def run() -> int:
        engine = await open_engine(
            data_dir, clock="simulated", segment_bytes=SEGMENT, settings=FAR, start_ms=1_700_000_100
        )
        try:
            return (await engine.submit(DescribeBroker())).pending
        finally:
            await engine.stop()

    return asyncio.run(run())


@pytest.mark.parametrize("part", PARTS)
def test_a_start_is_refused_and_names_the_file(left, tmp_path, monkeypatch, part) -> None:
    """Also a segment that only a consumer would read, and a run: its messages were set aside, or read from the log."""
    data_dir = tmp_path / "data"
    shutil.copytree(left, data_dir)
    place = data_dir / "shard-00" / part
    files = sorted(path for path in place.rglob("*") if path.is_file())
    theirs = str(next(path for path in files if "state" not in path.name))
    before, real = contents(data_dir), os.open

    def refusing(path, *args: object, **more: object) -> int:
        if str(path) == theirs:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refusing)
        with pytest.raises(HorologError, match="Permission denied") as refused:
            pending_after_start(data_dir)
    assert refused.value.code is ErrorCode.DIRECTORY_READ_ONLY
    assert theirs in refused.value.message
    assert contents(data_dir) == before
    assert pending_after_start(data_dir) > 70


@pytest.mark.parametrize("part", PARTS)
def test_a_start_is_refused_for_a_directory_that_takes_no_files(
    left, tmp_path, monkeypatch, part
) -> None:
    """It served, until its first file there ended it: that of an hour, with the first message."""
    data_dir = tmp_path / "data"
    shutil.copytree(left, data_dir)
    theirs, real = str(data_dir / "shard-00" / part), os.open

    def refusing(path, flags: int, *args: object, **more: object) -> int:
        makes = flags & (os.O_CREAT | os.O_TMPFILE)
        if makes and str(path).startswith(theirs) and flags & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refusing)
        with pytest.raises(HorologError, match=r"make directory .* Permission denied") as refused:
            pending_after_start(data_dir)
    assert refused.value.code is ErrorCode.DIRECTORY_READ_ONLY
    assert theirs in refused.value.message
    assert pending_after_start(data_dir) > 70
