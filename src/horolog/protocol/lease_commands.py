"""Commands of consumers that lease messages: receive, acknowledge and change a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.limits import REQUEST_BYTES_MAX


@dataclass(slots=True, frozen=True)
class Receive:
    """Lease up to `batch` messages.

    Result: `Received`, at the latest after `poll_ms`, then empty.
    """

    group: str
    topic: str
    queue_id: int  # the queue to begin with; −1: any.  All queues are searched
    filter_expression: str  # TAG expression: "*" or "TagA || TagB"; or SQL92
    batch: int
    invisible_ms: int  # duration of the lease; ignored with auto_renew
    auto_renew: bool
    poll_ms: int  # how long to wait for a first message; 0: answer at once
    client_id: str
    attempt_id: str = ""  # in order: repeating a receive with its id returns the same messages
    bytes_max: int = REQUEST_BYTES_MAX  # of all the leased messages; the last one may exceed it
    is_sql: bool = False  # the filter is a SQL92 expression
    gives_up: bool = False  # a message out of attempts goes to the group's dead letters
    in_order: bool = False  # treat the group as if its settings said `orderly`
    from_end: bool = False  # a new group begins as `broker.consume.offsets.Offsets.begin` says
    counts_rest: bool = False  # the result counts the messages that were never leased
    inflates: bool = False  # compressed bodies are returned inflated, and count by that size


class Delivered(NamedTuple):
    """One leased message."""

    layout: bytes  # the stored layout (`protocol.rocketmq.layout.decode`)
    queue_id: int
    queue_offset: int
    attempt: int  # 1 at the first delivery
    receipt_handle: str
    due_ms: int = 0  # 0: never scheduled


@dataclass(slots=True)
class Received:
    """The leased messages; empty when the poll ended without any.

    rest  how many messages of the topic were never leased to the group, if the receive asked
    """

    messages: list[Delivered]
    rest: int = 0


@dataclass(slots=True, frozen=True)
class CancelReceive:
    """Note that the caller of a parked Receive or Pull has gone.  Result: None.

    token   the future of the parked command
    answer  answer the parked command first, as if its poll time were over
    """

    token: object
    answer: bool = False


@dataclass(slots=True, frozen=True)
class Ack:
    """Mark leased messages as consumed.  Result: `Acked`."""

    group: str
    topic: str
    receipt_handles: list[str]


@dataclass(slots=True)
class Acked:
    """For each handle None, or the error that refused it (INVALID_RECEIPT_HANDLE)."""

    refused: list[HorologError | None]


@dataclass(slots=True, frozen=True)
class ChangeInvisible:
    """Make a leased message visible again `invisible_ms` from now (renew or nack).

    Result: `Changed`.
    """

    group: str
    topic: str
    receipt_handle: str
    invisible_ms: int
    by_group: bool = False  # use the pause of the group's back-off instead of `invisible_ms`


@dataclass(slots=True)
class Changed:
    """The receipt handle that replaces the old one."""

    receipt_handle: str


LeaseCommand = Receive | CancelReceive | Ack | ChangeInvisible
