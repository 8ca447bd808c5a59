"""What the driver refuses before it asks the broker to commit."""

from __future__ import annotations

import pytest

from horolog.errors import HorologError
from horolog.limits import ADOPTION_FILES_MAX
from horolog.spark.sink_columns import Target
from horolog.spark.transaction import StagedRun, Transaction, commit


def test_too_many_files_are_refused_with_what_to_do() -> None:
    """The broker's refusal of 4 097 files was that of a list, after all of the work."""
    target = Target("t", 1, 1, 1, 1, 1, (b"\x7f\0\0\1", 8090))
    begun = Transaction("http://127.0.0.1:1", "a", 0, "token", "", False, target, 1)
    files = [StagedRun(f"{i}.run", 1, 1, 1, 1, 1) for i in range(ADOPTION_FILES_MAX + 1)]
    with pytest.raises(HorologError) as refused:
        commit(begun, "t", files)
    assert refused.value.message == (
        "files: the tasks have staged 4,097 files, at least one for each partition with rows; a transaction has at "
        "most 4,096: write fewer partitions (coalesce), or use bulk_load"
    )
