"""A data directory that has its `meta`, and not its shard: no new, empty broker begins in it (P2)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.server.open_broker import open_engine, open_meta
from horolog.testing.disk import FaultyDisk, Killed

SEGMENT = 1 << 16


def start(data_dir: Path) -> str:
    """Start a broker and stop it; return the row of its recovery."""

    async def run() -> str:
        engine = await open_engine(data_dir, clock="simulated", segment_bytes=SEGMENT)
        await engine.stop()
        return next(line for line in engine.report if "recovery row" in line)

    return asyncio.run(run())


@pytest.mark.parametrize("left", ["nothing", "an empty directory", "a link to nothing"])
def test_a_start_without_the_shard_is_refused_and_makes_nothing(tmp_path: Path, left) -> None:
    """As when its disk is not mounted, or only a part of a directory was copied."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    assert "row 15" in start(data)
    shard = data / "shard-00"
    shard.rename(elsewhere)
    if left == "an empty directory":
        shard.mkdir()
    elif left == "a link to nothing":
        shard.symlink_to(tmp_path / "missing")
    with pytest.raises(HorologError, match="no shard-00/log") as refused:
        start(data)
    assert (refused.value.code, refused.value.field) == (ErrorCode.DAMAGED, "--data-dir")
    if left == "an empty directory":
        assert not list(shard.iterdir())
        shard.rmdir()
    shard.unlink(missing_ok=True)
    elsewhere.rename(shard)
    assert "row 1:" in start(data)


def test_a_first_start_that_is_killed_is_no_lost_shard() -> None:
    """Wherever the power is cut, the next start begins again."""
    for nth in range(20):
        disk = FaultyDisk(nth)
        left = nth

        def count(what: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(what)

        disk.on_effect = count
        try:
            open_meta(disk, "system", SEGMENT)
        except Killed:
            disk.on_effect = None
            disk.crash(power_cut=True)
            open_meta(disk, "system", SEGMENT)
        else:
            assert nth >= 4
            return
    raise AssertionError("it was always killed")


def test_the_directories_of_a_new_broker_are_made_before_its_meta(tmp_path: Path) -> None:
    data = tmp_path / "data"
    start(data)
    (data / "meta").unlink()
    shutil.rmtree(data / "shard-00")
    (data / "shard-00" / "log").mkdir(parents=True)  # of a first start that was killed
    assert "row 15" in start(data)


@pytest.mark.parametrize("segment_bytes", ["0", "-65536"])
def test_a_meta_without_a_size_of_segments_is_refused_and_named(
    tmp_path: Path, segment_bytes
) -> None:
    """A start ended with an exception of Python, or named a segment of a negative number."""
    start(tmp_path)
    meta = tmp_path / "meta"
    meta.write_text(meta.read_text().replace(str(SEGMENT), segment_bytes))
    with pytest.raises(HorologError, match=f"segment_bytes is {segment_bytes}") as refused:
        start(tmp_path)
    assert refused.value.code is ErrorCode.DIRECTORY_FOREIGN
    assert "`horolog salvage` writes" in refused.value.message
