"""A replay finds the messages that a hand-over or a recall in the log names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from horolog.delay.far_buffer import FarBuffer
from horolog.delay.far_run import FarRun
from horolog.delay.hour import Hour
from horolog.delay.mend_entries import mend_rows
from horolog.delay.source import refs_of
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS

if TYPE_CHECKING:
    from horolog.delay.store import DelayStore


def resolve(
    store: DelayStore, due_ms: npt.NDArray[np.int64], named: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Replay: the references of these messages; one that no file has is a broken invariant: DAMAGED.

    Those of hours in quarantine, or of adopted files that are gone, may be missing, and are left out then.

    named  their origins, rows with `position` and `row`
    """
    origins, origin_rows = named["position"], named["row"]
    hours = due_ms // HOUR_MS
    refs = _found(store, due_ms, origins, origin_rows)
    missing = refs < 0
    for gone in store.far.missing if bool(missing.any()) else ():
        missing &= ~gone.take(origins, origin_rows)
    for first_hour, last_hour in store.quarantined if bool(missing.any()) else ():
        missing &= (hours < first_hour) | (hours > last_hour)
    if bool(missing.any()):
        left_out = _mended(store, due_ms[missing])
        refs = _found(store, due_ms, origins, origin_rows)
        missing &= (refs < 0) & ~np.isin(due_ms, left_out)
    if bool(missing.any()):
        first = int(np.argmax(missing))
        hour_of = int(hours[first])
        raise HorologError(
            ErrorCode.DAMAGED,
            f"the commit log names a scheduled message at log position {int(origins[first])} of "
            f"hour {hour_of} that neither the hour's files nor a run has",
            field=f"hours/{hour_of}",
        )
    return refs[refs >= 0]


def _found(
    store: DelayStore,
    due_ms: npt.NDArray[np.int64],
    origins: npt.NDArray[np.uint64],
    origin_rows: npt.NDArray[np.uint32],
) -> npt.NDArray[np.int64]:
    """The reference of each, −1 where no file has it."""
    refs = np.full(len(origins), -1, np.int64)
    hours = due_ms // HOUR_MS
    for number in np.unique(hours).tolist():
        hour = store.hours.get(number)
        if hour is not None:
            at = np.flatnonzero(hours == number)
            rows = hour.find_origins(origins[at])
            refs[at] = np.where(rows >= 0, refs_of(hour.number, rows), -1)
    for source in store.far.sources():
        left = np.flatnonzero(refs < 0)
        if not len(left):
            break
        rows = source.find(due_ms[left], origins[left], origin_rows[left])
        refs[left] = np.where(rows >= 0, refs_of(source.number, rows), -1)
    return refs


def _mended(store: DelayStore, due_ms: npt.NDArray[np.int64]) -> list[int]:
    """Make damaged entries anew where these messages should be: a damaged origin misleads a search.

    Gives the due times of those that may be among entries that stay damaged.
    """
    left_out = []
    for due in np.unique(due_ms).tolist():
        hour = store.hours.get(due // HOUR_MS)
        near: list[Hour | FarBuffer | FarRun] = [] if hour is None else [hour]
        for source in [*near, *store.far.sources()]:
            if len(source.damaged_at(due)):
                mend_rows(store, source, source.damaged_at(due))
                left_out += [due] if len(source.damaged_at(due)) else []
    return left_out
