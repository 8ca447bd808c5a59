"""Filing: sort messages into near and far by append time in the log, so that a replay agrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import record_crcs
from horolog.delay.entry_files import Filing
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.store import FarStore
from horolog.delay.near.filing import file_in_hours
from horolog.delay.near.hour import Hour
from horolog.delay.near.hours import group_by_hour
from horolog.delay.near.store import NearStore
from horolog.delay.source import Rows, refs_of
from horolog.errors import NO_ROOM, HorologError
from horolog.limits import HOUR_MS, NEAR_HOURS
from horolog.log.whole_rows import joined

_NEVER_MS = 1 << 62


class Filed(NamedTuple):
    """Where messages went: due times, origins and references, columns of equal length."""

    due_ms: npt.NDArray[np.int64]
    origin: npt.NDArray[np.uint64]
    ref: npt.NDArray[np.int64]


class Unfiled(NamedTuple):
    """Committed scheduled messages, in log order."""

    heads: npt.NDArray[Any]  # log.record.HEAD
    origins: npt.NDArray[np.uint64]
    records: memoryview  # joined, in log order
    append_ms: int  # append time of their frame


class FilingBatch:
    """Messages gathered to be filed together.

    Half the cost of filing a few messages is fixed: it is the same for a thousand.

    count     messages gathered
    size      bytes of their records
    first_ms  the earliest due time
    """

    def __init__(self) -> None:
        self._parts: list[Unfiled] = []
        self._clear()

    def _clear(self) -> None:
        self.count = self.size = 0
        self.first_ms = _NEVER_MS

    def __bool__(self) -> bool:
        return bool(self._parts)

    def check_invariants(self) -> None:
        """Assert that the counts match the gathered messages."""
        assert self.count == sum(len(part.heads) for part in self._parts)
        assert self.size == sum(len(part.records) for part in self._parts)

    def append(self, unfiled: Unfiled) -> None:
        """Add messages that follow the gathered ones in the log."""
        self._parts.append(unfiled)
        self.count += len(unfiled.heads)
        self.size += len(unfiled.records)
        self.first_ms = min(self.first_ms, int(unfiled.heads["due_ms"].min()))

    def take(self) -> list[Unfiled]:
        """Remove and return all messages, in as few parts as possible.

        Messages of frames of different hours stay apart, because the hour of the frame decides what
        is near and what is far.
        """
        parts, self._parts = self._parts, []
        self._clear()
        by_hour = groupby(parts, lambda part: part.append_ms // HOUR_MS)
        return [_together(list(group)) for _, group in by_hour]


def _together(parts: list[Unfiled]) -> Unfiled:
    if len(parts) == 1:
        return parts[0]
    return Unfiled(
        joined([part.heads for part in parts]),
        np.concatenate([part.origins for part in parts]),
        memoryview(b"".join([part.records for part in parts])),
        parts[0].append_ms,
    )


def file_by_due_time(
    near: NearStore, far: FarStore, unfiled: Unfiled
) -> tuple[Filed, Unfiled | None, list[Hour | FarBuffer]]:
    """File scheduled messages into hours and the far buffer.

    Returns where the messages went, the messages for which the disk had no space (None: there was
    space for all), and the files that received some.
    """
    heads, origins, records, append_ms = unfiled
    sizes = heads["size"].astype(np.int64)
    ends = sizes.cumsum()
    whole = bytes(records)
    slices = [whole[a:b] for a, b in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]
    filing = Filing(
        heads["due_ms"],
        origins,
        sizes,
        heads["key"],
        heads["topic"],
        heads["tags"],
        record_crcs(slices, origins),
        whole,
    )
    order, hours, cuts = group_by_hour(
        heads["due_ms"] // HOUR_MS, append_ms // HOUR_MS + NEAR_HOURS
    )
    if order is not None:
        filing = filing.chosen(order, b"".join([slices[i] for i in order.tolist()]))
    refs = [np.empty(0, np.int64)]
    sources: list[Hour | FarBuffer] = []
    rest = None
    try:
        for source, rows in _file(near, far, hours, cuts, filing):
            sources.append(source)
            refs.append(refs_of(source.source_id, rows))
    except HorologError as error:
        if error.code not in NO_ROOM:
            raise
        left = np.arange(len(heads)) if order is None else order
        left = np.sort(left[cuts[len(refs) - 1] :])
        bodies = b"".join([slices[i] for i in left.tolist()])
        rest = Unfiled(heads.take(left), origins[left], memoryview(bodies), append_ms)
    found = np.concatenate(refs)
    filed = Filed(filing.due_ms[: len(found)], filing.origin[: len(found)], found)
    return filed, rest, sources


def _file(
    near: NearStore,
    far: FarStore,
    hours: Sequence[int | None],
    cuts: Sequence[int],
    filing: Filing,
) -> Iterator[tuple[Hour | FarBuffer, Rows]]:
    """File the far messages, then hour by hour; yield each source and its new rows."""
    near_hours = [hour for hour in hours if hour is not None]
    far_count = cuts[len(hours) - len(near_hours)]
    records, far_bytes = memoryview(filing.records), int(filing.size[:far_count].sum())
    if far_count:
        yield far.file(filing.chosen(slice(far_count), records[:far_bytes]))
    opened: list[Hour] = []
    failure = None
    for hour in near_hours:
        try:
            opened.append(near.open(hour))
        except HorologError as error:
            failure = error  # the disk may have space for the hours before this one
            break
    if opened:
        edges = [cut - far_count for cut in cuts[len(hours) - len(near_hours) :][: len(opened) + 1]]
        part = filing.chosen(slice(far_count, far_count + edges[-1]), records[far_bytes:])
        yield from zip(opened, file_in_hours(opened, edges, part), strict=True)
    if failure is not None:
        raise failure
