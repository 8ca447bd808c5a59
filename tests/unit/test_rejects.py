"""Rows that a bulk load refuses are on disk before the load commits, as the load is not repeated."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horolog.spark.bulk_load import write_rejects


def test_the_file_and_the_names_of_new_directories_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, int]] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        fsync(fd)
        synced.append((Path(f"/proc/self/fd/{fd}").resolve(), os.fstat(fd).st_size))

    monkeypatch.setattr(os, "fsync", note)
    directory = tmp_path / "a" / "bad"
    table = pa.table({"body": ["", "m9"], "reason": ["body: is empty", "tag: is too long"]})
    for token in ("1a", "2b"):
        del synced[:]
        path = Path(write_rejects(table, directory, token))
        assert pq.read_table(path).equals(table)
        assert (path, path.stat().st_size) in synced, "all of it, not what was written by then"
        assert synced[-1][0] == directory
        above = [tmp_path.parent, tmp_path, tmp_path / "a"] if token == "1a" else [tmp_path / "a"]
        assert [place for place, _ in synced] == [*above, path, directory]
