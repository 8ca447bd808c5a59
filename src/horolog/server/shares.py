"""Limits for the clients of one address, so that no address uses up what all clients share.

All clients of an IPv4 address count together, and so do those of an IPv6 network of 64 bits, which
one machine may have.  Behind a proxy all clients have the proxy's address; then the limit must be
the whole (`--address-share 100`).
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, refused
from horolog.limits import (
    BYTES_UNDER_WAY_MAX,
    INPUTS_MAX,
    PARKED_POLLS_MAX,
    TELEMETRY_STREAMS_MAX,
)

if TYPE_CHECKING:
    from horolog.server.link import Link

_WHOLE = 100


class Bounds:
    """The limits of one address, each in the unit of the limit for all.

    percent  of every limit; 100: all of it
    """

    def __init__(self, percent: int, connections: int, unfinished: int) -> None:
        def part(whole: int) -> int:
            return max(1, whole * percent // _WHOLE)

        self.connections = part(connections)
        self.unfinished = part(unfinished)
        self.bytes_under_way = part(BYTES_UNDER_WAY_MAX)
        self.requests = part(INPUTS_MAX)
        self.polls = part(PARKED_POLLS_MAX)
        self.streams = part(TELEMETRY_STREAMS_MAX)


class Share:
    """What one address has in use.

    links       its connections
    under_way   bytes of its requests without an answer
    requests    its requests without an answer, except those that wait for an event
    unfinished  bytes of its unfinished requests
    polls       its requests that wait for messages
    streams     its Telemetry streams
    is_stopped  nothing is read from the address, because of `under_way` or `requests`
    """

    __slots__ = (
        "bounds",
        "is_stopped",
        "key",
        "links",
        "polls",
        "requests",
        "streams",
        "under_way",
        "unfinished",
    )

    def __init__(self, key: str, bounds: Bounds) -> None:
        self.key = key
        self.bounds = bounds
        self.links: set[Link] = set()
        self.under_way = self.requests = self.unfinished = self.polls = self.streams = 0
        self.is_stopped = False

    @property
    def has_too_much(self) -> bool:
        """Whether the address is above a limit, so that reading must stop."""
        bounds = self.bounds
        return self.under_way > bounds.bytes_under_way or self.requests > bounds.requests

    @property
    def has_room(self) -> bool:
        """Whether the address is below half of its limits, so that reading may go on."""
        bounds = self.bounds
        return (
            self.under_way <= bounds.bytes_under_way // 2 and self.requests <= bounds.requests // 2
        )

    def count_poll(self) -> None:
        """Count a request that begins to wait for messages; `polls` counts it until its end.

        Raise TOO_MANY_REQUESTS if too many requests of the address wait already.
        """
        if self.polls >= self.bounds.polls:
            raise refused(
                "long_polling_timeout",
                f"{self.polls} polls of {self.key} are waiting already, "
                "the most that are allowed of one address",
                f"{self.bounds.polls} polls",
                code=ErrorCode.TOO_MANY_REQUESTS,
            )
        self.polls += 1


def key_of(address: str) -> str:
    """Return the key of the share that an address belongs to."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = int(found) >> 64 << 64
    return f"{type(found)(network)}/64"
