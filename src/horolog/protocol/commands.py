"""The one vocabulary of front ends and core: every front end speaks these commands and gets these results.

A front end turns bytes into commands, hands them to the loop (`Engine.submit(command)`, which gives a future of
the result named in the command's docstring) and turns the result into bytes.  A refused command raises
`HorologError` from that future; in batches an entry that was refused holds the `HorologError` as a value.
Times are UTC epoch milliseconds (`_ms` of a wall clock) or durations in milliseconds, as each field says.
"""
# ruff: noqa: PLC0414 - what is imported as itself is part of this vocabulary

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.limits import REQUEST_BYTES_MAX
from horolog.protocol.adoption_commands import AdoptionCommand
from horolog.protocol.dead_letter_commands import DeadLetterCommand
from horolog.protocol.history_commands import HistoryCommand
from horolog.protocol.move_commands import MoveCommand
from horolog.protocol.queue_commands import QueueCommand
from horolog.protocol.retry_commands import RetryCommand
from horolog.protocol.schedules import ScheduleCommand
from horolog.protocol.send_commands import DescribeLanes as DescribeLanes
from horolog.protocol.send_commands import LaneView as LaneView
from horolog.protocol.send_commands import MessageType as MessageType
from horolog.protocol.send_commands import NewMessage as NewMessage
from horolog.protocol.send_commands import NewRecords as NewRecords
from horolog.protocol.send_commands import SendMessages as SendMessages
from horolog.protocol.send_commands import Sent as Sent
from horolog.protocol.tier_commands import Elsewhere, TierCommand
from horolog.protocol.topic_commands import NOT_COUNTED as NOT_COUNTED
from horolog.protocol.topic_commands import ChangeTopic as ChangeTopic
from horolog.protocol.topic_commands import CreateTopic as CreateTopic
from horolog.protocol.topic_commands import DeleteTopic as DeleteTopic
from horolog.protocol.topic_commands import DescribeTopic as DescribeTopic
from horolog.protocol.topic_commands import ListTopics as ListTopics
from horolog.protocol.topic_commands import TopicCommand as TopicCommand
from horolog.protocol.topic_commands import TopicSettings as TopicSettings
from horolog.protocol.topic_commands import TopicType as TopicType
from horolog.protocol.topic_commands import TopicView as TopicView
from horolog.protocol.transaction_commands import TransactionCommand


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


class RecallStatus(StrEnum):
    """The truth about a recall (P8), decided by log order."""

    CANCELLED = "CANCELLED"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Recall:
    """Cancel every pending copy of (topic, message id, due time); gives `Recalled`.

    Or `LookElsewhere`, if copies may be there and nobody has looked: so do the three below.
    """

    topic: str
    message_id: str
    due_ms: int
    origin: int = -1  # −1: unknown (handle of five fields, or by id)
    elsewhere: Elsewhere | None = None  # what was found there; None: nobody has looked


@dataclass(slots=True)
class Recalled:
    """What became of it; `detail` is a sentence that begins with the status word."""

    status: RecallStatus
    detail: str
    message_id: str
    due_ms: int = 0  # of the message that was meant


@dataclass(slots=True, frozen=True)
class RecallByKey:
    """`Recall` of every message of the topic that has this key; gives list[Recalled], oldest first.

    Only messages whose records the log still holds are found by key.
    """

    topic: str
    key: str


@dataclass(slots=True, frozen=True)
class RecallMany:
    """Cancel all messages of a topic that wait and are due in [from_ms, to_ms); gives `RecalledMany`.

    What is sent after the command has come is left alone.  The answer comes when all is done.
    """

    topic: str
    from_ms: int
    to_ms: int
    tag: str = ""  # "": any
    dry_run: bool = False  # only count
    looked: tuple[int, ...] = ()  # offloads whose rows elsewhere are recalled, or counted


@dataclass(slots=True)
class RecalledMany:
    """How many messages were meant, and how many of them are cancelled: all, or none in a dry run."""

    matched: int
    cancelled: int
    bytes: int  # of the records of those that were meant


class RescheduleStatus(StrEnum):
    """The truth about a reschedule, decided by log order as for a recall."""

    RESCHEDULED = "RESCHEDULED"
    HANDED_OVER = "HANDED_OVER"  # as it was asked for, now
    DUE_TIME_CHANGED = "DUE_TIME_CHANGED"  # it is due at another time than the caller expects
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Reschedule:
    """Let a scheduled message be due at `new_due_ms` instead; gives `Rescheduled`.

    All waiting copies of (topic, message id, due time) go on as one.  A time that has come makes it visible.
    With `now` it is handed over now, by the clock of the step that decides it, and `new_due_ms` is 0.
    """

    topic: str
    message_id: str
    due_ms: int
    new_due_ms: int
    origin: int = -1  # as of `Recall`
    elsewhere: Elsewhere | None = None  # likewise
    now: bool = False
    expected_due_ms: int | None = (
        None  # DUE_TIME_CHANGED if it is due at another time; None: whenever
    )


