"""Counts (from directories) and lists (by window) of pending messages: near, far and tier (P10).

What is in the tier is counted by hour and topic; the broker does not know its seconds and messages.

Messages that cannot be filed just now (`DelayStore.stalled`) are counted like the others, and
listed once they are filed.
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

_LOAD_ROWS = 4_096  # rows that a listing loads at once
_NO_HOUR = 1 << 62  # after every hour


def by_hour(
    store: DelayStore, topic: int | None, first: int = 0, stop: int = _NO_HOUR
) -> list[tuple[int, int]]:
    """Return (hour, count) with count > 0 of the hours in [first, stop), in order."""
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
    """Return the due times of messages that are not filed, of one topic or of all."""
    parts = [
        unfiled.heads["due_ms"][slice(None) if topic is None else unfiled.heads["topic"] == topic]
        for unfiled in store.stalled
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def by_day(store: DelayStore, topic: int | None) -> list[tuple[int, int]]:
    """Return (day of the epoch in UTC, count) with count > 0, in order."""
    counts: dict[int, int] = {}
    for hour, n in by_hour(store, topic):
        counts[hour // 24] = counts.get(hour // 24, 0) + n
    return list(counts.items())


def by_topic(store: DelayStore) -> dict[int, int]:
    """Count the pending messages by topic id."""
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
    """Return (second of the epoch, count) with count > 0 of one hour, in order."""
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
    """A place in a listing: after this due time and origin; position −1: before all due then."""

    due_ms: int
    position: int = -1
    row: int = 0


class Page(NamedTuple):
    """A piece of a listing: ENTRY rows, records, and the place to continue at; None at the end."""

    entries: npt.NDArray[Any]
    records: list[memoryview]
    next: ListingPlace | None


def page(store: DelayStore, after: ListingPlace, to_ms: int, topic: int | None, rows: int) -> Page:
    """Read a page of pending messages after a place and due before `to_ms`, in hand-over order.

    A page is as much as a turn may read: the next seconds in which some thousand messages wait, or
    a single second with more.  Messages of other topics are passed over.  `next` may be set though
    the page has no messages.
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
    _, entries, records = store.read_intact(refs[chosen], entries[chosen])
    return Page(entries, records, following)


def _comes_after(entries: npt.NDArray[Any], place: ListingPlace) -> npt.NDArray[np.bool_]:
    due_ms, position, row = entries["due_ms"], entries["origin"].astype(np.int64), entries["row"]
    in_ms = (position > place.position) | ((position == place.position) & (row > place.row))
    found: npt.NDArray[np.bool_] = (due_ms > place.due_ms) | ((due_ms == place.due_ms) & in_ms)
    return found


def between(
    store: DelayStore, from_ms: int, to_ms: int, topic: int | None
) -> Iterator[tuple[npt.NDArray[Any], memoryview]]:
    """Yield (ENTRY row, record) of pending messages due in [from_ms, to_ms), in hand-over order."""
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
            _, intact, records = store.read_intact(part[rows], entries[rows])
            yield from zip(intact, records, strict=True)
        after = load.stop
