"""What became of the rows of a run, in a few numbers and one bit a row for the exceptions.

    event          from                     to              where it is kept
    hand-over      WAITING                  HANDING_OVER    below `decided`, or `_handing` if it was behind
    … committed    HANDING_OVER             HANDED_OVER     below `cursor`
    passed over    WAITING                  WAITING         `behind`: its hand-over had to wait
    recall         WAITING                  RECALLING       `_going`
    … committed    WAITING or RECALLING     RECALLED, MOVED a bit in `maps`
    quarantine     WAITING                  QUARANTINED     a bit in `maps`

`LEGAL` is that table; an event that is not in it is a bug, and asserted.  A replay settles what it finds waiting,
because nothing is in flight in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from horolog.delay.far.run_state import MAPPED_STATES
from horolog.delay.source import Rows
from horolog.delay.state import EntryState, check_event


class RowStates:
    """The states of rows [0, limit) of `rows` rows."""

    def __init__(self, rows: int) -> None:
        self.cursor = self.decided = 0  # handed over by what is committed; by what is appended
        self.limit = rows
        self.maps: dict[EntryState, npt.NDArray[np.uint8]] = {}
        self.behind: set[int] = set()  # rows below `decided` that wait
        self._rows = rows
        self._handing: set[int] = set()  # rows in flight that were behind
        self._going: npt.NDArray[np.uint8] | None = None  # bits of rows in flight to be recalled
        self._going_rows = 0

    @property
    def in_flight(self) -> bool:
        """Whether something appended about this run is not committed yet."""
        return self.decided > self.cursor or self._going_rows > 0 or bool(self._handing)

    @property
    def recalling(self) -> bool:
        """Whether a recall of some of its rows is appended but not committed yet."""
        return self._going_rows > 0

    def gone_between(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Of rows [first, stop): recalled, moved or quarantined."""
        gone = np.zeros(stop - first, bool)
        for bits in self.maps.values():
            gone |= bits_between(bits, first, stop)
        return gone

    def _left_between(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Of rows [first, stop): neither gone nor in flight to be; they wait if they are not handed over."""
        gone = self.gone_between(first, stop)
        if self._going is not None:
            gone |= bits_between(self._going, first, stop)
        return ~gone

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits."""
        states = np.zeros(len(rows), np.uint8)
        states[rows < self.decided] = EntryState.HANDING_OVER
        states[rows < self.cursor] = EntryState.HANDED_OVER
        if self.behind or self._handing:
            states[np.isin(rows, list(self.behind))] = EntryState.WAITING
            states[np.isin(rows, list(self._handing))] = EntryState.HANDING_OVER
        for kind, bits in self.maps.items():
            states[bits_at(bits, rows)] = kind
        if self._going is not None:
            # also when `decided` has passed it
            states[bits_at(self._going, rows)] = EntryState.RECALLING
        return states

    def mark(self, rows: Rows, bits: EntryState) -> None:
        """A hand-over or a recall of these rows is appended but not committed yet."""
        check_event(self.states_at(rows), bits)
        if bits is EntryState.HANDING_OVER:
            if self.behind:
                self._handing.update(self.behind.intersection(rows.tolist()))
            self._pass(rows)
            return
        if self._going is None:
            self._going = np.zeros((self._rows + 7) // 8, np.uint8)
        set_bits_at(self._going, rows)
        self._going_rows += len(rows)

    def put(self, rows: Rows, state: EntryState) -> None:
        """These rows are settled for good."""
        check_event(self.states_at(rows), state)
        quarantined = self.maps.get(EntryState.QUARANTINED)
        if quarantined is not None:
            clear_bits_at(quarantined, rows)
        if state is EntryState.HANDED_OVER:
            self._pass(rows)
            if self._handing:
                self._handing.difference_update(rows.tolist())
            self.cursor = max(self.cursor, int(rows.max()) + 1)
        else:
            self.set_bits(rows, state)
            self.behind.difference_update(rows.tolist() if self.behind else ())
            self._settle_going(rows)

    def _pass(self, rows: Rows) -> None:
        """Hand-over takes these rows; what it leaves out stays behind."""
        if self.behind:
            self.behind.difference_update(rows.tolist())
        stop = int(rows.max()) + 1
        if stop <= self.decided:
            return
        left = self._left_between(self.decided, stop)
        left[rows[rows >= self.decided] - self.decided] = False
        if bool(left.any()):
            self.behind.update((np.flatnonzero(left) + self.decided).tolist())
        self.decided = stop

    def _settle_going(self, rows: Rows) -> None:
        if self._going is not None:
            rows = rows[bits_at(self._going, rows)]
            clear_bits_at(self._going, rows)
            self._going_rows -= len(rows)
            if not self._going_rows:
                self._going = None

    def set_bits(self, rows: Rows, state: EntryState) -> None:
        """Set the bits of these rows in the map of that state."""
        assert state in MAPPED_STATES
        bits = self.maps.get(state)
        if bits is None:
            bits = self.maps[state] = np.zeros((self._rows + 7) // 8, np.uint8)
        set_bits_at(bits, rows)

    def _behind_cursor(self) -> Rows:
        """Rows below the cursor that wait by what is committed: also those whose hand-over is in flight."""
        rows = self.behind | self._handing
        return np.array(sorted(row for row in rows if row < self.cursor), np.int64)

    def check_states(self) -> None:
        """Assert what must hold of these numbers between any two events."""
        assert 0 <= self.cursor <= self.decided <= self._rows
        assert self.limit <= self._rows
        assert not self.behind & self._handing
        assert all(row < self.decided for row in self.behind)
        assert self._going_rows >= 0
        assert (self._going is None) == (not self._going_rows)


def bits_of(rows: Rows, count: int) -> npt.NDArray[np.uint8]:
    """A bit map of `count` rows in which these are set."""
    flags = np.zeros(count, np.uint8)
    flags[rows] = 1
    return np.packbits(flags, bitorder="little")


def bits_between(bits: npt.NDArray[np.uint8], first: int, stop: int) -> npt.NDArray[np.bool_]:
    """The bits of rows [first, stop)."""
    low = first >> 3
    part = np.unpackbits(bits[low : (stop + 7) >> 3], bitorder="little")
    return part[first - low * 8 : stop - low * 8].view(np.bool_)


def bits_at(bits: npt.NDArray[np.uint8], rows: Rows) -> npt.NDArray[np.bool_]:
    """The bits of these rows."""
    found: npt.NDArray[np.bool_] = (bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1 == 1
    return found


def set_bits_at(bits: npt.NDArray[np.uint8], rows: Rows) -> None:
    """Set the bits of these rows."""
    np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))


def clear_bits_at(bits: npt.NDArray[np.uint8], rows: Rows) -> None:
    """Clear the bits of these rows."""
    np.bitwise_and.at(bits, rows >> 3, ~(1 << (rows & 7)).astype(np.uint8))
