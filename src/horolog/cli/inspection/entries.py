"""Entries of an index and the sums of their records, a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.cli.inspection.report import Report, verdict
from horolog.delay.entry import ENTRY, ENTRY_BYTES, record_crcs, records_of

_BATCH = 16_384


def entry_batches(
    content: memoryview, count: int, at: int = 0
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the entries of an index that begins at byte `at`, with the row of the first."""
    for first in range(0, count, _BATCH):
        n = min(_BATCH, count - first)
        yield first, np.frombuffer(content, ENTRY, n, at + first * ENTRY_BYTES)


def record_verdicts(content: memoryview, entries: npt.NDArray[Any]) -> list[str]:
    """Return the verdict on each entry's record, which is in `content`."""
    crcs = record_crcs(records_of(content, entries), entries["origin"], entries["row"])
    return [verdict(each) for each in (crcs == entries["crc"]).tolist()]


def add_bad_sums(report: Report, verdicts: Counter[str]) -> None:
    """Report how many entries, and how many records, have a bad sum."""
    for what in ("entry", "record"):
        if count := verdicts[f"{what} BAD"]:
            report.problems.append(f"{count} bad {what} check sums")
