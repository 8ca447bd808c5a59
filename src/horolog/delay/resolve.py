"""Resolving: finding the messages that a hand-over or recall record names, in a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import is_readable
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.run import FarRun
from horolog.delay.near.hour import Hour
from horolog.delay.repair_entries import repair_rows
from horolog.delay.source import Rows, refs_of
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS

if TYPE_CHECKING:
    from horolog.delay.store import DelayStore

_Source = Hour | FarBuffer | FarRun


def resolve(
    store: DelayStore, due_ms: npt.NDArray[np.int64], named: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return the references of messages that a replayed record names; DAMAGED if no file has one.

    A message that no file has breaks an invariant.  But messages of quarantined hours, of adopted
    files that are gone, or that a salvage gave up may be missing, and are then left out.

    named  their origins, rows with `position` and `row`
    """
    origins, origin_rows = named["position"], named["row"]
    hours = due_ms // HOUR_MS
    refs = _found(store, due_ms, origins, origin_rows)
    missing = refs < 0
    for gone in store.far.missing if bool(missing.any()) else ():
        missing &= ~gone.settle(origins, origin_rows)
    for first_hour, last_hour in store.quarantined if bool(missing.any()) else ():
        missing &= (hours < first_hour) | (hours > last_hour)
    for first, stop in store.given_up if bool(missing.any()) else ():
        missing &= (origins < first) | (origins >= stop)
    if bool(missing.any()):
        left_out = _repair_around(store, due_ms[missing])
        refs = _found(store, due_ms, origins, origin_rows)
        for due in left_out:
            lost = np.flatnonzero((refs < 0) & (due_ms == due))
            refs[lost] = _find_among_damaged(store, due, origins[lost], origin_rows[lost])
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
    """Return the reference of each message, −1 where no file has it."""
    refs = np.full(len(origins), -1, np.int64)
    hours = due_ms // HOUR_MS
    for hour_id in np.unique(hours).tolist():
        hour = store.hours.get(hour_id)
        if hour is not None:
            at = np.flatnonzero(hours == hour_id)
            rows = hour.find_origins(origins[at])
            refs[at] = np.where(rows >= 0, refs_of(hour.source_id, rows), -1)
    for source in store.far.sources():
        left = np.flatnonzero(refs < 0)
        if not len(left):
            break
        rows = source.find(due_ms[left], origins[left], origin_rows[left])
        refs[left] = np.where(rows >= 0, refs_of(source.source_id, rows), -1)
    return refs


def _sources(store: DelayStore, due_ms: int) -> list[_Source]:
    hour = store.hours.get(due_ms // HOUR_MS)
    near: list[_Source] = [] if hour is None else [hour]
    return [*near, *store.far.sources()]


def _damaged_at(source: _Source, due_ms: int) -> Rows:
    """Return the rows of damaged entries that may be those of messages due at `due_ms`."""
    found = [np.empty(0, np.int64)]
    for first, entries in source.entries_around(due_ms):
        found.append(np.flatnonzero(~is_readable(entries)) + first)
    return np.concatenate(found)


def _repair_around(store: DelayStore, due_ms: npt.NDArray[np.int64]) -> list[int]:
    """Rebuild damaged entries where these messages should be: a damaged origin misleads a search.

    Returns the due times of messages that may be among the entries that stay damaged.
    """
    left_out = []
    for due in np.unique(due_ms).tolist():
        for source in _sources(store, due):
            rows = _damaged_at(source, due)
            if len(rows):
                repair_rows(store, source, rows)
                left_out += [due] if len(_damaged_at(source, due)) else []
    return left_out


def _find_among_damaged(
    store: DelayStore,
    due_ms: int,
    origins: npt.NDArray[np.uint64],
    origin_rows: npt.NDArray[np.uint32],
) -> npt.NDArray[np.int64]:
    """Return the reference of each message, −1 where none is found, like `_found`.

    Looks at every entry around that due time instead of searching, since damage misleads a search.
    """
    wanted = {
        key: i for i, key in enumerate(zip(origins.tolist(), origin_rows.tolist(), strict=True))
    }
    refs = np.full(len(origins), -1, np.int64)
    for source in _sources(store, due_ms):
        for first, entries in source.entries_around(due_ms):
            is_sound = is_readable(entries)
            rows = np.flatnonzero(is_sound & np.isin(entries["origin"], origins))
            for row in rows.tolist():
                at = wanted.get((int(entries["origin"][row]), int(entries["row"][row])))
                if at is not None and int(entries["due_ms"][row]) == due_ms:
                    refs[at] = refs_of(source.source_id, np.array([first + row]))[0]
    return refs
