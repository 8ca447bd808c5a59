"""Commands of consumers that lease messages: receive, acknowledge, change a lease; and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.limits import REQUEST_BYTES_MAX


@dataclass(slots=True, frozen=True)
class Receive:
    """Lease up to `batch` messages; gives `Received`, at the latest after `poll_ms`, then empty."""

    group: str
    topic: str
    queue_id: int  # the queue to begin with; −1: any.  All queues are looked at
    filter_expression: str  # TAG expression: "*" or "TagA || TagB"; or SQL92
    batch: int
    invisible_ms: int  # duration of the lease; ignored with auto_renew
    auto_renew: bool
    poll_ms: int  # how long to wait for a first message; 0: answer at once
    client_id: str
    attempt_id: str = ""  # in order: who comes again with the same one gets the same messages
    bytes_max: int = REQUEST_BYTES_MAX  # leased messages have fewer, but for the last one
    is_sql: bool = False  # the filter is a SQL92 expression
    gives_up: bool = False  # what was leased as often as the group allows goes to its dead letters
    in_order: bool = False  # as a group whose settings say so
    from_end: bool = False  # where a new group begins: `broker.consume.offsets.Offsets.begin`
    counts_rest: bool = False  # the answer says how many more there are
    inflates: bool = False  # compressed bodies are given as they were before, and count so


class Delivered(NamedTuple):
    """One leased message."""

    layout: bytes  # the stored layout (`protocol.rocketmq.layout.decode`)
    queue_id: int
    queue_offset: int
    attempt: int  # 1 at the first delivery
    receipt_handle: str


@dataclass(slots=True)
class Received:
    """The leased messages, none when the poll ended without any.

    rest  how many of the topic were never leased to the group, if the receive wants to know
    """

    messages: list[Delivered]
    rest: int = 0


@dataclass(slots=True, frozen=True)
class CancelReceive:
    """The caller of a parked Receive or Pull has gone; gives None.

    token   the future given for it
    answer  answer it first, as if its time were over
    """

    token: object
    answer: bool = False


@dataclass(slots=True, frozen=True)
class Ack:
    """Consumed; gives `Acked`."""

    group: str
    topic: str
    receipt_handles: list[str]


@dataclass(slots=True)
class Acked:
    """Per handle: None, or why it was refused (INVALID_RECEIPT_HANDLE)."""

    refused: list[HorologError | None]


@dataclass(slots=True, frozen=True)
class ChangeInvisible:
    """Make a leased message visible again after `invisible_ms` from now (renew or nack); gives `Changed`."""

    group: str
    topic: str
    receipt_handle: str
    invisible_ms: int
    by_group: bool = False  # the pause is that of the group's back-off instead


@dataclass(slots=True)
class Changed:
    """The handle that replaces the old one."""

    receipt_handle: str


LeaseCommand = Receive | CancelReceive | Ack | ChangeInvisible
