"""What the clients of one address have taken of what all clients share, so that none of them takes it all.

An address counts as a whole, and of IPv6 the network of 64 bits that one machine may have.  Behind a proxy all clients
have its address; then they share among themselves (`--address-share 100`).
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, refused
from horolog.limits import BYTES_UNDER_WAY_MAX, INPUTS_MAX, PARKED_POLLS_MAX

if TYPE_CHECKING:
    from horolog.server.link import Link

_WHOLE = 100


class Bounds:
    """What one address may take, in the same unit as the whole of it.

    percent  of everything; 100: all
    """

    def __init__(self, percent: int, connections: int, unfinished: int) -> None:
        def part(whole: int) -> int:
            return max(1, whole * percent // _WHOLE)

        self.connections = part(connections)
        self.unfinished = part(unfinished)
        self.bytes_under_way = part(BYTES_UNDER_WAY_MAX)
        self.requests = part(INPUTS_MAX)
        self.polls = part(PARKED_POLLS_MAX)


class Share:
    """One address.

    links       its connections
    under_way   bytes of its requests without an answer
    requests    without an answer, but for those that wait for something to happen
    unfinished  bytes of its requests that have not come to their end
    polls       of its requests that wait for messages
    is_stopped  whether nothing is read from it, because of them
    """

    __slots__ = (
        "bounds",
        "is_stopped",
        "key",
        "links",
        "polls",
        "requests",
        "under_way",
        "unfinished",
    )

    def __init__(self, key: str, bounds: Bounds) -> None:
        self.key = key
        self.bounds = bounds
        self.links: set[Link] = set()
        self.under_way = self.requests = self.unfinished = self.polls = 0
        self.is_stopped = False

    @property
    def has_too_much(self) -> bool:
        """Whether nothing more is to be read from it."""
        bounds = self.bounds
        return self.under_way > bounds.bytes_under_way or self.requests > bounds.requests

    @property
    def has_room(self) -> bool:
        """Whether reading may go on."""
        bounds = self.bounds
        return (
            self.under_way <= bounds.bytes_under_way // 2 and self.requests <= bounds.requests // 2
        )

    def hold_poll(self) -> None:
        """One more request waits for messages; TOO_MANY_REQUESTS if they are too many.  `polls` counts it till its end."""
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
    """Whom an address counts for."""
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
