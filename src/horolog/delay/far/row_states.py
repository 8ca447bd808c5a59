"""States of a run's rows: a pure machine of a few numbers, and one bit a row for the exceptions.

Rows are handed over in their order, so handed-over rows need no bits: they are all rows below the
*cursor*, and rows whose hand-over is appended are all rows below *decided*.  Other states of a row
are kept where the table states:

    event             from                  to                        where it is kept
    hand-over         WAITING               HANDING_OVER              below `decided`, or in
                                                                      `_passed_in_flight`
    … committed       HANDING_OVER          HANDED_OVER               below `cursor`
    passed over       WAITING               WAITING                   `passed`: hand-over must wait
    recall, too late  WAITING               RECALLING                 `_recalling_bits`
    … committed       WAITING or RECALLING  RECALLED, MOVED, EXPIRED  a bit in `maps`
    quarantine        WAITING               QUARANTINED               a bit in `maps`

`state.LEGAL` states which event may come in which state; any other is a bug, and asserted.  A
replay settles waiting rows directly, because nothing is in flight in a replay.

    Worked example: six rows; the disk was full when 0 to 2 were due, so 3 was handed over alone.
    cursor = decided = 4, passed = {0, 1, 2}             waiting: 0 1 2 4 5
    mark 0 and 1:  passed = {2}                          waiting: 2 4 5; in a checkpoint also 0, 1
                   _passed_in_flight = {0, 1}
    … committed:   _passed_in_flight = {}                handed over: 0 1 3
    mark 4, 5:     decided = 6                           waiting: 2
    … committed:   cursor = 6

A checkpoint has the cursor, and the bit maps as `capture` returns them (`delay.far.run_state`).  A
change in flight may be lost, so it is captured as if it had not been appended.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from horolog.delay.far.run_state import MAPPED_STATES
from horolog.delay.source import Rows
from horolog.delay.state import EntryState, check_event

Bits = npt.NDArray[np.uint8]  # row r is bit r % 8 of byte r // 8


class RowStates:
    """States of rows [0, limit) of `count` rows; a merge or an offload took the other rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.limit = count
        self.waiting = count  # rows that wait according to committed records
        self.cursor = 0  # rows below it are handed over, according to committed records
        self.decided = 0  # … according to appended records
        self.maps: dict[EntryState, Bits] = {}
        self.passed: set[int] = set()  # rows below `decided` that wait
        self._passed_in_flight: set[int] = set()  # rows in flight that had been passed over
        self._recalling_bits: Bits | None = None  # rows whose recall is in flight
        self._recalling_count = 0

    # --- events -----------------------------------------------------------------------------------

    def mark(self, rows: Rows, event: EntryState) -> None:
        """Mark rows of which a hand-over or a recall is appended but not yet committed."""
        check_event(self.at(rows), event)
        if event is EntryState.HANDING_OVER:
            if self.passed:
                self._passed_in_flight.update(self.passed.intersection(rows.tolist()))
            self._advance_decided(rows)
            return
        if self._recalling_bits is None:
            self._recalling_bits = _no_bits(self.count)
        set_bits_at(self._recalling_bits, rows)
        self._recalling_count += len(rows)

    def settle(self, rows: Rows, state: EntryState) -> None:
        """Settle rows for good."""
        states = self.at(rows)
        check_event(states, state)
        self.waiting -= int(np.count_nonzero(states != EntryState.QUARANTINED))
        quarantined = self.maps.get(EntryState.QUARANTINED)
        if quarantined is not None:
            clear_bits_at(quarantined, rows)
        if state is EntryState.HANDED_OVER:
            self._advance_decided(rows)
            if self._passed_in_flight:
                self._passed_in_flight.difference_update(rows.tolist())
            self.cursor = max(self.cursor, int(rows.max()) + 1)
            return
        if state not in self.maps:
            self.maps[state] = _no_bits(self.count)
        set_bits_at(self.maps[state], rows)
        if self.passed:
            self.passed.difference_update(rows.tolist())
        self._settle_recalling(rows)

    def _advance_decided(self, rows: Rows) -> None:
        """Move `decided` past these rows; earlier rows that are left out count as passed over."""
        if self.passed:
            self.passed.difference_update(rows.tolist())
        stop = int(rows.max()) + 1
        if stop <= self.decided:
            return
        left = self.left_between(self.decided, stop)
        left[rows[rows >= self.decided] - self.decided] = False
        if bool(left.any()):
            self.passed.update((np.flatnonzero(left) + self.decided).tolist())
        self.decided = stop

    def _settle_recalling(self, rows: Rows) -> None:
        if self._recalling_bits is not None:
            rows = rows[bits_at(self._recalling_bits, rows)]
            clear_bits_at(self._recalling_bits, rows)
            self._recalling_count -= len(rows)
            if not self._recalling_count:
                self._recalling_bits = None

    def cut(self, limit: int) -> None:
        """Give up the rows from `limit` on, none of them handed over: another file has them now."""
        stop, self.limit = self.limit, limit
        self.waiting -= stop - limit - int(self.gone_between(limit, stop).sum())

    # --- checkpoints ------------------------------------------------------------------------------

    def capture(self) -> dict[EntryState, Bits]:
        """Return a copy of the bit maps by committed records; map 0 has the rows passed over."""
        maps = {kind: bits.copy() for kind, bits in self.maps.items()}
        passed = self.passed_rows()
        if len(passed):
            maps[EntryState.WAITING] = _no_bits(self.count)
            set_bits_at(maps[EntryState.WAITING], passed)
        return maps

    def restore(self, cursor: int, limit: int, waiting: int) -> None:
        """Continue where a checkpoint left the run; `restore_maps` adds the exceptions, if any."""
        self.cursor = self.decided = cursor
        self.limit, self.waiting = limit, waiting

    def restore_maps(self, maps: dict[EntryState, Bits]) -> None:
        """Take over the maps that `capture` returned."""
        self.maps = dict(maps)
        passed = self.maps.pop(EntryState.WAITING, None)
        if passed is not None:
            self.passed = set(np.flatnonzero(np.unpackbits(passed, bitorder="little")).tolist())

    # --- questions --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> bool:
        """Whether a change to any of the rows is appended and not yet committed."""
        return (
            self.decided > self.cursor or self._recalling_count > 0 or bool(self._passed_in_flight)
        )

    @property
    def recalling(self) -> bool:
        """Whether a recall of any of the rows is appended and not yet committed."""
        return self._recalling_count > 0

    @property
    def first_left(self) -> int:
        """Where a search for waiting rows may begin: no row below waits, in flight or not."""
        return 0 if self.passed else self.decided

    def at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Return the `EntryState` of each row, with its in-flight bits."""
        states = np.zeros(len(rows), np.uint8)
        states[rows < self.decided] = EntryState.HANDING_OVER
        states[rows < self.cursor] = EntryState.HANDED_OVER
        if self.passed or self._passed_in_flight:
            states[np.isin(rows, list(self.passed))] = EntryState.WAITING
            states[np.isin(rows, list(self._passed_in_flight))] = EntryState.HANDING_OVER
        for kind, bits in self.maps.items():
            states[bits_at(bits, rows)] = kind
        if self._recalling_bits is not None:
            # also if `decided` has passed the row
            states[bits_at(self._recalling_bits, rows)] = EntryState.RECALLING
        return states

    def gone_between(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which rows of [first, stop) are recalled, moved, expired or quarantined."""
        gone = np.zeros(stop - first, bool)
        for bits in self.maps.values():
            gone |= bits_between(bits, first, stop)
        return gone

    def left_between(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which rows of [first, stop) are neither gone nor being recalled.

        Such a row waits unless it is handed over.
        """
        gone = self.gone_between(first, stop)
        if self._recalling_bits is not None:
            gone |= bits_between(self._recalling_bits, first, stop)
        return ~gone

    def count_waiting(self) -> int:
        """Count waiting rows by the bit maps, according to committed records; equals `waiting`."""
        gone = _no_bits(self.count)
        for bits in self.maps.values():
            gone |= bits
        first, stop = min(self.cursor, self.limit), self.limit
        left = stop - first - _count_below(gone, stop) + _count_below(gone, first)
        passed = self.passed_rows()
        passed = passed[passed < self.limit]
        return left + int(np.count_nonzero(~bits_at(gone, passed)))

    def passed_rows(self) -> Rows:
        """Return rows below the cursor that wait according to committed records.

        Rows whose hand-over is in flight are included.
        """
        rows = self.passed | self._passed_in_flight
        return np.array(sorted(row for row in rows if row < self.cursor), np.int64)

    def check_invariants(self) -> None:
        """Assert what must hold of these numbers between any two events."""
        assert 0 <= self.cursor <= self.decided <= self.count
        assert self.limit <= self.count
        assert 0 <= self.waiting <= self.count
        assert not self.passed & self._passed_in_flight
        assert all(row < self.decided for row in self.passed)
        assert self._recalling_count >= 0
        assert (self._recalling_bits is None) == (not self._recalling_count)
        assert self.maps.keys() <= set(MAPPED_STATES) - {EntryState.WAITING}


def _no_bits(count: int) -> Bits:
    return np.zeros((count + 7) // 8, np.uint8)


def _count_below(bits: Bits, stop: int) -> int:
    """Count the rows below `stop` whose bits are set."""
    last = bits[stop >> 3 : (stop + 7) >> 3] & np.uint8((1 << (stop & 7)) - 1)
    return int(np.bitwise_count(bits[: stop >> 3]).sum()) + int(np.bitwise_count(last).sum())


def bits_between(bits: Bits, first: int, stop: int) -> npt.NDArray[np.bool_]:
    """Return the bits of rows [first, stop)."""
    low = first >> 3
    part = np.unpackbits(bits[low : (stop + 7) >> 3], bitorder="little")
    return part[first - low * 8 : stop - low * 8].view(np.bool_)


def bits_at(bits: Bits, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return the bits of these rows."""
    found: npt.NDArray[np.bool_] = (bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1 == 1
    return found


def set_bits_at(bits: Bits, rows: Rows) -> None:
    """Set the bits of these rows."""
    np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))


def clear_bits_at(bits: Bits, rows: Rows) -> None:
    """Clear the bits of these rows."""
    np.bitwise_and.at(bits, rows >> 3, ~(1 << (rows & 7)).astype(np.uint8))
