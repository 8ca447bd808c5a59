"""Counts (from directories) and lists (by window) of pending messages: near, far and tier (P10).

What is in the tier is counted by hour and topic; the broker does not know its seconds and messages.

Messages that cannot be filed just now (`DelayStore.stalled`) are counted like the others, and
listed once they are filed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.far.run import FarRun
from horolog.delay.near.hour import topic_counts
from horolog.delay.span import SpanLoad
from horolog.delay.state import SECONDS, EntryState
from horolog.delay.store import DelayStore
from horolog.limits import HOUR_MS, SECOND_MS

_LOAD_ROWS = 4_096  # rows that a listing loads at once
_NO_HOUR = 1 << 62  # after every hour


def by_hour(
    store: DelayStore, topic: int | None, first: int = 0, stop: int = _NO_HOUR
) -> list[tuple[int, int]]:
    """Return (hour, count) with count > 0 of the hours in [first, stop), in order."""
    few = [
        (hour_id, hour.waiting if topic is None else hour.by_topic.get(topic, 0))
        for hour_id, hour in store.hours.items()
    ]
    few += store.far.tier.by_hour(topic).items()
    parts = [np.array(few, np.int64).reshape(-1, 2).T]
    parts += [np.stack(source.waiting_by_hour(topic)) for source in store.far.sources()]
    stalled = _stalled_dues(store, topic) // HOUR_MS
    parts.append(np.stack([stalled, np.ones_like(stalled)]))
    hours, waiting = np.concatenate(parts, axis=1)
    inside = (hours >= first) & (hours < stop)
    hours, waiting = hours[inside], waiting[inside]
    order = hours.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(hours[order], prepend=-1))
    sums = np.add.reduceat(waiting[order], starts) if len(starts) else waiting
    rows = zip(hours[order][starts].tolist(), sums.tolist(), strict=True)
    return [(hour_id, n) for hour_id, n in rows if n > 0]


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


class _Chosen(NamedTuple):
    """What a page keeps of the seconds that it loads: `delay.source.Wanted`."""

    after: ListingPlace
    to_ms: int
    topic: int | None
    rows: int

    def matches(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        chosen = (entries["due_ms"] < self.to_ms) & _comes_after(entries, self.after)
        return chosen if self.topic is None else chosen & (entries["topic"] == self.topic)


class PageLoad:
    """A page of pending messages after a place and due before `to_ms`, read in pieces.

    Call `walk` until it returns True, then `page`.  The page has messages that were filed when the
    load began and are pending when it ends, in hand-over order, at most `rows`.  It is read from
    the next seconds in which some thousand messages wait, or from a single second with more.
    Messages of other topics are passed over.  `next` may be set though the page has no messages.
    """

    def __init__(
        self, store: DelayStore, after: ListingPlace, to_ms: int, topic: int | None, rows: int
    ) -> None:
        self._store = store
        self._chosen = _Chosen(after, to_ms, topic, rows + 1)
        self._begin()

    def _begin(self) -> None:
        store, to_ms = self._store, self._chosen.to_ms
        self._sources = _sources_of(store)
        self._load: SpanLoad | None = None
        second = store.next_waiting(self._chosen.after.due_ms // 1000)
        if second is not None and second * 1000 < to_ms:
            self._load = store.open_span(second, -(-to_ms // 1000), _LOAD_ROWS, self._chosen)

    def walk(self, limit: int) -> tuple[int, bool]:
        """Look at up to `limit` messages; return (messages looked at, whether that was all).

        The load begins again if sources were exchanged or dropped since the last call.
        """
        if self._sources != _sources_of(self._store):
            self._begin()
        return (0, True) if self._load is None else self._load.walk(limit)

    def page(self, bytes_max: int) -> Page:
        """Return the page, of at most `bytes_max` bytes of records, or one message.

        Call it in the turn of the last `walk`.
        """
        store, load, to_ms = self._store, self._load, self._chosen.to_ms
        if load is None:
            return Page(store.entries(np.empty(0, np.int64)), [], None)
        refs = load.loaded().ref
        store.problems += load.problems()
        entries = store.entries(refs)
        ends = np.cumsum(entries["size"].astype(np.int64))
        fits = max(1, int(ends.searchsorted(bytes_max, side="right")))
        count = min(fits, self._chosen.rows - 1)
        following: ListingPlace | None = ListingPlace(load.stop * 1000)
        if count < len(refs):
            last = entries[count - 1]
            following = ListingPlace(int(last["due_ms"]), int(last["origin"]), int(last["row"]))
        elif load.stop * 1000 >= to_ms:
            following = None
        refs, entries = refs[:count], entries[:count]
        waits = store.states(refs) == EntryState.WAITING
        _, entries, records = store.read_intact(refs[waits], entries[waits])
        return Page(entries, records, following)


def _sources_of(store: DelayStore) -> list[tuple[int, int]]:
    """Return ids of the sources, and ends of the runs; these change when messages are exchanged."""
    return [
        (each.source_id, each.states.limit if isinstance(each, FarRun) else 0)
        for each in [*store.hours.values(), *store.far.sources()]
    ]


def _comes_after(entries: npt.NDArray[Any], place: ListingPlace) -> npt.NDArray[np.bool_]:
    due_ms, position, row = entries["due_ms"], entries["origin"].astype(np.int64), entries["row"]
    in_ms = (position > place.position) | ((position == place.position) & (row > place.row))
    found: npt.NDArray[np.bool_] = (due_ms > place.due_ms) | ((due_ms == place.due_ms) & in_ms)
    return found
