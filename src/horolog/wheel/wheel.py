"""The wheel: a calendar queue of seconds, with the coming ten seconds loaded.

A calendar queue (R. Brown, 1988) puts an event on the page of its time without a search, and sorts
a page only when its time comes.  Here a page is one second of a store on disk; the wheel keeps the
pages of the window in memory, each a `Slot` sorted by (due time, origin).

    It is 10:00:00.  A is due at 10:00:07.5, B at 10:00:09, C at 10:00:07.1, D at 13:30:00; no other
    message waits.
    load         next_waiting returns second 7: loaded and sorted, C, A; then second 9: B; then
                 13:30:00, which is beyond the window.  loaded_until = 10:00:11
    next_due_in  7 100 ms, to C; the loop sleeps that long, and nothing ticks meanwhile
    insert       E, due at 10:00:08 and filed now: second 8 is not walked any more, so E goes into
                 the window
    take         at 10:00:07.1: C.  At 10:00:07.5: A.  Then E, then B
    next_due_in  once they are gone: until 13:29:50, when D has to be loaded

The two timing wheels of the literature (Varghese and Lauck, 1987) are other solutions.  A *hashed*
wheel has one ring of slots and puts a timer that is further away than a round into the slot of its
remainder: it looks at that timer once a round, where this wheel never looks at what is not due
within the window.  A *hierarchical* wheel moves a timer from the ring of hours to that of minutes
to that of seconds, so the timer is written several times; here an hour's files have a page for each
second from the beginning, and a run is sorted once, so nothing moves.  Both tick over empty slots;
this wheel asks for the next second in which something waits.

The wheel holds no timer and reads no clock.  `load` reads ahead, in bounded pieces, the seconds in
which something waits; `take` returns what is due; `next_due_in` returns how long nothing will be
due, so that the loop sleeps exactly that long.  When the wheel is late, because the clock was far
ahead of it or the broker was down, it loads many thinly used seconds at once: a message in them
costs as much as one in a crowded second.

`loaded_until` is the first second that is not loaded; rows filed below it must be passed to
`insert`, because the chains there are not walked again.  When the wall clock steps back the cursor
returns to now, and rows beyond the window are forgotten here, not in the hours: their states, not
the cursor, prevent repeats.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from horolog.errors import Problem
from horolog.limits import WINDOW_SECONDS
from horolog.wheel.slot import ORDER_BITS, Column, Slot


def stretches(values: Column) -> Iterator[tuple[int, int]]:
    """Yield the rows [first, stop) of each stretch of equal values, in order."""
    cuts = (np.flatnonzero(np.diff(values)) + 1).tolist()
    return pairwise([0, *cuts, len(values)] if len(values) else [])


class Load(Protocol):
    """A load of the seconds from `second` to before `stop` (`delay.source.SpanLoad`)."""

    second: int
    stop: int

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps; return (steps taken, whether the load is done)."""
        ...

    def loaded(self) -> tuple[Column, Column, Column]:
        """Return seconds, orders and references of the waiting rows, sorted."""
        ...

    def problems(self) -> list[Problem]:
        """Return the problems of damaged parts."""
        ...


class Taken(NamedTuple):
    """Rows that are due, in hand-over order: their seconds, and columns as in `wheel.slot`."""

    second: Column
    order: Column
    ref: Column


_NOTHING = Taken(*(np.empty(0, np.int64) for _ in Taken._fields))


class Store(Protocol):
    """The store of scheduled messages, as far as the wheel uses it (`delay.store.DelayStore`)."""

    def next_waiting(self, second: int) -> int | None:
        """Return the first second at or after `second` in which something waits."""
        ...

    def open_span(self, second: int, stop: int, rows: int) -> Load:
        """Begin to load `second`, and later ones before `stop` until about `rows` rows wait."""
        ...


