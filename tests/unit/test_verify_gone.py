"""`horolog verify` of a log of which a whole segment is gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from directories import SEGMENT, make, verify


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
