"""Which message types each topic type accepts.  Sends, routes and topic creation use this table."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import MessageType, TopicType

ACCEPTED: dict[TopicType, tuple[MessageType, ...]] = {
    TopicType.NORMAL: (MessageType.NORMAL,),
    TopicType.FIFO: (MessageType.FIFO,),
    TopicType.DELAY: (MessageType.DELAY,),
    TopicType.TRANSACTION: (MessageType.TRANSACTION,),
    TopicType.MIXED: (
        MessageType.NORMAL,
        MessageType.FIFO,
        MessageType.DELAY,
        MessageType.TRANSACTION,
    ),
}


def accepts(type: TopicType, kind: MessageType, *, is_timed: bool) -> bool:
    """Return whether a topic accepts messages of a kind.

    A FIFO message with a due time is also accepted where DELAY messages are.
    """
    if kind is MessageType.FIFO and is_timed and MessageType.DELAY in ACCEPTED[type]:
        return True
    return kind in ACCEPTED[type]


def refusal(
    topic: str, type: TopicType, kind: MessageType, *, is_timed: bool = False
) -> HorologError | None:
    """Return the error for a message that a topic does not accept (TYPE_CONFLICT), else None.

    is_timed  whether the message has a due time
    """
    if accepts(type, kind, is_timed=is_timed):
        return None
    return HorologError(
        ErrorCode.TYPE_CONFLICT,
        f"topic {topic!r} takes {type.value} messages, not {kind.name.lower()}",
        field="message_type",
    )
