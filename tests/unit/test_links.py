"""Files of a data directory that are links to what is not there, as when a disk is not mounted, or another file's."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from directories import FAR, SEGMENT, make, verify

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CountPending
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.verify.directory import verify_directory


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a file of every kind; tests leave it as it is."""
    data_dir = tmp_path_factory.mktemp("links") / "data"
    asyncio.run(asyncio.wait_for(make(data_dir), 60))
    return data_dir


def pending(data_dir: Path) -> int:
    """What a start finds."""

    async def count() -> int:
        engine = await open_engine(
            data_dir,
            clock="simulated",
            segment_bytes=SEGMENT,
            settings=FAR,
            start_ms=1_700_000_060_000,
        )
        try:
            return int((await engine.submit(CountPending())).total)
        finally:
            await engine.stop()

    return asyncio.run(asyncio.wait_for(count(), 60))


def with_link(left: Path, data_dir: Path, pattern: str) -> None:
    """A copy of the directory in which the first such file is a link to nothing."""
    shutil.copytree(left, data_dir)
    linked = sorted((data_dir / "shard-00").glob(pattern))[0]
    linked.unlink()
    linked.symlink_to("/proc/no-such-disk/file")


@pytest.mark.parametrize(
    "pattern",
    ["hours/*/delay.idx", "hours/*/delay.log", "hours/*/state.*", "keys/*", "queues/*/*",
     "runs/*.run", "checkpoint/*"],
)  # fmt: skip
def test_a_derived_file_is_made_again(left: Path, tmp_path: Path, pattern: str) -> None:
    shutil.copytree(left, tmp_path / "intact")
    with_link(left, tmp_path / "data", pattern)
    verify_directory(Disk(tmp_path / "data", read_only=True))
    assert pending(tmp_path / "data") == pending(tmp_path / "intact") > 0
    assert verify(tmp_path / "data").clean


@pytest.mark.parametrize("kind", ["hours/*/delay.idx", "keys/*", "queues/*/*", "runs/*.run"])
def test_a_directory_in_the_place_of_a_file_ends_no_verification(
    left: Path, tmp_path: Path, kind: str
) -> None:
    with_link(left, tmp_path / "data", kind)
    replaced = next(each for each in (tmp_path / "data").rglob("*") if each.is_symlink())
    replaced.unlink()
    replaced.mkdir()
    verdict = verify(tmp_path / "data")
    assert any(replaced.name in found.file for found in verdict.findings.kept)


def test_two_runs_that_were_exchanged(left: Path, tmp_path: Path) -> None:
    """Each is intact, and not the one of its name."""
    shutil.copytree(left, tmp_path / "intact")
    shutil.copytree(left, tmp_path / "data")
    runs = sorted((tmp_path / "data/shard-00/runs").glob("*.run"))
    contents = [each.read_bytes() for each in runs]
    for run, content in zip(runs, reversed(contents), strict=True):
        run.write_bytes(content)
    assert len(set(contents)) > 1
    assert not verify(tmp_path / "data").clean
    assert pending(tmp_path / "data") == pending(tmp_path / "intact") > 0
    assert verify(tmp_path / "data").clean


@pytest.mark.parametrize("becomes", ["nothing", "a directory", "itself"])
@pytest.mark.parametrize("pattern", ["log/*000.log", "log/*32768.log"])
def test_a_segment_of_the_log_refuses_the_start(
    left: Path, tmp_path: Path, pattern: str, becomes: str
) -> None:
    """Not its first reader, hours later."""
    with_link(left, tmp_path / "data", pattern)
    if becomes != "nothing":
        linked = next(each for each in (tmp_path / "data").rglob("*") if each.is_symlink())
        linked.unlink()
        if becomes == "a directory":
            linked.mkdir()
        else:
            linked.symlink_to(linked)
    verify_directory(Disk(tmp_path / "data", read_only=True))
    with pytest.raises(HorologError, match="segment") as refused:
        pending(tmp_path / "data")
    assert refused.value.code is ErrorCode.DAMAGED
