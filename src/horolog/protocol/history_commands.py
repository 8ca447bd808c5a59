"""Commands that ask what has happened to a message, and for lists of messages a page at a time.

The same vocabulary as `protocol.commands`: `Engine.submit(command)` gives a future of the result that the command's
docstring names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from horolog.protocol.pending_commands import FoundMessage, PendingMessage


class MessageEvent(StrEnum):
    """What can happen to a message, as its history names it."""

    PREPARED = "prepared"  # as a half message, whose transaction is open
    ACCEPTED = "accepted"
    MOVED = "moved"  # to another due time, or handed over by request
    OFFLOADED = "offloaded"  # it waits in the tier
    HANDED_OVER = "handed_over"
    LEASED = "leased"
    LEASE_CHANGED = "lease_changed"  # made longer or shorter, or ended, by its consumer
    PASSED_OVER = "passed_over"  # the filter of a group did not want it
    ACKED = "acked"
    CONSUMED = "consumed"  # by a group that has committed an offset after it
    RESET = "reset"  # a group was set back to it
    SENT_BACK = "sent_back"  # a consumer failed, and it waits for another attempt
    DEAD_LETTERED = "dead_lettered"
    REDRIVEN = "redriven"
    RECALLED = "recalled"
    EXPIRED = "expired"  # it was too late to be handed over
    QUARANTINED = "quarantined"


class HistoryEvent(NamedTuple):
    """One thing that has happened; in the order of the log.

    at_ms   epoch ms, None where the instant is not known
    detail  what belongs to it: names with their units last
    """

    event: MessageEvent
    at_ms: int | None
    detail: dict[str, Any]


class GroupState(StrEnum):
    """Where a visible message is for a consumer group."""

    NEW = "new"  # not given out yet
    LEASED = "leased"
    WAITS_AGAIN = "waits_again"  # its lease is over, and it will be given out again
    CONSUMED = "consumed"


class GroupView(NamedTuple):
    """A consumer group that takes from the queue of a message."""

    group: str
    state: GroupState
    attempt: int = 0  # of the newest lease, 0 without one
    leased_ms: int | None = None  # when that began, epoch ms
    lease_ms: int | None = None  # how long it lasts


@dataclass(slots=True, frozen=True)
class ShowMessage:
    """Everything that is known of the messages with an id; gives `MessageHistory`, in which none may be found."""

    topic: str
    message_id: str


@dataclass(slots=True)
class MessageHistory:
    """What was found with an id.

    messages  as `FindMessages` gives them
    complete  whether nothing is missing: retention has dropped nothing of it, and all of the log was looked at
    """

    messages: list[FoundMessage]
    events: list[HistoryEvent] = field(default_factory=list)
    groups: list[GroupView] = field(default_factory=list)  # of the newest one that is visible
    complete: bool = True


@dataclass(slots=True, frozen=True)
class FindTopics:
    """Topics, after one in the order of names, that know a message id: gives `TopicsKnown`.

    Indexes are by topic and id, so each topic is looked up; a turn takes as many as it may, perhaps none has it.
    """

    message_id: str
    after: str = ""


class TopicsKnown(NamedTuple):
    """Some topics; `next` is where to go on, None at the end."""

    topics: list[str]
    next: str | None


class PendingPlace(NamedTuple):
    """Where a listing of pending messages goes on: after the one with this due time and origin.

    position, row  of the origin; −1: before all that are due then
    """

    due_ms: int
    position: int = -1
    row: int = 0


@dataclass(slots=True, frozen=True)
class PagePending:
    """Pending messages that come after a place and are due before `to_ms`, in hand-over order; gives `PendingPage`.

    As many as one turn may look at: perhaps none, although there are more.
    """

    after: PendingPlace
    to_ms: int
    topic: str = ""
    tag: str = ""  # "": any
    limit: int = 100


@dataclass(slots=True)
class PendingPage:
    """Some messages, perhaps none; `next` is where to go on, None at the end."""

    messages: list[PendingMessage]
    next: PendingPlace | None


HistoryCommand = ShowMessage | FindTopics | PagePending
