"""Commands of consumers that read queues by offset, as 4.x clients do, and of group operators.

Part of the vocabulary of `protocol.commands`: `Engine.submit(command)` returns a future of the
result that the docstring of the command names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from horolog.limits import TURN_GROUPS_MAX
from horolog.protocol.rocketmq.backoff import Backoff

RETRIES_MAX = (1 << 31) - 1  # of a message; both protocols count its attempts in 32 bits


class PullStatus(IntEnum):
    """Outcome of a pull."""

    FOUND = 0
    FILTERED = 1  # no message of the range matches; pull at `next_offset` at once
    NOTHING = 2  # the end of the queue
    MOVED = 3  # the queue does not have the offset; pull at `next_offset`


@dataclass(slots=True, frozen=True)
class Pull:
    """Read messages of a queue from an offset on, without leases.

    Result: `Pulled`, at the latest after `poll_ms`.
    """

    topic: str
    queue_id: int
    first: int
    limit: int  # messages
    max_bytes: int  # of layouts; a single message may exceed it
    filter_expression: str  # TAG expression (the broker compares hashes, the client tags) or SQL92
    poll_ms: int  # how long to wait at the end of the queue; 0: answer at once
    client_id: str = ""
    group: str = ""  # settings of an existing group may forbid the pull; "": no group
    is_sql: bool = False  # the filter is a SQL92 expression
    broadcasts: bool = False  # all members of the group get all messages
    resumes: bool = False  # an offset past the end is replaced by the group's progress


@dataclass(slots=True)
class Pulled:
    """Outcome of a pull, with stored layouts as they are in the log."""

    status: PullStatus
    layouts: list[memoryview]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(slots=True, frozen=True)
class CommitOffsets:
    """Mark all messages of the queues below the offsets as consumed by a group.  Result: None.

    An offset below the earlier one makes the group consume messages again: this sets a group back.
    Messages that retention has dropped stay dropped.

    BAD_REQUEST if an offset is below 0 or after the end of its queue; then no offset is committed.

    afresh  messages at or above the offsets are new again, even if they were leased or consumed:
            this resets a group
    """

    group: str
    topic: str
    offsets: dict[int, int]  # queue → next offset to consume
    afresh: bool = False


@dataclass(slots=True, frozen=True)
class GetOffsets:
    """Ask for the committed offsets of a group in a topic.  Result: dict[int, int], queue → offset.

    Queues that the group never consumed from are left out; the result is empty for a group that
    does not exist.
    """

    group: str
    topic: str


@dataclass(slots=True, frozen=True)
class SearchOffset:
    """Find the offset of the first message of a queue stored at `store_ms` or later.

    Result: int; the next offset of the queue if no message is that late.

    upper  find the last message stored at `store_ms` or earlier instead; the first offset of the
           queue if all messages are later
    """

    topic: str
    queue_id: int
    store_ms: int
    upper: bool = False


@dataclass(slots=True, frozen=True)
class EarliestStoreTime:
    """Ask when the first message that a queue still has was stored.

    Result: int (epoch ms), −1 for no message.
    """

    topic: str
    queue_id: int


@dataclass(slots=True, frozen=True)
class ReadMessage:
    """Read the visible message at a log position.  Result: its stored layout (bytes).

    NOT_FOUND if there is no visible message at the position.
    """

    position: int


@dataclass(slots=True, frozen=True)
class GroupSettings:
    """Settings of a consumer group; the defaults are RocketMQ's."""

    consume_enable: bool = True
    broadcast_enable: bool = True
    orderly: bool = False
    retry_queues: int = 1
    retry_max: int = 16  # attempts after the first; −1, which RocketMQ's tools allow, counts as 0
    # Pauses between attempts; None: those of RocketMQ's delay levels
    backoff: Backoff | None = None
    # Attributes that a client stored with the group: no effect here, and returned unchanged
    attributes: dict[str, object] = field(default_factory=dict)

    @property
    def attempts_max(self) -> int:
        """Most attempts of a message: the first, without which nobody would see it, and retries."""
        return min(1 + max(0, self.retry_max), RETRIES_MAX)


@dataclass(slots=True, frozen=True)
class PutGroup:
    """Create a consumer group, or change its settings.  Result: `GroupView`.

    settings  None: keep the settings of an existing group; a new group gets the defaults
    """

    name: str
    settings: GroupSettings | None = None


@dataclass(slots=True, frozen=True)
class ListGroups:
    """List consumer groups after `after` by name.  Result: list[GroupView].

    At most `limit` and at most 1 024 (TURN_GROUPS_MAX) groups are returned.
    """

    after: str = ""
    limit: int = TURN_GROUPS_MAX


@dataclass(slots=True, frozen=True)
class CountLags:
    """Count the lag of groups in topics.  Result: list[Lag], of the first of `pairs`.

    A turn counts as many pairs as fit into it, at least one.  A missing group or topic has no lag.
    """

    pairs: list[tuple[str, str]]  # group and topic


@dataclass(slots=True, frozen=True)
class FindGroup:
    """Find a consumer group.  Result: `GroupView`.  GROUP_NOT_FOUND if there is none."""

    name: str


@dataclass(slots=True, frozen=True)
class DeleteGroup:
    """Delete a consumer group with its progress.

    Result: None.  GROUP_NOT_FOUND if there is none.
    """

    name: str


class GroupView(NamedTuple):
    """A consumer group as operators see it."""

    name: str
    settings: GroupSettings
    topics: list[str]  # in which the group has progress


class Lag(NamedTuple):
    """Lag of a consumer group in a topic, summed over its queues.

    waiting   messages that are visible and not consumed, including leased ones
    leased    messages whose lease is not over
    consumed  messages below the offsets below which everything is consumed, without those that
              retention dropped before
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
