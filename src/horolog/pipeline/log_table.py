"""Rows of the log about every message, as columns: one row a record of interest, without bodies.

=========  =======================================================================================
kind       one row for
=========  =======================================================================================
MESSAGE    a message that was visible at once
SCHEDULED  a message that is to be handed over; its origin is its own position
HANDED     a message that was handed over, with its origin from the HAND_OVER before it (−1: none)
RECALL     a message that a RECALL or RECALL_MANY names as origin
MOVED      a message that a reschedule names as origin; the message with its new due time has a
           SCHEDULED row of its own
EXPIRED    a message that was too late to be handed over; its dead letter has a MESSAGE row of its
           own
ADOPTED    a message of an adopted run: scheduled in a file beside the log
PROMOTED   a message that came back from the lake in the frame of its ADOPT, scheduled once more;
           if it was due by then it was handed over at once, and there is a HANDED row of the same
           position too
=========  =======================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.pipeline.data_files import Bytes
from horolog.pipeline.log_walk import Rows


class RowKind(IntEnum):
    """What a row is about; values below 64 are those of the kinds of records."""

    MESSAGE = 1
    SCHEDULED = 2
    HANDED = 4
    RECALL = 5
    ADOPTED = 66
    PROMOTED = 67
    MOVED = 69
    EXPIRED = 70


SCHEDULES = (RowKind.SCHEDULED, RowKind.ADOPTED, RowKind.PROMOTED)


@dataclass
class LogRows:
    """Rows of the log as columns of equal length."""

    kind: Bytes  # RowKind
    position: Rows  # of the record; ADOPTED: of the ADOPT record
    origin: Rows  # log position that identifies the message; −1: none
    origin_row: Rows  # 0 but for messages of adopted runs
    topic: Rows  # topic id
    key: Rows  # hash of (topic, message id), as i64; 0: not known
    due_ms: Rows
    append_ms: Rows  # of the frame; 0 for ADOPTED
    store_ms: Rows  # of MESSAGE, SCHEDULED and HANDED, else 0
    queue: Rows  # −1 where it has no meaning, as in `queue_offset`
    queue_offset: Rows
    reconsume_times: Rows
    size: Rows  # bytes of the record

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.kind)

    def chosen(self, mask: npt.NDArray[Any]) -> LogRows:
        """Return the rows at a mask or at indices."""
        if mask.dtype == np.bool_ and bool(mask.all()):
            return self
        return LogRows(*(getattr(self, field.name)[mask] for field in fields(self)))


def no_rows() -> LogRows:
    """Return columns without rows."""
    none = np.empty(0, np.int64)
    return LogRows(np.empty(0, np.uint8), *[none] * 12)


def settled_rows(
    kind: RowKind,
    position: int,
    settled: npt.NDArray[Any],
    topic: Any,
    key: Rows,
    due_ms: Rows,
    append_ms: int,
) -> LogRows:
    """Build the rows of a control record that names origins."""
    n = len(settled)

    def same(number: int) -> Rows:
        return np.full(n, number, np.int64)

    return LogRows(
        kind=np.full(n, kind, np.uint8),
        position=same(position),
        origin=settled["position"].astype(np.int64),
        origin_row=settled["row"].astype(np.int64),
        topic=same(0) + topic,
        key=key,
        due_ms=due_ms,
        append_ms=same(append_ms),
        store_ms=same(0),
        queue=same(-1),
        queue_offset=same(-1),
        reconsume_times=same(0),
        size=same(0),
    )


def rows_of_adopted(entries: npt.NDArray[Any], position: int, first_row: int) -> LogRows:
    """Build the rows of an adopted run from its ENTRY rows as they are in the file."""
    n = len(entries)
    none = np.zeros(n, np.int64)
    return LogRows(
        kind=np.full(n, RowKind.ADOPTED, np.uint8),
        position=none + position,
        origin=none + position,
        origin_row=entries["row"].astype(np.int64) + first_row,
        topic=entries["topic"].astype(np.int64),
        key=entries["key"].copy().view(np.int64),
        due_ms=entries["due_ms"].astype(np.int64),
        append_ms=none,
        store_ms=none,
        queue=none - 1,
        queue_offset=none - 1,
        reconsume_times=none,
        size=entries["size"].astype(np.int64),
    )
