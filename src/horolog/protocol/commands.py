"""The one vocabulary of commands and results, shared by all front ends and the core.

A front end turns bytes into commands, submits them to the loop (`Engine.submit(command)`, which
returns a future) and turns the result into bytes.  The docstring of a command says what the core is
to do, and names the type of the result.  A refused command raises `HorologError` from the future;
in a batch, a refused entry holds the `HorologError` as a value.  Times are UTC epoch milliseconds
(`_ms` of a wall clock) or durations in milliseconds, as each field says.
"""
# ruff: noqa: PLC0414 - what is imported as itself is part of this vocabulary

from __future__ import annotations

from dataclasses import dataclass, field

from horolog.protocol.adoption_commands import AdoptionCommand
from horolog.protocol.dead_letter_commands import DeadLetterCommand
from horolog.protocol.history_commands import HistoryCommand
from horolog.protocol.lease_commands import Ack as Ack
from horolog.protocol.lease_commands import Acked as Acked
from horolog.protocol.lease_commands import CancelReceive as CancelReceive
from horolog.protocol.lease_commands import Changed as Changed
from horolog.protocol.lease_commands import ChangeInvisible as ChangeInvisible
from horolog.protocol.lease_commands import Delivered as Delivered
from horolog.protocol.lease_commands import LeaseCommand
from horolog.protocol.lease_commands import Receive as Receive
from horolog.protocol.lease_commands import Received as Received
from horolog.protocol.move_commands import MoveCommand
from horolog.protocol.pending_commands import CountBy as CountBy
from horolog.protocol.pending_commands import CountPending as CountPending
from horolog.protocol.pending_commands import FindMessages as FindMessages
from horolog.protocol.pending_commands import FoundMessage as FoundMessage
from horolog.protocol.pending_commands import ListPending as ListPending
from horolog.protocol.pending_commands import MessageState as MessageState
from horolog.protocol.pending_commands import PendingCommand
from horolog.protocol.pending_commands import PendingCounts as PendingCounts
from horolog.protocol.pending_commands import PendingMessage as PendingMessage
from horolog.protocol.queue_commands import QueueCommand
from horolog.protocol.recall_commands import Recall as Recall
from horolog.protocol.recall_commands import RecallByKey as RecallByKey
from horolog.protocol.recall_commands import RecallCommand
from horolog.protocol.recall_commands import Recalled as Recalled
from horolog.protocol.recall_commands import RecalledMany as RecalledMany
from horolog.protocol.recall_commands import RecallMany as RecallMany
from horolog.protocol.recall_commands import RecallStatus as RecallStatus
from horolog.protocol.recall_commands import Reschedule as Reschedule
from horolog.protocol.recall_commands import Rescheduled as Rescheduled
from horolog.protocol.recall_commands import RescheduleStatus as RescheduleStatus
from horolog.protocol.retry_commands import RetryCommand
from horolog.protocol.schedules import ScheduleCommand
from horolog.protocol.send_commands import DescribeLanes as DescribeLanes
from horolog.protocol.send_commands import LaneView as LaneView
from horolog.protocol.send_commands import MessageType as MessageType
from horolog.protocol.send_commands import NewMessage as NewMessage
from horolog.protocol.send_commands import NewRecords as NewRecords
from horolog.protocol.send_commands import SendMessages as SendMessages
from horolog.protocol.send_commands import Sent as Sent
from horolog.protocol.tier_commands import TierCommand
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
class DescribeGroup:
    """Ask for the progress of a consumer group in each queue of a topic.

    Result: list[GroupQueueView].

    GROUP_NOT_FOUND, TOPIC_NOT_FOUND: there is no such group or topic.
    """

    group: str
    topic: str


@dataclass(slots=True)
class GroupQueueView:
    """Progress of a consumer group in one queue."""

    queue_id: int
    ack_floor: int  # every message below this offset is consumed
    next_offset: int  # lowest offset that was never leased
    waiting: int  # messages that are not consumed, including leased ones
    leased: int  # messages whose lease is not over
    max_offset: int
    min_offset: int = 0  # lowest one still kept


@dataclass(slots=True, frozen=True)
class ReadQueue:
    """Read visible messages of a queue from an offset on, without a consumer group.

    Result: `QueueRead`.

    NOT_FOUND if `first` is below the lowest offset that is kept.
    """

    topic: str
    queue_id: int
    first: int
    limit: int  # messages; the core may return fewer
    max_bytes: int  # of records; a single message may exceed it


@dataclass(slots=True)
class QueueRead:
    """Records as they are in the log: 32 bytes of head, then the stored layout."""

    records: list[bytes]
    next_offset: int  # offset at which to read on; holes are skipped
    min_offset: int  # lowest one still kept
    max_offset: int  # one above the newest


@dataclass(slots=True, frozen=True)
class ClientSeen:
    """Keep the auto-renewed leases of a client alive, after its telemetry or heartbeat.

    Result: None.
    """

    client_id: str


@dataclass(slots=True, frozen=True)
class ClientGone:
    """Note that a client left.  Result: None.

    The polls of the client end empty; messages that it leased with auto-renew become visible soon.
    """

    client_id: str


@dataclass(slots=True, frozen=True)
class DescribeBroker:
    """Ask for the figures of the broker.  Result: `BrokerView`."""


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
    log_start: int = 0  # the log below this position has been dropped by retention
    # Damaged files or records that were repaired from the log, since the directory was made.
    repairs: int = 0
    expired: int = 0  # scheduled messages that were too late to be handed over
    holes: int = 0  # unreadable messages of queues, each counted once since the start
    accepted: int = 0  # messages sent since the start: visible, pending, ended or deleted since


Command = (
    SendMessages
    | DescribeLanes
    | LeaseCommand
    | RecallCommand
    | TopicCommand
    | DescribeGroup
    | PendingCommand
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
