"""The leases of a group in one queue, by queue offset; a checkpoint's snapshot is copy-on-write.

A checkpoint needs all leases as they are at one log position, and there may be a million: to copy
them would be a turn of a hundred milliseconds.  So leases are kept in parts of 256 offsets.
`frozen` returns the parts themselves, and a shared part is copied before it is changed: at most
once for each checkpoint, and only parts that change.

Example.  Parts 0, 1 and 2 are frozen.  An ack in part 1 copies the part, and removes the lease from
the copy; the checkpoint still has the old part.  The next ack in part 1 needs no copy.  Parts 0 and
2 are never copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from horolog.limits import AUTO_RENEW_TOTAL_MAX_MS, MINUTE_MS

_PART_BITS = 8  # low bits of an offset; 2 048 acks copy at most 2 048 parts, each in some 5 µs


class Lease(NamedTuple):
    """The newest grant of one queue offset; times are monotonic ms, `granted_ms` is wall time."""

    attempt: int
    grant: int
    ends_at: int
    granted_ms: int
    duration_ms: int
    client_id: str = ""  # set with auto_renew: the lease is renewed while that client lives
    renew_until: int = 0

    @property
    def renewable_ms(self) -> int:
        """How long the lease may be renewed, in ms, from its newest grant or renewal on.

        Whole minutes, so that leases given out at about the same time have the same value and share
        a record.
        """
        left_ms = self.renew_until - (self.ends_at - self.duration_ms)
        return max(0, left_ms // MINUTE_MS * MINUTE_MS)

    @property
    def is_renewed(self) -> bool:
        """Whether the lease was renewed for its client, which therefore has the message."""
        return self.client_id != "" and self.renewable_ms < AUTO_RENEW_TOTAL_MAX_MS


_NO_PART: Mapping[int, Lease] = {}


class Leases:
    """The leases of a group in one queue, by queue offset."""

    __slots__ = ("_count", "_is_given", "_own", "_parts")

    def __init__(self) -> None:
        self._count = 0
        self._parts: dict[int, dict[int, Lease]] = {}  # by offset >> _PART_BITS; none is empty
        self._is_given = False  # `frozen` has shared all parts except those in `_own`
        self._own: set[int] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the leased offsets, in no order."""
        return chain.from_iterable(self._parts.values())

    def __contains__(self, offset: int) -> bool:
        part = self._parts.get(offset >> _PART_BITS)
        return part is not None and offset in part

    def __getitem__(self, offset: int) -> Lease:
        return self._parts[offset >> _PART_BITS][offset]

    def get(self, offset: int) -> Lease | None:
        """Return the lease of an offset; None if it has none."""
        part = self._parts.get(offset >> _PART_BITS)
        return None if part is None else part.get(offset)

    def items(self) -> Iterator[tuple[int, Lease]]:
        """Yield (offset, lease) pairs, in no order."""
        return chain.from_iterable(part.items() for part in self._parts.values())

    def has_any(self, offsets: Sequence[int]) -> bool:
        """Return whether any of the offsets (one or more) is leased."""
        number = min(offsets) >> _PART_BITS
        if max(offsets) >> _PART_BITS == number:
            return not self._parts.get(number, _NO_PART).keys().isdisjoint(offsets)
        return any(map(self.__contains__, offsets)) if self._count else False

    def __setitem__(self, offset: int, lease: Lease) -> None:
        part = self._part(offset >> _PART_BITS)
        before = len(part)
        part[offset] = lease
        self._count += len(part) - before

    def update(self, leases: Mapping[int, Lease]) -> None:
        """Set one or more leases; those of one receive are mostly in one part."""
        number = min(leases) >> _PART_BITS
        if max(leases) >> _PART_BITS == number:
            part = self._part(number)
            before = len(part)
            part.update(leases)
            self._count += len(part) - before
        else:
            for offset, lease in leases.items():
                self[offset] = lease

    def __delitem__(self, offset: int) -> None:
        number = offset >> _PART_BITS
        part = self._part(number)
        del part[offset]
        self._count -= 1
        if not part:
            del self._parts[number]

    def pop(self, offset: int) -> Lease | None:
        """Remove and return the lease of an offset; None if it has none."""
        lease = self.get(offset)
        if lease is not None:
            del self[offset]
        return lease

    def clear(self) -> None:
        """Remove all leases."""
        self._parts.clear()
        self._is_given, self._own = False, None
        self._count = 0

    def _part(self, number: int) -> dict[int, Lease]:
        """Return a part that may be changed: a new one, or a copy if it is shared."""
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = {}
        elif not self._is_given or (self._own is not None and number in self._own):
            return part
        else:
            part = self._parts[number] = part.copy()
        if self._is_given:
            if self._own is None:
                self._own = set()
            self._own.add(number)
        return part

    def frozen(self) -> list[Mapping[int, Lease]]:
        """Return a snapshot that later changes do not touch; another thread may read it.

        Allocates nothing that stays in memory: there may be tens of thousands of queues, all in one
        turn.
        """
        self._is_given, self._own = True, None
        return list(self._parts.values())

    def check_invariants(self) -> None:
        """Assert that each lease is in its own part, and that no part is empty."""
        assert all(self._parts.values()), "an empty part"
        assert self._count == sum(map(len, self._parts.values())), self._count
        assert self._is_given or self._own is None
        for number, part in self._parts.items():
            assert all(offset >> _PART_BITS == number for offset in part), number
