"""Commands about topics: their type, settings and queues, and the messages that wait for them.

Part of the vocabulary of `protocol.commands`, which exports these names too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from horolog.errors import refused
from horolog.protocol.rocketmq.late_policy import Late, LatePolicy, policy_of


class TopicType(StrEnum):
    """Type of a topic, which says which messages it accepts; MIXED accepts all."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"


PERM_WRITE, PERM_READ = 2, 4
PERM_NAMES = {2: "write", 4: "read", 6: "read and write"}


def check_perm(perm: int, given: int) -> None:
    """Raise BAD_REQUEST unless a topic can have a permission; `given` is as the client wrote it."""
    if perm not in PERM_NAMES:
        raise refused("perm", f"{given}; 2 (write), 4 (read) and 6 (both) are allowed", "2, 4 or 6")


@dataclass(slots=True, frozen=True)
class TopicSettings:
    """Settings of a topic beside its type and queues; the defaults are RocketMQ's.

    perm          2: producers may send, 4: consumers may consume, 6: both.  Scheduled messages are
                  handed over whatever it is
    order         whether messages are ordered over all brokers' queues: for clients, no effect here
    read_queues   how many queues routes show to consumers, 0: all
    write_queues  how many queues take new messages, 0: all
    multi_tag     whether a message may have several tags, joined by `||` or commas, of which a
                  consumer wants one; it counts when a message becomes visible
    attributes    attributes that a client stored with the topic and that have no effect here
    late          what becomes of a scheduled message that is too late (`late_policy`)
    late_after_ms  how late too late is; 0 with hand-over
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
        """Late policy of the topic; BAD_REQUEST if `late` and `late_after_ms` are not one."""
        return policy_of(self.late, self.late_after_ms)


@dataclass(slots=True, frozen=True)
class CreateTopic:
    """Create a topic.  Result: `TopicView`.

    An existing topic of the same type, queues and settings is left alone; TOPIC_EXISTS if one of
    them differs.
    """

    name: str
    type: TopicType
    queues: int
    settings: TopicSettings | None = None  # None: the defaults, or those of the existing topic


@dataclass(slots=True, frozen=True)
class ChangeTopic:
    """Raise the queues of a topic to `queues`, or change its settings or type.

    Result: `TopicView`.

    Fewer queues than the topic has, also fewer read or write queues, are refused.  Only a topic
    that accepts all messages (MIXED) may get another type: its messages stay as they are, and new
    ones must be of that type.
    """

    name: str
    queues: int = 0  # 0: unchanged
    settings: TopicSettings | None = None  # None: unchanged
    type: TopicType | None = None  # None: unchanged


@dataclass(slots=True, frozen=True)
class DeleteTopic:
    """Delete a topic, its messages and the progress of groups in it.

    Result: None.  TOPIC_NOT_FOUND if there is none.

    FORBIDDEN while messages of the topic are pending, its transactions are open, or a schedule
    sends to it; DISK_FULL while messages cannot be filed.  A topic that is later created with this
    name is another topic.
    """

    name: str


@dataclass(slots=True, frozen=True)
class DescribeTopic:
    """Ask for one topic.  Result: `TopicView`.  TOPIC_NOT_FOUND if there is none."""

    name: str
    with_pending: bool = True  # False for a route, which needs no count of pending messages


NOT_COUNTED = -1  # `TopicView.pending` if it was not asked for


@dataclass(slots=True, frozen=True)
class ListTopics:
    """List topics after `after` by name, at most 1 024 (TURN_TOPICS_MAX).

    Result: list[TopicView].
    """

    after: str = ""
    with_pending: bool = True


@dataclass(slots=True)
class TopicView:
    """A topic as operators see it."""

    name: str
    type: TopicType
    queues: int
    queue_offsets: list[int]  # next offset of each queue
    pending: int  # pending messages, or NOT_COUNTED
    min_offsets: list[int] = field(default_factory=list)  # lowest offset that each queue still has
    settings: TopicSettings = field(default_factory=TopicSettings)
    open_transactions: int = 0

    @property
    def read_queues(self) -> int:
        """How many queues, from the first one on, routes show to consumers."""
        return self.settings.read_queues or self.queues

    @property
    def write_queues(self) -> int:
        """How many queues, from the first one on, take new messages."""
        return self.settings.write_queues or self.queues


TopicCommand = CreateTopic | ChangeTopic | DeleteTopic | DescribeTopic | ListTopics
