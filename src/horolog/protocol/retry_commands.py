"""Commands about messages that a consumer failed on: another attempt later, or the dead letters of its group.

The same vocabulary as `protocol.commands`.  Another attempt is a message of the group's retry topic
(`%RETRY%group`), and what was tried often enough a message of its dead letters (`%DLQ%group`); both topics are made
when they are needed.  A request that comes again, because its answer was lost, is answered with the first copy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class SendBack:
    """A consumer of `group` failed on the visible message at a log position; gives `Sent` of its copy.

    Without a copy (`Sent` of nothing) if the group's settings say that it keeps no retries.
    GROUP_NOT_FOUND.  NOT_FOUND, DAMAGED: there is no such message, or no longer.
    """

    group: str
    position: int
    level: int = 0  # delay level; 0: 3 + attempts so far; below: to the dead letters
    retry_max: int = -1  # further attempts after the first; −1: as the group's settings say


@dataclass(slots=True, frozen=True)
class SendRetry:
    """A message that a consumer sends to its group's retry topic itself; gives `Sent`.  GROUP_NOT_FOUND.

    It bears its delay level, and how often it has failed, as the client counts.
    """

    group: str
    record: bytes  # of the retry topic, as it is sent (`send_commands`)
    retry_max: int = -1  # as of `SendBack`
    is_last: bool = False  # consumers in order have tried already: to the dead letters


@dataclass(slots=True, frozen=True)
class ForwardToDeadLetters:
    """A consumer of `group` gives a leased message up: it is copied to the dead letters and consumed; gives `Sent`.

    `Sent` of nothing if it is consumed already.  INVALID_RECEIPT_HANDLE: the lease is not (or no longer) the caller's.
    """

    group: str
    topic: str
    receipt_handle: str


RetryCommand = SendBack | SendRetry | ForwardToDeadLetters
