"""`horolog verify` where a whole segment, or a directory, is gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from directories import SEGMENT, make, verify

from horolog.errors import HorologError
from horolog.server.open_broker import open_engine


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of several segments; tests leave it as it is."""
    data_dir = tmp_path_factory.mktemp("gone") / "data"
    asyncio.run(asyncio.wait_for(make(data_dir), 60))
    return data_dir


@pytest.mark.parametrize("in_its_place", [False, True])
@pytest.mark.parametrize("quick", [False, True])
def test_a_segment_that_is_gone_is_one_finding(
    left: Path, tmp_path: Path, in_its_place: bool, quick: bool
) -> None:
    """In the middle of the log, or a directory is in its place: what points into it is only counted."""
    data_dir = tmp_path / "data"
    shutil.copytree(left, data_dir)
    segments = sorted((data_dir / "shard-00/log").iterdir())
    gone = segments[1]
    gone.unlink()
    if in_its_place:
        gone.mkdir()
    verdict = verify(data_dir, quick=quick)
    assert {finding.file for finding in verdict.findings.kept} == {f"shard-00/log/{gone.name}"}
    assert (verdict.holes, verdict.hole_bytes) == (1, SEGMENT)
    assert quick or verdict.lost > 0


@pytest.mark.parametrize("part", ["log", "queues", "keys", "hours", "runs", "checkpoint"])
def test_a_file_at_the_place_of_a_directory_is_found(left: Path, tmp_path: Path, part: str) -> None:
    """A start refuses it, with `File exists` once, and the directory was clean."""
    data_dir = tmp_path / "data"
    shutil.copytree(left, data_dir)
    shutil.rmtree(data_dir / "shard-00" / part)
    (data_dir / "shard-00" / part).write_text("mine")
    found = [each for each in verify(data_dir).findings.kept if each.file == f"shard-00/{part}"]
    assert "is a file, not a directory" in [each.what for each in found]
    with pytest.raises(HorologError, match=f"{part}: it is a file, not a directory"):
        asyncio.run(asyncio.wait_for(open_engine(data_dir, clock="simulated"), 60))