@dataclass(slots=True)
class Rescheduled:
    """What became of it; the rest describes the new copy, if there is one, as `Sent` does."""

    status: RescheduleStatus
    detail: str  # a sentence that begins with the status word
    message_id: str
    due_ms: int = 0  # also of one whose due time has changed
    origin: int = -1
    queue_id: int = -1
    queue_offset: int = -1
    copies: int = 0  # waiting copies that it replaces


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
    min_offset: int = 0  # lowest one still kept


class CountBy(StrEnum):
    """What a row of `PendingCounts` stands for; days are UTC days."""

    DAY = "day"
    HOUR = "hour"
    SECOND = "second"
    TOPIC = "topic"


@dataclass(slots=True, frozen=True)
class CountPending:
    """Exact counts of scheduled messages; gives `PendingCounts`."""

    topic: str = ""
    hour: int | None = (
        None  # number (epoch ms // 3 600 000): by second of that hour, whatever `by` is
    )
    by: CountBy = CountBy.HOUR  # SECOND needs `hour`
    # By hour: only hours that begin in [from_ms, to_ms).
    from_ms: int = 0
    to_ms: int = 1 << 62
    # By second, of an hour of which something is in a tier: count the rest (`PendingCounts.in_tier`) in place of IN_TIER.
    partly: bool = False


@dataclass(slots=True)
class PendingCounts:
    """Rows (start of the day, hour or second in epoch ms, count), only those above zero, in order.

    By topic there are `topics` instead: (name, count).
    """

    total: int
    rows: list[tuple[int, int]]
    topics: list[tuple[str, int]] = field(default_factory=list)
    in_tier: int = 0  # of that hour, whose seconds only the tier knows; not in `total`


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


class MessageState(StrEnum):
    """What has become of a message."""

    PENDING = "pending"
    DELIVERED = "delivered"  # visible to consumers since it was sent, or handed over
    RECALLED = "recalled"
    MOVED = "moved"  # rescheduled: a copy with another due time took its place
    ENDED = "ended"  # recalled or expired long ago: the log is too long to be looked at for which
    EXPIRED = "expired"  # it was too late to be handed over: dropped, or a dead letter
    IN_TIER = "lake"  # it waits elsewhere, or was recalled before it went there
    QUARANTINED = "quarantined"  # its record does not verify, and is never handed over


@dataclass(slots=True, frozen=True)
class FindMessages:
    """Messages of a topic by id, or by one word of their keys; gives list[FoundMessage], by origin.

    By key only messages are found whose records the log still holds, and adopted ones that wait.
    """

    topic: str
    message_id: str = ""
    key: str = ""


class FoundMessage(NamedTuple):
    """One message that was found."""

    state: MessageState
    topic: str
    message_id: str
    keys: list[str]
    due_ms: int  # 0: it was never scheduled
    origin: int
    queue_id: int
    queue_offset: int  # −1 unless it is visible
    store_ms: int  # when it became visible; of others, when it was sent
    layout: bytes


@dataclass(slots=True, frozen=True)
class ReadQueue:
    """Visible messages of a queue from an offset on, for whoever reads without a group; gives `QueueRead`.

    NOT_FOUND below the lowest offset that is kept.
    """

    topic: str
    queue_id: int
    first: int
    limit: int  # messages; the core may give fewer, and more bytes than `max_bytes` only with one message
    max_bytes: int


@dataclass(slots=True)
class QueueRead:
    """Records as they lie in the log: 32 bytes of head, then the stored layout."""

    records: list[bytes]
    next_offset: int  # where to read on; holes are passed over
    min_offset: int  # lowest one still kept
    max_offset: int  # one above the newest


@dataclass(slots=True, frozen=True)
class ClientSeen:
    """A client's session lives (telemetry, heartbeat); its auto-renewed leases are kept; gives None."""

    client_id: str


@dataclass(slots=True, frozen=True)
class ClientGone:
    """A client left: its polls end empty, what it holds with auto-renew becomes visible soon; gives None."""

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
    log_start: int = 0  # what lay below has been dropped by retention
    # Damaged things that were made whole again from the log, since the directory was made.
    repairs: int = 0
    expired: int = 0  # scheduled messages that were too late to be handed over
    holes: int = 0  # messages of queues that could not be read, each counted once since the start


Command = (
    SendMessages
    | DescribeLanes
    | Receive
    | CancelReceive
    | Ack
    | ChangeInvisible
    | Recall
    | RecallByKey
    | RecallMany
    | Reschedule
    | TopicCommand
    | DescribeGroup
    | CountPending
    | ListPending
    | FindMessages
    | ReadQueue
    | ClientSeen
    | ClientGone
    | DescribeBroker
    | AdoptionCommand
    | TierCommand
    | HistoryCommand
    | MoveCommand
    | QueueCommand
    | RetryCommand
    | DeadLetterCommand
    | TransactionCommand
    | ScheduleCommand
)
