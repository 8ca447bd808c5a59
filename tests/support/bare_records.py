"""Scheduled records for tests of the delay store, which does not look into their messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from horolog.delay.filing import Unfiled
from horolog.log.record import HEAD, HEAD_BYTES, Kind

RECORD_BYTES = HEAD_BYTES + 8


def unfiled(
    due_ms: Sequence[int],
    first_origin: int,
    append_ms: int,
    *,
    keys: npt.ArrayLike = 0,
    topics: npt.ArrayLike = 0,
) -> Unfiled:
    """Records that hold nothing but their head and their origin."""
    heads = np.zeros(len(due_ms), HEAD)
    heads["size"], heads["kind"], heads["due_ms"] = RECORD_BYTES, Kind.SCHEDULED, due_ms
    heads["key"], heads["topic"] = keys, topics
    origins = np.arange(first_origin, first_origin + len(due_ms), dtype=np.uint64)
    records = b"".join(heads[i].tobytes() + origins[i].tobytes() for i in range(len(due_ms)))
    return Unfiled(heads, origins, memoryview(records), append_ms)
