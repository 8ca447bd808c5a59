"""Commands that ask what has happened to a message, and for lists of messages a page at a time.

Part of the vocabulary of `protocol.commands`: `Engine.submit(command)` returns a future of the
result that the docstring of the command names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from horolog.protocol.pending_commands import FoundMessage, PendingMessage


class MessageEvent(StrEnum):
    """What can happen to a message, as its history calls it."""

    PREPARED = "prepared"  # stored as a half message, whose transaction is open
    ACCEPTED = "accepted"
    MOVED = "moved"  # given another due time, or handed over by request
    OFFLOADED = "offloaded"  # moved into the tier, where it waits
    HANDED_OVER = "handed_over"
    LEASED = "leased"
    LEASE_CHANGED = "lease_changed"  # a consumer made its lease longer or shorter, or ended it
    PASSED_OVER = "passed_over"  # the filter of a group did not match it
    ACKED = "acked"
    CONSUMED = "consumed"  # a group committed an offset after it
    RESET = "reset"  # the progress of a group was set back to it
    SENT_BACK = "sent_back"  # a consumer failed, and it waits for another attempt
    DEAD_LETTERED = "dead_lettered"
    REDRIVEN = "redriven"
    RECALLED = "recalled"
    EXPIRED = "expired"  # it was too late to be handed over
    QUARANTINED = "quarantined"


class HistoryEvent(NamedTuple):
    """One event in the history of a message; histories are in the order of the log.

    at_ms   epoch ms, None where the instant is not known
    detail  further fields of the event, with units as the last part of their names
    """

    event: MessageEvent
    at_ms: int | None
    detail: dict[str, Any]


class GroupState(StrEnum):
    """State of a visible message for a consumer group."""

    NEW = "new"  # never leased
    LEASED = "leased"
    WAITS_AGAIN = "waits_again"  # its lease is over, and it will be delivered again
    CONSUMED = "consumed"


class GroupDelivery(NamedTuple):
    """The delivery of a message to one consumer group that takes from its queue."""

    group: str
    state: GroupState
    attempt: int = 0  # of the newest lease; 0: no lease
    leased_ms: int | None = None  # when the newest lease began, epoch ms
    lease_ms: int | None = None  # duration of the newest lease


@dataclass(slots=True, frozen=True)
class ShowMessage:
    """Ask for all that is known of the messages with an id.

    Result: `MessageHistory`, perhaps empty.
    """

    topic: str
    message_id: str


@dataclass(slots=True)
class MessageHistory:
    """The messages with an id, and their history.

    messages  as `FindMessages` returns them
    complete  whether the history is complete: retention has dropped nothing of it, and the whole
              log was searched
    """

    messages: list[FoundMessage]
    events: list[HistoryEvent] = field(default_factory=list)
    groups: list[GroupDelivery] = field(default_factory=list)  # of the newest visible message
    complete: bool = True


@dataclass(slots=True, frozen=True)
class FindTopics:
    """Find topics that know a message id, among those after `after` by name.

    Result: `TopicsKnown`.

    Indexes are by topic and id, so each topic is looked up.  One turn looks up a limited count of
    topics, so the result may be empty although later topics have the message.
    """

    message_id: str
    after: str = ""


class TopicsKnown(NamedTuple):
    """A page of topics; the search continues after `next` (None: the end)."""

    topics: list[str]
    next: str | None


class PendingPlace(NamedTuple):
    """Where a page of pending messages begins: after the message with this due time and origin.

    position, row  of the origin; −1: before all messages with this due time
    """

    due_ms: int
    position: int = -1
    row: int = 0


@dataclass(slots=True, frozen=True)
class PagePending:
    """List pending messages after a place and due before `to_ms`, in hand-over order.

    Result: `PendingPage`.

    A page is what a bounded piece of the listing has, so it may be empty although more follow.  It
    is read over several turns where many messages are due in one second, and may lack messages that
    are handed over, recalled or rescheduled meanwhile.
    """

    after: PendingPlace
    to_ms: int
    topic: str = ""
    tag: str = ""  # "": any
    limit: int = 100


@dataclass(slots=True)
class PendingPage:
    """A page of pending messages, perhaps none; go on after `next` (None: the end)."""

    messages: list[PendingMessage]
    next: PendingPlace | None


HistoryCommand = ShowMessage | FindTopics | PagePending
