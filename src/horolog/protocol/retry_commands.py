"""Commands about messages that a consumer failed on: retry later, or move to the dead letters.

Part of the vocabulary of `protocol.commands`.  Another attempt is a message of the group's retry
topic (`%RETRY%group`); a message that was tried often enough becomes a message of the dead letters
(`%DLQ%group`).  Both topics are created when they are needed.  A request that is repeated, because
its answer was lost, is answered with the first copy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class SendBack:
    """Retry the visible message at a log position, on which a consumer of `group` failed.

    Result: `Sent` of the copy; `Sent` without messages if the group has no queues for retries.

    GROUP_NOT_FOUND; NOT_FOUND or DAMAGED if there is no such message, or no longer.
    """

    group: str
    position: int
    level: int = 0  # delay level; 0: 3 + attempts so far; below 0: to the dead letters
    retry_max: int = -1  # attempts after the first; −1: as the group's settings say


@dataclass(slots=True, frozen=True)
class SendRetry:
    """Store a message that a consumer sends to its group's retry topic itself.  Result: `Sent`.

    The record has the delay level, and how often the message has failed, as the client counts.
    GROUP_NOT_FOUND.
    """

    group: str
    record: bytes  # a record of the retry topic, with a head as sent (`send_commands`)
    retry_max: int = -1  # as in `SendBack`
    is_last: bool = False  # an orderly consumer has tried already: to the dead letters


@dataclass(slots=True, frozen=True)
class ForwardToDeadLetters:
    """Copy a leased message to the dead letters of `group` and consume it.  Result: `Sent`.

    The result is `Sent` without messages if the message is consumed already.

    INVALID_RECEIPT_HANDLE if the lease is not (or no longer) the caller's.
    """

    group: str
    topic: str
    receipt_handle: str


RetryCommand = SendBack | SendRetry | ForwardToDeadLetters
