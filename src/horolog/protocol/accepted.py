"""Which messages a topic of each type takes: sends, routes and the creation of topics go by this one table."""

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


def takes(type: TopicType, kind: MessageType, *, is_timed: bool) -> bool:
    """Whether a topic takes a message of that kind; one with a message group and a due time is delayed as well."""
    if kind is MessageType.FIFO and is_timed and MessageType.DELAY in ACCEPTED[type]:
        return True
    return kind in ACCEPTED[type]


def refusal(
    topic: str, type: TopicType, kind: MessageType, *, is_timed: bool = False
) -> HorologError | None:
    """Why a topic does not take a message of that kind; None if it does.

    is_timed  whether it has a due time
    """
    if takes(type, kind, is_timed=is_timed):
        return None
    return HorologError(
        ErrorCode.TYPE_CONFLICT,
        f"topic {topic!r} takes {type.value} messages, not {kind.name.lower()}",
        field="message_type",
    )
