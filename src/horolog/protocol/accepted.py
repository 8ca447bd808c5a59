"""Which messages a topic of each type takes: sends, routes and the creation of topics go by this one table."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import MessageType, TopicType

ACCEPTED: dict[TopicType, tuple[MessageType, ...]] = {
    TopicType.NORMAL: (MessageType.NORMAL,),
    TopicType.FIFO: (MessageType.FIFO,),
    TopicType.DELAY: (MessageType.DELAY,),
    TopicType.TRANSACTION: (),
    TopicType.MIXED: (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY),
}
"""Types that take nothing are not supported yet.  Older data directories may have such topics, and open."""

_SUPPORTED = frozenset(kind for kinds in ACCEPTED.values() for kind in kinds)


def check_can_be_made(type: TopicType) -> None:
    """NOT_IMPLEMENTED for a type of topic that takes no message at all."""
    if not ACCEPTED[type]:
        usable = ", ".join(name.value for name, kinds in ACCEPTED.items() if kinds)
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            f"type: {type.value} topics are not supported yet; there are {usable}",
            field="type",
            limit=usable,
        )


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
    if kind not in _SUPPORTED:
        return HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            f"message_type: {kind.name} messages are not supported yet",
            field="message_type",
        )
    if not ACCEPTED[type]:
        return HorologError(
            ErrorCode.TYPE_CONFLICT,
            f"topic {topic!r} is of type {type.value}, which is not supported yet: it takes no messages",
            field="message_type",
        )
    return HorologError(
        ErrorCode.TYPE_CONFLICT,
        f"topic {topic!r} takes {type.value} messages, not {kind.name.lower()}",
        field="message_type",
    )