class Wheel:
    """The loaded window over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slots: dict[int, Slot] = {}
        self._seconds_heap: list[int] = []  # heap of the seconds in _slots
        self._loading: Load | None = None
        self.loaded_until = 0
        self.problems: list[Problem] = []

    @property
    def loaded(self) -> int:
        """Messages in the window."""
        return sum(len(slot) for slot in self._slots.values())

    @property
    def loading_from(self) -> int | None:
        """The first second that is being loaded; None: no load is under way."""
        return None if self._loading is None else self._loading.second

    def refs_before(self, second: int) -> Column:
        """Return the references of all rows in the window that are due before a second."""
        slots = [slot.refs for at, slot in self._slots.items() if at < second]
        return np.concatenate([np.empty(0, np.int64), *slots])

    def check_invariants(self) -> None:
        """Assert that the heap names exactly the slots, and that all lie below `loaded_until`.

        At most the first second that is being loaded is marked as loading.
        """
        heap = self._seconds_heap
        assert sorted(heap) == sorted(self._slots), "the heap does not name the slots"
        assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap))), (
            "the heap of seconds is out of order"
        )
        loading = [second for second, slot in self._slots.items() if slot.loading]
        assert loading == ([] if self._loading is None else [self._loading.second]), loading
        for second, slot in self._slots.items():
            assert second < self.loaded_until, (second, self.loaded_until)
            slot.check_invariants()

    def load(self, wall_ms: int, limit: int) -> bool:
        """Load ahead, taking at most `limit` steps; return False if there is more to do at once."""
        target = wall_ms // 1000 + WINDOW_SECONDS
        if self.loaded_until > target + 2:
            self._step_back_to(target + 1)
        while limit > 0:
            if self._loading is None:
                second = self._next_waiting()
                if second is None or second > target:
                    self.loaded_until = max(self.loaded_until, target + 1)
                    return True
                self._loading = self._store.open_span(second, target + 1, limit)
                self.loaded_until = self._loading.stop
                self._slot(second).loading = True
            assert self._loading.second < self.loaded_until, self.loaded_until
            steps, done = self._loading.walk(limit)
            limit -= steps + 1
            if done:
                self._finish_load(self._loading)
        return False

    def _next_waiting(self) -> int | None:
        """Return the next second to load.

        Never a loaded second, whatever a damaged source states: its rows would be in the window
        twice.
        """
        second = self._store.next_waiting(self.loaded_until)
        return None if second is None else max(second, self.loaded_until)

    def _finish_load(self, load: Load) -> None:
        second, order, ref = load.loaded()
        # The clock may have stepped back meanwhile: later seconds are loaded again in their time.
        n = int(second.searchsorted(self.loaded_until))
        self._insert_sorted(second[:n], order[:n], ref[:n])
        self._slot(load.second).loading = False
        self._loading = None
        self.problems += load.problems()

    def reset(self) -> None:
        """Forget the window and load it again, because an exchange of files changed references."""
        self._slots.clear()
        self._seconds_heap.clear()
        self._loading = None
        self.loaded_until = 0

    def _step_back_to(self, second: int) -> None:
        for late in [s for s in self._slots if s >= second]:
            del self._slots[late]
        self._seconds_heap = sorted(self._slots)
        if self._loading is not None and self._loading.second >= second:
            self._loading = None
        self.loaded_until = second

    def _slot(self, second: int) -> Slot:
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = Slot(loading=False)
            heapq.heappush(self._seconds_heap, second)
        return slot

    def insert(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        ref: npt.NDArray[np.int64],
    ) -> None:
        """Insert rows that were just filed; only those of loaded seconds go into the window."""
        seconds = due_ms // 1000
        near = seconds < self.loaded_until
        if not bool(near.any()):
            return
        seconds, ref = seconds[near], ref[near]
        order = (due_ms[near] % 1000 << ORDER_BITS) | origin[near].astype(np.int64)
        by = np.lexsort((order, seconds))
        self._insert_sorted(seconds[by], order[by], ref[by])

    def _insert_sorted(self, seconds: Column, order: Column, ref: Column) -> None:
        """Put rows, sorted by second and order, into the window."""
        for first, stop in stretches(seconds):
            self._slot(int(seconds[first])).add(order[first:stop], ref[first:stop])

    def take(self, wall_ms: int, limit: int) -> Taken:
        """Remove and return the due rows, in order, at most `limit`."""
        now_s = wall_ms // 1000
        seconds, taken = [], []
        while limit > 0 and self._seconds_heap and self._seconds_heap[0] <= now_s:
            second = self._seconds_heap[0]
            slot = self._slots[second]
            if slot.loading:
                break
            if len(slot):
                before = 1000 if second < now_s else wall_ms % 1000 + 1
                rows = slot.take(before, limit)
                seconds.append(second)
                taken.append(rows)
                limit -= len(rows[0])
            if len(slot):
                break
            heapq.heappop(self._seconds_heap)
            del self._slots[second]
        if not taken:
            return _NOTHING
        orders, refs = zip(*taken, strict=True)
        second_of = np.repeat(np.array(seconds, np.int64), [len(order) for order in orders])
        return Taken(second_of, np.concatenate(orders), np.concatenate(refs))

    def give_back(self, taken: Taken) -> None:
        """Put back rows that `take` returned and that could not be handed over in this turn."""
        assert not len(taken.second) or int(taken.second[-1]) < self.loaded_until, "given back late"
        self._insert_sorted(*taken)

    def overdue_ms(self, wall_ms: int) -> int:
        """Return how long the first message of the window has been due, in ms; 0: it is not due."""
        first = min((second for second, slot in self._slots.items() if len(slot)), default=None)
        if first is None:
            return 0
        return max(0, wall_ms - (first * 1000 + self._slots[first].first_ms()))

    def next_due_in(self, wall_ms: int) -> int | None:
        """Return the ms until a message is due or must be loaded; 0: now; None: nothing waits."""
        waits = []
        while (
            self._seconds_heap
            and not len(slot := self._slots[self._seconds_heap[0]])
            and not slot.loading
        ):
            del self._slots[heapq.heappop(self._seconds_heap)]  # every message in it was recalled
        if self._seconds_heap:
            slot = self._slots[self._seconds_heap[0]]
            if slot.loading:
                return 0
            waits.append(self._seconds_heap[0] * 1000 + slot.first_ms() - wall_ms)
        ahead = self._next_waiting()
        if ahead is not None:
            waits.append((ahead - WINDOW_SECONDS) * 1000 - wall_ms)
        return max(0, min(waits)) if waits else None
