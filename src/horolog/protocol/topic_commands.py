"""Commands about topics: what they are, how many queues they have, what waits in them.

Part of the vocabulary of `protocol.commands`, which gives these names too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class TopicType(StrEnum):
    """Which messages a topic takes; MIXED takes all."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"


@dataclass(slots=True, frozen=True)
class CreateTopic:
    """Create a topic; gives `TopicView`.  One that exists just so: no change; any other: TOPIC_EXISTS."""

    name: str
    type: TopicType
    queues: int


@dataclass(slots=True, frozen=True)
class ChangeTopic:
    """Add queues to a topic, up to `queues` of them; gives `TopicView`.  As many as it has: no change."""

    name: str
    queues: int


@dataclass(slots=True, frozen=True)
class DescribeTopic:
    """Gives `TopicView`; unknown: TOPIC_NOT_FOUND."""

    name: str
    with_pending: bool = True  # a route does not ask, and what waits need not be counted


NOT_COUNTED = -1  # `pending` of a view that was not to count it


@dataclass(slots=True, frozen=True)
class ListTopics:
    """Gives list[TopicView], by name: at most 1 024 (TURN_TOPICS_MAX) of those behind `after`."""

    after: str = ""
    with_pending: bool = True


@dataclass(slots=True)
class TopicView:
    """A topic as operators see it."""

    name: str
    type: TopicType
    queues: int
    queue_offsets: list[int]  # next offset of each queue
    pending: int  # scheduled messages that wait, or NOT_COUNTED
    min_offsets: list[int] = field(default_factory=list)  # lowest offset of each queue still kept


TopicCommand = CreateTopic | ChangeTopic | DescribeTopic | ListTopics
