"""Directory in which the runs of a transaction are written.

It is either the broker's staging directory, or a temporary directory from which the runs are
uploaded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from horolog.delay.run.format import FOOTER_BYTES, RunInfo
from horolog.spark.transaction import StagedRun, Transaction, upload


class StagingFolder:
    """A context with a directory for runs; a temporary directory is removed at its end.

    is_shared  the staging directory is on this machine (`transaction.is_reachable`)
    """

    def __init__(self, transaction: Transaction, *, is_shared: bool) -> None:
        self._transaction = transaction
        self._is_shared = is_shared
        self.path = Path(transaction.staging)

    def __enter__(self) -> StagingFolder:
        if not self._is_shared:
            self.path = Path(tempfile.mkdtemp(prefix="horolog-stage-"))
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_shared:
            shutil.rmtree(self.path, ignore_errors=True)

    def staged(self, run: RunInfo) -> StagedRun:
        """Bring a run that was written and synced in `path` to the broker.

        Return its manifest entry.
        """
        path = self.path / f"{run.name}.run"
        staged = StagedRun(
            path.name, run.rows, run.size, run.first_ms, run.last_ms, _footer_crc(path)
        )
        if not self._is_shared:
            upload(self._transaction, path, path.name)
            path.unlink()
        return staged


def _footer_crc(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(-FOOTER_BYTES, os.SEEK_END)
        return int(crc32(file.read(FOOTER_BYTES)))
