"""Commands of transactions.

SendHalf             store half messages, which are invisible until their transactions are committed
EndTransaction       commit or roll back a transaction
CheckTransactions    read half messages whose producers are to be asked, and count the check
LookForProducers     retry the checks that wait for a producer of some groups
TopicOfTransaction   ask for the topic of an open transaction
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from horolog.protocol.send_commands import MessageType, NewRecords, SendMessages

TYPE_AT = 4  # offset of the message type in a head as sent


@dataclass(slots=True, frozen=True)
class SendHalf(SendMessages):
    """Store half messages of one topic.  Result: `Sent`.

    The origin of a half message is the log position that identifies its transaction; the queue
    offset is the one that it has among half messages, its `half_offset`.
    """


def as_half(message: NewRecords) -> NewRecords:
    """Return a single message with the type of a half message."""
    assert len(message.sizes) == 1, message.sizes
    records = bytearray(message.records)
    records[TYPE_AT] = MessageType.TRANSACTION
    return NewRecords(bytes(records), message.sizes)


class Resolution(Enum):
    """What a producer says about the outcome of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class EndTransaction:
    """End a transaction.  Result: None.

    INVALID_TRANSACTION_ID if the transaction is not known, or has ended with another outcome.
    Repeating the command is allowed.  Fields that are None are not compared with the transaction.
    """

    position: int
    resolution: Resolution
    topic: str | None = None
    message_id: str | None = None
    group: str | None = None
    half_offset: int | None = None


@dataclass(slots=True, frozen=True)
class CheckTransactions:
    """Count one more check of transactions.  Result: list[TransactionCheck], of those still open.

    The result may have fewer transactions than `positions`: the others are due again later.
    """

    positions: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class LookForProducers:
    """Note that producers of these groups have connected.  Result: None."""

    groups: frozenset[str]


@dataclass(slots=True, frozen=True)
class TopicOfTransaction:
    """Ask for the topic of an open transaction.

    Result: str, "" if none is open at the log position.
    """

    position: int


class CheckDue(NamedTuple):
    """A transaction whose producer has to be asked for the outcome."""

    position: int
    topic: str
    group: str


class TransactionCheck(NamedTuple):
    """A check to send to a producer.

    layout  the half message as it is stored
    checks  how often the producer was asked, this check included
    """

    position: int
    half_offset: int
    topic: str
    group: str
    layout: bytes
    checks: int


TransactionCommand = (
    SendHalf | EndTransaction | CheckTransactions | LookForProducers | TopicOfTransaction
)
