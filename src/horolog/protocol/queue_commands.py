"""Commands of consumers that read queues by offset, as 4.x clients do, and of whoever looks after their groups.

The same vocabulary as `protocol.commands`: `Engine.submit(command)` gives a future of the result that the command's
docstring names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from horolog.limits import TURN_GROUPS_MAX
from horolog.protocol.rocketmq.backoff import Backoff


class PullStatus(IntEnum):
    """What a pull came upon."""

    FOUND = 0
    FILTERED = 1  # a range without a match; go on at `next_offset` at once
    NOTHING = 2  # the end of the queue
    MOVED = 3  # the offset is not one of the queue's; go on at `next_offset`


@dataclass(slots=True, frozen=True)
class Pull:
    """Messages of a queue from an offset on, without leases; gives `Pulled`, at the latest after `poll_ms`."""

    topic: str
    queue_id: int
    first: int
    limit: int  # messages
    max_bytes: int  # of layouts; more only with one message
    filter_expression: (
        str  # TAG expression: hashes are compared, the client compares tags; or SQL92
    )
    poll_ms: int  # how long to wait at the end of the queue; 0: answer at once
    client_id: str = ""
    group: str = ""  # whose settings may forbid it, if it exists; "": nobody's
    is_sql: bool = False  # the filter is a SQL92 expression
    broadcasts: bool = False  # all members of the group get everything
    resumes: bool = False  # past the end of the queue it goes on where the group stands


@dataclass(slots=True)
class Pulled:
    """Stored layouts as they lie in the log."""

    status: PullStatus
    layouts: list[memoryview]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(slots=True, frozen=True)
class CommitOffsets:
    """Everything of these queues below these offsets is consumed, as the group says; gives None.

    An offset below the one before gives messages out again: so a group is set back.  One after the end of its
    queue, or below 0, is refused (BAD_REQUEST), and then none is taken.  What retention has dropped stays dropped.

    afresh  what lies after is new again in any case, whatever became of it: so a group is reset
    """

    group: str
    topic: str
    offsets: dict[int, int]  # queue → next offset to consume
    afresh: bool = False


@dataclass(slots=True, frozen=True)
class GetOffsets:
    """What a group has committed of a topic's queues; gives dict[int, int], without queues it never took from.

    Empty for a group that does not exist.
    """

    group: str
    topic: str


@dataclass(slots=True, frozen=True)
class SearchOffset:
    """Offset of the first message of a queue stored at `store_ms` or later; gives int, at the end the next offset.

    upper  the last one stored at that time or earlier instead; the queue's first one if all are later
    """

    topic: str
    queue_id: int
    store_ms: int
    upper: bool = False


@dataclass(slots=True, frozen=True)
class EarliestStoreTime:
    """When the first message was stored that a queue still has; gives int (epoch ms), −1 if it has none."""

    topic: str
    queue_id: int


@dataclass(slots=True, frozen=True)
class ReadMessage:
    """The visible message at a log position; gives its stored layout (bytes).  NOT_FOUND."""

    position: int


@dataclass(slots=True, frozen=True)
class GroupSettings:
    """What is kept of a consumer group beside its progress; the defaults are RocketMQ's."""

    consume_enable: bool = True
    broadcast_enable: bool = True
    orderly: bool = False
    retry_queues: int = 1
    retry_max: int = 16  # further attempts after the first
    # Pauses between attempts; None: those of RocketMQ's delay levels
    backoff: Backoff | None = None
    # Everything that a client stored with the group and that means nothing here: given back as it came.
    attributes: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class PutGroup:
    """Make a consumer group, or give it other settings (None: as they are, or the defaults); gives `GroupView`."""

    name: str
    settings: GroupSettings | None = None


@dataclass(slots=True, frozen=True)
class ListGroups:
    """Gives list[GroupView], by name: at most `limit` and 1 024 (TURN_GROUPS_MAX) of those after `after`."""

    after: str = ""
    limit: int = TURN_GROUPS_MAX


@dataclass(slots=True, frozen=True)
class CountLags:
    """How far groups are in topics; gives list[Lag], of the first of `pairs`: as many as a turn looks at.

    There is one at least.  Of a group or topic that does not exist there is nothing to consume.
    """

    pairs: list[tuple[str, str]]  # group and topic


@dataclass(slots=True, frozen=True)
class FindGroup:
    """One consumer group; gives `GroupView`.  GROUP_NOT_FOUND."""

    name: str


@dataclass(slots=True, frozen=True)
class DeleteGroup:
    """Forget a consumer group with its progress; gives None.  GROUP_NOT_FOUND."""

    name: str


class GroupView(NamedTuple):
    """A consumer group as operators see it."""

    name: str
    settings: GroupSettings
    topics: list[str]  # that it has progress in


class Lag(NamedTuple):
    """How far a consumer group is in a topic, all queues together.

    waiting   visible and not consumed, what is leased included
    consumed  what lies before it: the sum of the offsets below which everything is consumed
    """

    group: str
    topic: str
    waiting: int
    leased: int
    consumed: int


QueueCommand = (
    Pull
    | CommitOffsets
    | GetOffsets
    | SearchOffset
    | EarliestStoreTime
    | ReadMessage
    | PutGroup
    | ListGroups
    | CountLags
    | FindGroup
    | DeleteGroup
)
