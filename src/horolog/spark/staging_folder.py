"""Directory in which the runs of a transaction are written.

It is either the broker's staging directory, or a temporary directory from which the runs are
uploaded.  What a killed task leaves in the former the broker removes, and in the latter the next
task of that machine.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from horolog.delay.run.format import FOOTER_BYTES, RunInfo
from horolog.spark.transaction import StagedRun, Transaction, upload
from horolog.spark.work_directory import work_directory


class StagingFolder:
    """A context with a directory for runs; a temporary directory is removed at its end.

    is_shared  the staging directory is on this machine (`transaction.is_reachable`)
    """

    def __init__(self, transaction: Transaction, *, is_shared: bool) -> None:
        self._transaction = transaction
        self.is_shared = is_shared
        self._temporary = ExitStack()
        self.path = Path(transaction.staging)

    def __enter__(self) -> StagingFolder:
        if not self.is_shared:
            self.path = self._temporary.enter_context(work_directory("stage", None))
        return self

    def __exit__(self, *error: object) -> None:
        self._temporary.close()

    def staged(self, run: RunInfo) -> StagedRun:
        """Bring a run that was written and synced in `path` to the broker.

        Return its manifest entry.
        """
        path = self.path / f"{run.name}.run"
        staged = StagedRun(
            path.name, run.rows, run.size, run.first_ms, run.last_ms, _footer_crc(path)
        )
        if not self.is_shared:
            upload(self._transaction, path, path.name)
            path.unlink()
        return staged


def _footer_crc(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(-FOOTER_BYTES, os.SEEK_END)
        return int(crc32(file.read(FOOTER_BYTES)))
