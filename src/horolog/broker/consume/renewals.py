"""Leases of push consumers, which are renewed as long as their client lives.

A renewal moves the end of a lease and keeps its grant: the client still holds the first handle.  A
client lives while it was seen less than a minute ago; that is checked shortly before a lease ends,
and once a second from then on.  A lease that was renewed for three hours has failed: its message
comes again after the pause of the group's back-off.  So the cost of a turn depends on the leases to
renew, not on all leases.  A client is known only while it holds a lease: client ids that come and
go leave nothing behind.

A start goes on with the leases that were renewed before it, and gives clients a minute to connect
again.  The first renewal comes early, and its record names the client for which the lease is
renewed: the answer to a receive may be lost with the process, and a message that its client does
not know of must not be kept for that client as long as it lives.  While the process goes on, it
notices such answers itself (`server.lease_release`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from horolog.broker.effects import Now
from horolog.broker.shard import Shard
from horolog.limits import (
    AUTO_RENEW_MS,
    CLIENT_EXPIRY_MS,
    CLIENT_GONE_INVISIBLE_MS,
    RENEW_AHEAD_MS,
    RENEW_FIRST_MS,
    SECOND_MS,
)
from horolog.log.control_records import GRANTED, NO_HOLDER, Holder, encode_grant
from horolog.ready.deadlines import Deadlines
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress

_ROWS_MAX = 512  # of one record

GroupQueue: TypeAlias = tuple[int, int, int]  # group, topic, queue
Held: TypeAlias = tuple[int, int, int, int]  # group, topic, queue, queue offset


@dataclass(slots=True)
class _Client:
    """A client that holds leases."""

    seen_at: int  # monotonic ms
    held: set[Held] = field(default_factory=set)


class Renewals:
    """The auto-renewed leases of a shard, ordered by when they must be renewed."""

    def __init__(self, shard: Shard, records: list[bytes]) -> None:
        self._shard = shard
        self._records = records  # control records of this turn
        self._looks: Deadlines[Held] = Deadlines()
        self._holders: dict[Held, str] = {}  # client ids
        self._clients: dict[str, _Client] = {}
        self._resumed: list[Held] = []  # leases taken up by `resume`, until the first turn

    def resume(self, mono_ms: int) -> None:
        """Take up at start the leases that clients hold by the log.

        Leases that the last process has let end are left out.
        """
        newest_ms = self._shard.store_ms
        not_seen = mono_ms - CLIENT_EXPIRY_MS - 1
        for (group, topic), queues in self._shard.ready.progress.items():
            for queue, progress in queues.items():
                for offset, lease in progress.leases.items():
                    if lease.client_id and lease.granted_ms + lease.duration_ms >= newest_ms:
                        held = group, topic, queue, offset
                        self._holders[held] = lease.client_id
                        client = self._clients.setdefault(lease.client_id, _Client(not_seen))
                        client.held.add(held)
                        self._looks.set(held, mono_ms)
                        self._resumed.append(held)

    def note_seen(self, client_id: str, now: Now) -> None:
        """Note that a client has shown that it lives."""
        client = self._clients.get(client_id)
        if client is not None:
            client.seen_at = now.mono_ms

    def hold(self, held: Held, client_id: str, now: Now) -> None:
        """Begin to renew a lease that was granted to a client with auto-renewal."""
        self.release(held)
        client = self._clients.setdefault(client_id, _Client(now.mono_ms))
        client.seen_at = now.mono_ms
        client.held.add(held)
        self._holders[held] = client_id
        self._looks.set(held, now.mono_ms + RENEW_FIRST_MS)

    def release(self, held: Held) -> None:
        """Stop renewing a lease; do nothing if it was not renewed."""
        client_id = self._holders.pop(held, None)
        if client_id is None:
            return
        self._looks.drop(held)
        client = self._clients[client_id]
        client.held.discard(held)
        if not client.held:
            del self._clients[client_id]

    def release_topic(self, topic: int) -> None:
        """Stop renewing the leases of a topic, which is deleted."""
        for held in [held for held in self._holders if held[1] == topic]:
            self.release(held)

    def release_group(self, group: int) -> None:
        """Stop renewing the leases of a group, which is deleted."""
        for held in [held for held in self._holders if held[0] == group]:
            self.release(held)

    def release_client(self, client_id: str, now: Now) -> None:
        """Make the messages that a client holds visible soon, since the client is gone."""
        client = self._clients.get(client_id)
        every = sorted(client.held) if client is not None else []
        left = [held for held in every if self._lease(held, now) is not None]
        self._extend(left, CLIENT_GONE_INVISIBLE_MS, now, kept=False)
        for held in every:
            self.release(held)

    def renew(self, now: Now) -> None:
        """Renew leases that end soon and whose client lives; let the others end."""
        if self._resumed:
            self._extend_resumed(now)
        kept, given_up = [], []
        for held in self._looks.take(now.mono_ms):
            lease = self._lease(held, now)
            if lease is None:
                self.release(held)
            elif now.mono_ms >= lease.renew_until:
                given_up.append((held, lease.attempt))
            elif self._lives(lease, now):
                kept.append(held)
                self._looks.set(held, now.mono_ms + AUTO_RENEW_MS - RENEW_AHEAD_MS)
            else:
                self._looks.set(held, min(now.mono_ms + SECOND_MS, lease.ends_at))
        self._extend(sorted(kept), AUTO_RENEW_MS, now, kept=True)
        for held, attempt in sorted(given_up):
            pause_ms = self._shard.ready.groups.pause_ms(held[0], attempt)
            self._extend([held], pause_ms, now, kept=False)
            self.release(held)

    def _extend_resumed(self, now: Now) -> None:
        """Give all clients time to connect again, in the first turn.

        The new ends of leases are logged, for the next start.
        """
        resumed, self._resumed = self._resumed, []
        self._extend(resumed, CLIENT_EXPIRY_MS, now, kept=True)
        for held in resumed:
            self._looks.set(held, now.mono_ms + CLIENT_EXPIRY_MS - RENEW_AHEAD_MS)

    def next_at(self) -> int | None:
        """Return the monotonic ms when a lease must be renewed or its client checked."""
        return self._looks.first()

    def _lease(self, held: Held, now: Now) -> Lease | None:
        """Return the lease if that client still holds it and it is not over."""
        progress = self._shard.ready.progress_if_any(*held[:3])
        lease = progress.leases.get(held[3]) if progress is not None else None
        if lease is None or lease.client_id != self._holders[held] or lease.ends_at <= now.mono_ms:
            return None
        return lease

    def _lives(self, lease: Lease, now: Now) -> bool:
        seen_at = self._clients[lease.client_id].seen_at
        return now.mono_ms - seen_at <= CLIENT_EXPIRY_MS

    def _extend(self, every: list[Held], duration: int, now: Now, *, kept: bool) -> None:
        """Give leases a new end.

        With `kept` they stay with their clients, otherwise they are held for no client.
        """
        together: dict[tuple[GroupQueue, Holder], list[int]] = {}
        for group, topic, queue, offset in every:
            place = group, topic, queue
            progress = self._shard.ready.progress_of(*place)
            lease = progress.leases[offset]._replace(
                ends_at=now.mono_ms + duration, granted_ms=now.wall_ms, duration_ms=duration
            )
            if not kept:
                lease = lease._replace(client_id="", renew_until=0)
            progress.lease(offset, lease, Event.RENEW)
            together.setdefault((place, self._holder_of(lease)), []).append(offset)
        for (place, holder), offsets in together.items():
            progress = self._shard.ready.progress_of(*place)
            for first in range(0, len(offsets), _ROWS_MAX):
                some = offsets[first : first + _ROWS_MAX]
                self._records.append(regrant_record(place, progress, some, duration, holder))
        for place in dict.fromkeys(place for place, _ in together):
            self._shard.ready.watch(*place)

    def _holder_of(self, lease: Lease) -> Holder:
        """Return the holder for the record of a lease that was given a new end."""
        epoch = lease.grant >> 32
        if lease.client_id:
            return Holder(lease.client_id, lease.renewable_ms, epoch)
        if epoch != self._shard.ready.epoch:
            return NO_HOLDER._replace(epoch=epoch)  # its handle stays good
        return NO_HOLDER

    def check_invariants(self) -> None:
        """Raise AssertionError if a lease is forgotten, or a client without leases is kept."""
        for client_id, client in self._clients.items():
            assert client.held, f"client {client_id} holds nothing"
            assert all(self._holders[held] == client_id for held in client.held), client_id
        n = sum(len(client.held) for client in self._clients.values())
        assert n == len(self._holders) == len(self._looks), (n, len(self._looks))
        for held, at in self._looks.items():
            progress = self._shard.ready.progress_if_any(*held[:3])
            lease = progress.leases.get(held[3]) if progress is not None else None
            assert lease is None or at <= lease.ends_at, (held, at, lease)
        self._looks.check_invariants()


def regrant_record(
    place: GroupQueue,
    progress: QueueProgress,
    offsets: Sequence[int],
    duration: int,
    holder: Holder = NO_HOLDER,
) -> bytes:
    """Build the record of leases that were given a new end, or a new grant."""
    rows = np.zeros(len(offsets), GRANTED)
    for row, offset in enumerate(offsets):
        lease = progress.leases[offset]
        rows[row] = (offset, lease.attempt, lease.grant & 0xFFFFFFFF)
    return encode_grant(*place, progress.next, duration, rows, holder, again=True)
