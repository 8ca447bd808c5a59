"""Check of adopted runs: the log settles just the messages of an ADOPT that do not wait.

The balance of hours cannot include adopted messages, since the log does not say when each is due.
So the settled rows are kept for each file, as a count and a sum of hashes of their row indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.far.adopted import AdoptedFile, Adoption, rows_within
from horolog.delay.row_sum import MASK, mix
from horolog.delay.run.format import run_path
from horolog.verify.findings import Findings


class _File:
    """One adopted file, and its rows that the log settles."""

    def __init__(self, file: AdoptedFile) -> None:
        self.file = file
        self.rows = 0
        self.sum = 0
        self.offloaded = 0  # rows that went to a tier

    def settle(self, rows: npt.NDArray[np.int64]) -> None:
        """Add rows of the adoption, of which some may be in this file."""
        rows = rows_within(rows, self.file.first_row, self.file.rows)
        rows = rows[rows >= 0]
        self.rows += len(rows)
        self.sum = (self.sum + sum_of(rows)) & MASK


def sum_of(rows: npt.NDArray[np.int64]) -> int:
    """Return the sum of hashed row indices of a file."""
    return int(mix(rows.astype(np.uint64)).sum(dtype=np.uint64))


class AdoptionCheck:
    """Check of adopted runs along the log; an ADOPT before the log's beginning is not compared."""

    def __init__(self) -> None:
        self._adopted: dict[int, list[_File]] = {}  # by log position

    def take(self, adoptions: list[Adoption]) -> None:
        """Add the ADOPT records of a frame."""
        for adoption in adoptions:
            if adoption.files:
                self._adopted[adoption.position] = [_File(file) for file in adoption.files]

    def offload(self, taken: dict[str, int]) -> None:
        """Add the commit of an offload: how many rows of each file went to the tier."""
        for files in self._adopted.values():
            for file in files:
                file.offloaded += taken.get(file.file.name, 0)

    def settle(self, origins: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Settle the origins that are adopted; return which origins are not."""
        others: npt.NDArray[np.bool_] = origins["row"] == 0
        for position in np.unique(origins["position"]).tolist():
            files = self._adopted.get(position)
            if files is not None:
                mine = origins["position"] == position
                others &= ~mine
                for file in files:
                    file.settle(origins["row"][mine].astype(np.int64))
        return others

    def compare(
        self, findings: Findings, place: str, row: dict[str, Any], gone: int, sum: int
    ) -> None:
        """Compare one file that a checkpoint names with the log.

        gone  rows of the file that do not wait
        sum   sum of the hashes of these rows
        """
        for file in self._adopted.get(row["position"], []):
            if file.file.name != row["name"]:
                continue
            named = (row["rows"], row["first_row"], row["first_ms"], row["last_ms"])
            said = (file.file.rows, file.file.first_row, file.file.first_ms, file.file.last_ms)
            path = run_path(place, row["name"])
            if named != said:
                findings.add(path, 0, f"is adopted as {said}, its checkpoint says {named}")
            elif file.offloaded:
                if gone != file.rows + file.offloaded:
                    left = f"{gone} rows are settled or in the lake"
                    findings.add(path, 0, f"{left}, but {file.rows + file.offloaded} by the log")
            elif (gone, sum) != (file.rows, file.sum):
                what = f"{gone} rows are settled, but {file.rows} by the log"
                if gone == file.rows:
                    what = "the settled rows are not those that the log settles"
                findings.add(path, 0, what)

    def finish(self, findings: Findings, place: str, named: set[str]) -> None:
        """Check that files which no checkpoint names are settled completely."""
        for files in self._adopted.values():
            for file in files:
                left = file.file.rows - file.rows - file.offloaded
                if file.file.name not in named and left:
                    path = run_path(place, file.file.name)
                    findings.add(path, 0, f"{left} rows wait, and no checkpoint names the file")
