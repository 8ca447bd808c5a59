"""The one vocabulary of front ends and core: every front end speaks these commands and gets these results.

A front end turns bytes into commands, hands them to the loop (`Engine.submit(command)`, which gives a future of
the result named in the command's docstring) and turns the result into bytes.  A refused command raises
`HorologError` from that future; in batches an entry that was refused holds the `HorologError` as a value.
Times are UTC epoch milliseconds (`_ms` of a wall clock) or durations in milliseconds, as each field says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from horolog.errors import HorologError


class MessageType(IntEnum):
    """What a message is; the numbers are those of the 5.x protocol."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4


class TopicType(StrEnum):
    """Which messages a topic takes; MIXED takes all."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"


class NewMessage(NamedTuple):
    """A checked message, encoded for the log (`protocol.rocketmq.message.encode`)."""

    record: bytes  # 32 blank bytes (envelope, routing), then the stored layout
    message_id: str
    due_ms: int  # 0: now
    tags_code: int  # Java hash of the tag, int32; 0 without a tag
    key_hash: int  # u64 of (topic, message id)
    type: MessageType


@dataclass(slots=True, frozen=True)
class SendMessages:
    """Store messages of one topic; gives `Sent`.  Each message is atomic, the request is not."""

    topic: str
    messages: list[NewMessage]


@dataclass(slots=True)
class Sent:
    """Per message: its origin (log position), queue, queue offset (−1 while it is scheduled), or a refusal."""

    origins: list[int]
    queue_ids: list[int]
    queue_offsets: list[int]
    refused: dict[int, HorologError] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Receive:
    """Lease up to `batch` messages; gives `Received`, at the latest after `poll_ms`, then empty."""

    group: str
    topic: str
    queue_id: int  # the queue to begin with; −1: any.  All queues are looked at
    filter_expression: str  # TAG expression: "*" or "TagA || TagB"
    batch: int
    invisible_ms: int  # duration of the lease; ignored with auto_renew
    auto_renew: bool
    poll_ms: int  # how long to wait for a first message; 0: answer at once
    client_id: str
    attempt_id: str = ""


class Delivered(NamedTuple):
    """One leased message."""

    layout: bytes  # the stored layout (`protocol.rocketmq.layout.decode`)
    queue_id: int
    queue_offset: int
    attempt: int  # 1 at the first delivery
    receipt_handle: str


@dataclass(slots=True)
class Received:
    """The leased messages, none when the poll ended without any."""

    messages: list[Delivered]


@dataclass(slots=True, frozen=True)
class CancelReceive:
    """The caller of a parked Receive has gone; gives None.  `token` is the future given for the Receive."""

    token: object


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


@dataclass(slots=True)
class Changed:
    """The handle that replaces the old one."""

    receipt_handle: str


class RecallStatus(StrEnum):
    """The truth about a recall (P8), decided by log order."""

    CANCELLED = "CANCELLED"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Recall:
    """Cancel every pending copy of (topic, message id, due time); gives `Recalled`."""

    topic: str
    message_id: str
    due_ms: int
    origin: int = -1  # −1: unknown (handle of five fields, or by id)


@dataclass(slots=True)
class Recalled:
    """What became of it; `detail` is a sentence that begins with the status word."""

    status: RecallStatus
    detail: str
    message_id: str


@dataclass(slots=True, frozen=True)
class CreateTopic:
    """Create a topic, or add queues to it; gives `TopicView`.  Same settings again: no change."""

    name: str
    type: TopicType
    queues: int


@dataclass(slots=True, frozen=True)
class DescribeTopic:
    """Gives `TopicView`; unknown: TOPIC_NOT_FOUND."""

    name: str


@dataclass(slots=True, frozen=True)
class ListTopics:
    """Gives list[TopicView], by name."""


@dataclass(slots=True)
class TopicView:
    """A topic as operators see it."""

    name: str
    type: TopicType
    queues: int
    queue_offsets: list[int]  # next offset of each queue
    pending: int  # scheduled messages that wait


@dataclass(slots=True, frozen=True)
class DescribeGroup:
    """Gives list[GroupQueueView] of a consumer group on a topic; unknown: GROUP_NOT_FOUND / TOPIC_NOT_FOUND."""

    group: str
    topic: str


@dataclass(slots=True)
class GroupQueueView:
    """Progress of a group in one queue."""

    queue_id: int
    ack_floor: int  # everything below is consumed
    next_offset: int  # never leased yet
    leased: int
    max_offset: int


@dataclass(slots=True, frozen=True)
class CountPending:
    """Exact counts of scheduled messages; gives `PendingCounts`.

    hour: None → one row an hour; an hour number (epoch ms // 3 600 000) → one row a second of that hour.
    """

    topic: str = ""
    hour: int | None = None


@dataclass(slots=True)
class PendingCounts:
    """Rows (start of the hour or second in epoch ms, count), only those above zero, in order."""

    total: int
    rows: list[tuple[int, int]]


@dataclass(slots=True, frozen=True)
class ListPending:
    """Messages due in [from_ms, to_ms), in hand-over order; gives list[PendingMessage], at most `limit`."""

    from_ms: int
    to_ms: int
    topic: str = ""
    limit: int = 100


class PendingMessage(NamedTuple):
    """One scheduled message that waits."""

    due_ms: int
    topic: str
    message_id: str
    origin: int
    size: int  # bytes of its record
    layout: bytes


@dataclass(slots=True, frozen=True)
class ClientSeen:
    """A client's session lives (telemetry, heartbeat); its auto-renewed leases are kept; gives None."""

    client_id: str


@dataclass(slots=True, frozen=True)
class ClientGone:
    """A client left: what it holds with auto-renew becomes visible soon; gives None."""

    client_id: str


@dataclass(slots=True, frozen=True)
class DescribeBroker:
    """Gives `BrokerView`."""


@dataclass(slots=True)
class BrokerView:
    """Figures of the whole shard."""

    epoch: int
    log_end: int
    commit_position: int
    durable_position: int
    checkpoint_position: int
    pending: int
    handed_over: int  # since the data directory was made
    recalled: int
    topics: int
    groups: int
    parked_polls: int
    loaded: int  # scheduled messages in the loaded window
    problems: list[str] = field(default_factory=list)  # damage and disk pressure; empty: healthy


Command = (
    SendMessages
    | Receive
    | CancelReceive
    | Ack
    | ChangeInvisible
    | Recall
    | CreateTopic
    | DescribeTopic
    | ListTopics
    | DescribeGroup
    | CountPending
    | ListPending
    | ClientSeen
    | ClientGone
    | DescribeBroker
)
