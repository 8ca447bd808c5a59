"""Commands of transactions.

SendHalf             store messages that nobody sees before their transactions are committed
EndTransaction       commit one, or roll it back
CheckTransactions    read half messages whose producers are to be asked, and count that they are
LookForProducers     producers have come: look again after those that wait for them
TopicOfTransaction   which topic an open one is of
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from horolog.protocol.send_commands import MessageType, NewRecords, SendMessages

TYPE_AT = 4  # in a head as sent


@dataclass(slots=True, frozen=True)
class SendHalf(SendMessages):
    """Store half messages of one topic; gives `Sent`.

    The origin of each is the log position by which its transaction is known, its queue offset is its number among half
    messages.
    """


def as_half(message: NewRecords) -> NewRecords:
    """The same single message, as one of a transaction."""
    assert len(message.sizes) == 1, message.sizes
    records = bytearray(message.records)
    records[TYPE_AT] = MessageType.TRANSACTION
    return NewRecords(bytes(records), message.sizes)


class Resolution(Enum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class EndTransaction:
    """End a transaction; gives None.  INVALID_TRANSACTION_ID if it is not known, or has ended otherwise.

    The same end may be told again.  What is None is not compared.
    """

    position: int
    resolution: Resolution
    topic: str | None = None
    message_id: str | None = None
    group: str | None = None
    number: int | None = None


@dataclass(slots=True, frozen=True)
class CheckTransactions:
    """Count one more check of these transactions; gives list[TransactionCheck] of those that are open still.

    There may be fewer than asked for: the others are due again later.
    """

    positions: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class LookForProducers:
    """Producers of these groups have come."""

    groups: frozenset[str]


@dataclass(slots=True, frozen=True)
class TopicOfTransaction:
    """Gives the topic of the half message of an open transaction; "" if there is none at that log position."""

    position: int


class CheckDue(NamedTuple):
    """A transaction of which somebody has to be asked what became of it."""

    position: int
    topic: str
    group: str


class TransactionCheck(NamedTuple):
    """What a producer is asked.

    layout  the half message as it is stored
    checks  how often it was asked, with this time
    """

    position: int
    number: int
    topic: str
    group: str
    layout: bytes
    checks: int


TransactionCommand = (
    SendHalf | EndTransaction | CheckTransactions | LookForProducers | TopicOfTransaction
)
