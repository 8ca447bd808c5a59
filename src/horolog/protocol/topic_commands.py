"""Commands about topics: what they are, how many queues they have, what waits in them.

Part of the vocabulary of `protocol.commands`, which gives these names too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from horolog.protocol.rocketmq.late_policy import Late, LatePolicy, policy_of


class TopicType(StrEnum):
    """Which messages a topic takes; MIXED takes all."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"


PERM_WRITE, PERM_READ = 2, 4
PERM_NAMES = {2: "write", 4: "read", 6: "read and write"}


@dataclass(slots=True, frozen=True)
class TopicSettings:
    """What is kept of a topic beside its type and queues; the defaults are RocketMQ's.

    perm          2: it may be sent to, 4: consumed, 6: both.  What waits is handed over whatever it is
    order         whether its messages are in order over all queues' owners: for clients, means nothing here
    read_queues   how many queues routes show to consumers, 0: all
    write_queues  how many queues take new messages, 0: all
    multi_tag     whether a message may have several tags, joined by `||` or commas, of which a consumer wants one; it
                  counts when a message becomes visible
    attributes    everything that a client stored with the topic and that means nothing here
    late          what becomes of a scheduled message that is too late (`late_policy`)
    late_after_ms  how late that is; 0 with hand-over
    """

    perm: int = 6
    order: bool = False
    read_queues: int = 0
    write_queues: int = 0
    attributes: dict[str, object] = field(default_factory=dict)
    late: str = Late.HAND_OVER.value
    late_after_ms: int = 0
    multi_tag: bool = False

    @property
    def late_policy(self) -> LatePolicy:
        """What becomes of its late messages; BAD_REQUEST if that is no policy."""
        return policy_of(self.late, self.late_after_ms)


@dataclass(slots=True, frozen=True)
class CreateTopic:
    """Create a topic; gives `TopicView`.  One that exists just so: no change; any other: TOPIC_EXISTS."""

    name: str
    type: TopicType
    queues: int
    settings: TopicSettings | None = None  # None: the defaults, or whatever the one has that exists


@dataclass(slots=True, frozen=True)
class ChangeTopic:
    """Add queues to a topic, up to `queues` of them, or give it other settings; gives `TopicView`.

    Fewer queues than it has, of whichever kind, are refused; and another type, but of a topic that takes all: its
    messages stay as they are, and new ones must be of that type.
    """

    name: str
    queues: int = 0  # 0: as many as it has
    settings: TopicSettings | None = None  # None: as they are
    type: TopicType | None = None  # None: as it is


@dataclass(slots=True, frozen=True)
class DeleteTopic:
    """Forget a topic, its messages and the progress of groups in it; gives None.  TOPIC_NOT_FOUND.

    FORBIDDEN while messages of it wait.  A topic that is made with this name later is another one.
    """

    name: str


@dataclass(slots=True, frozen=True)
class DescribeTopic:
    """Gives `TopicView`; unknown: TOPIC_NOT_FOUND."""

    name: str
    with_pending: bool = True  # a route does not ask, and what waits need not be counted


NOT_COUNTED = -1  # `pending` of a view that was not to count it


@dataclass(slots=True, frozen=True)
class ListTopics:
    """Gives list[TopicView], by name: at most 1 024 (TURN_TOPICS_MAX) of those after `after`."""

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
    settings: TopicSettings = field(default_factory=TopicSettings)
    open_transactions: int = 0

    @property
    def read_queues(self) -> int:
        """How many queues, from the first one on, consumers are shown."""
        return self.settings.read_queues or self.queues

    @property
    def write_queues(self) -> int:
        """How many queues, from the first one on, new messages go to."""
        return self.settings.write_queues or self.queues


TopicCommand = CreateTopic | ChangeTopic | DeleteTopic | DescribeTopic | ListTopics
