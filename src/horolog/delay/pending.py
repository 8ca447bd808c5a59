"""What waits, counted from directories and listed by window (P10): near, far and in the tier together.

What is in the tier is counted by hour and topic; seconds and messages of it the broker does not know.

Messages that cannot be filed just now (`DelayStore.stalled`) wait like the others, so they are counted; listed they are
when they are filed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.near.hour import topic_counts
from horolog.delay.state import SECONDS, EntryState
from horolog.delay.store import DelayStore
from horolog.limits import HOUR_MS, SECOND_MS

_LOAD_ROWS = 4_096  # that a listing loads at once
_NO_HOUR = 1 << 62  # after every hour


def by_hour(
    store: DelayStore, topic: int | None, first: int = 0, stop: int = _NO_HOUR
) -> list[tuple[int, int]]:
    """(hour, count) with count > 0 of the hours in [first, stop), in order."""
    counts: dict[int, int] = {}
    for hour_id, hour in store.hours.items():
        if first <= hour_id < stop:
            counts[hour_id] = hour.waiting if topic is None else hour.by_topic.get(topic, 0)
    for source in store.far.sources():
        hours, waiting = source.waiting_by_hour(topic)
        inside = (hours >= first) & (hours < stop)
        for hour_id, n in zip(hours[inside].tolist(), waiting[inside].tolist(), strict=True):
            counts[hour_id] = counts.get(hour_id, 0) + n
    for hour_id, n in store.far.tier.by_hour(topic).items():
        if first <= hour_id < stop:
            counts[hour_id] = counts.get(hour_id, 0) + n
    for hour_id in (_stalled_dues(store, topic) // HOUR_MS).tolist():
        if first <= hour_id < stop:
            counts[hour_id] = counts.get(hour_id, 0) + 1
    return [(hour_id, n) for hour_id, n in sorted(counts.items()) if n > 0]


def _stalled_dues(store: DelayStore, topic: int | None) -> npt.NDArray[np.int64]:
    """Due times of what is not filed, of one topic or of all."""
    parts = [
        unfiled.heads["due_ms"][slice(None) if topic is None else unfiled.heads["topic"] == topic]
        for unfiled in store.stalled
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def by_day(store: DelayStore, topic: int | None) -> list[tuple[int, int]]:
    """(day of the epoch, UTC, count) with count > 0, in order."""
    counts: dict[int, int] = {}
    for hour, n in by_hour(store, topic):
        counts[hour // 24] = counts.get(hour // 24, 0) + n
    return list(counts.items())


def by_topic(store: DelayStore) -> dict[int, int]:
    """Topic id → count."""
    counts: dict[int, int] = {}
    for of_one in [
        *(hour.by_topic for hour in store.hours.values()),
        *(source.waiting_by_topic() for source in store.far.sources()),
        store.far.tier.by_topic(),
        *(topic_counts(unfiled.heads["topic"]) for unfiled in store.stalled),
    ]:
        for topic, n in of_one.items():
            counts[topic] = counts.get(topic, 0) + n
    return counts


def by_second(store: DelayStore, hour_id: int, topic: int | None) -> list[tuple[int, int]]:
    """(second of the epoch, count) with count > 0 of one hour, in order."""
    counts = np.zeros(SECONDS, np.int64)
    hour = store.hours.get(hour_id)
    if hour is not None and topic is None:
        counts += hour.heads["waiting"]
    elif hour is not None:
        for first, entries in hour.scan():
            states = hour.states[first : first + len(entries)] & EntryState.SETTLED_BITS
            rows = (entries["topic"] == topic) & (states == EntryState.WAITING)
            seconds = entries["due_ms"][rows] // 1000 - hour_id * SECONDS
            counts += np.bincount(seconds, minlength=SECONDS)
    for source in store.far.sources():
        counts += source.waiting_by_second(hour_id, topic)
    seconds = _stalled_dues(store, topic) // SECOND_MS - hour_id * SECONDS
    counts += np.bincount(seconds[(seconds >= 0) & (seconds < SECONDS)], minlength=SECONDS)
    return [(hour_id * SECONDS + int(s), int(counts[s])) for s in np.flatnonzero(counts)]


class ListingPlace(NamedTuple):
    """Where a listing is: after the message with this due time and origin; with −1, before all that are due then."""

    due_ms: int
    position: int = -1
    row: int = 0


class Page(NamedTuple):
    """A piece of a listing: ENTRY rows and records of what waits, and where to go on; None at the end."""

    entries: npt.NDArray[Any]
    records: list[memoryview]
    next: ListingPlace | None


def page(store: DelayStore, after: ListingPlace, to_ms: int, topic: int | None, rows: int) -> Page:
    """Read what waits after a place and is due before `to_ms`, in hand-over order, as much as a turn may read.

    That is of the next seconds in which some thousand messages wait, or of the next one; those of other topics are
    passed over.  `next` may be there without any messages.
    """
    second = store.next_waiting(after.due_ms // 1000)
    if second is None or second * 1000 >= to_ms:
        return Page(store.entries(np.empty(0, np.int64)), [], None)
    load = store.open_span(second, -(-to_ms // 1000), _LOAD_ROWS)
    while not load.walk(1 << 20)[1]:
        pass
    refs = load.loaded().ref
    store.problems += load.problems()
    entries = store.entries(refs)
    chosen = np.flatnonzero((entries["due_ms"] < to_ms) & _comes_after(entries, after))
    if topic is not None:
        chosen = chosen[entries["topic"][chosen] == topic]
    is_cut = len(chosen) > rows
    chosen = chosen[:rows]
    following: ListingPlace | None = ListingPlace(load.stop * 1000)
    if is_cut:
        last = entries[chosen[-1]]
        following = ListingPlace(int(last["due_ms"]), int(last["origin"]), int(last["row"]))
    elif load.stop * 1000 >= to_ms:
        following = None
    _, entries, records = store.verified(refs[chosen], entries[chosen])
    return Page(entries, records, following)


def _comes_after(entries: npt.NDArray[Any], place: ListingPlace) -> npt.NDArray[np.bool_]:
    due_ms, position, row = entries["due_ms"], entries["origin"].astype(np.int64), entries["row"]
    in_ms = (position > place.position) | ((position == place.position) & (row > place.row))
    found: npt.NDArray[np.bool_] = (due_ms > place.due_ms) | ((due_ms == place.due_ms) & in_ms)
    return found


def between(
    store: DelayStore, from_ms: int, to_ms: int, topic: int | None
) -> Iterator[tuple[npt.NDArray[Any], memoryview]]:
    """(ENTRY row, record) of what waits and is due in [from_ms, to_ms), in hand-over order."""
    after = from_ms // 1000
    while (second := store.next_waiting(after)) is not None and second * 1000 < to_ms:
        load = store.open_span(second, -(-to_ms // 1000), _LOAD_ROWS)
        while not load.walk(1 << 20)[1]:
            pass
        refs = load.loaded().ref
        store.problems += load.problems()
        for at in range(0, len(refs), 1_024):
            part = refs[at : at + 1_024]
            entries = store.entries(part)
            rows = (entries["due_ms"] >= from_ms) & (entries["due_ms"] < to_ms)
            if topic is not None:
                rows &= entries["topic"] == topic
            _, intact, records = store.verified(part[rows], entries[rows])
            yield from zip(intact, records, strict=True)
        after = load.stop
