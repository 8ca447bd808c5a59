"""Late policy: what becomes of a scheduled message that would be handed over too late.

A topic has a policy in its settings; a message may have its own in the user property HOROLOG_LATE:

    hand-over           handed over however late it is: the default
    drop 5m             not handed over when it is more than five minutes late
    dead-letter 5m      the same, and it becomes a dead letter, in the topic `%LATE%` + its own

Lateness is counted from the due time, so a policy works as a time to live too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from horolog.errors import HorologError, refused
from horolog.limits import LATE_AFTER_MAX_MS, LATE_AFTER_MIN_MS, TOPIC_NAME_MAX
from horolog.units import format_duration_ms, parse_duration_ms

PROPERTY = "HOROLOG_LATE"
LATE_PREFIX = "%LATE%"


class Late(StrEnum):
    """Action for a message that is too late."""

    HAND_OVER = "hand-over"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"


class LatePolicy(NamedTuple):
    """An action, and the lateness in milliseconds from which on it applies; 0 with HAND_OVER."""

    action: Late = Late.HAND_OVER
    after_ms: int = 0

    def __str__(self) -> str:
        """Return the text that `parse_policy` reads."""
        return (
            f"{self.action} {format_duration_ms(self.after_ms)}" if self.after_ms else self.action
        )

    @property
    def is_default(self) -> bool:
        """Whether all messages are handed over."""
        return self.action is Late.HAND_OVER


def late_topic(topic: str) -> str:
    """Return the topic of the dead letters that were too late for `topic`."""
    return LATE_PREFIX + topic


def policy_of(
    action: str, after_ms: int, field: str = "late", after_field: str = "late_after_ms"
) -> LatePolicy:
    """Build a policy; BAD_REQUEST names the field of the action or of the time."""
    if action not in set(Late):
        raise refused(field, f"{action!r:.40}; hand-over, dead-letter or drop is needed")
    known = Late(action)
    if known is Late.HAND_OVER:
        if after_ms:
            raise refused(after_field, "hand-over is for every lateness: it takes no time")
        return LatePolicy()
    if not LATE_AFTER_MIN_MS <= after_ms <= LATE_AFTER_MAX_MS:
        limit = f"{LATE_AFTER_MIN_MS} to {LATE_AFTER_MAX_MS} ms"
        said = (
            f"{known} after {after_ms} ms"
            if after_ms
            else f"{known} needs a time after which it does"
        )
        raise refused(after_field, f"{said}; {limit} is allowed", limit)
    return LatePolicy(known, after_ms)


def parse_policy(text: str, field: str = PROPERTY) -> LatePolicy:
    """Parse the value of the property; BAD_REQUEST names `field`."""
    action, _, after = text.strip().partition(" ")
    try:
        after_ms = parse_duration_ms(after.strip(), field=field) if after.strip() else 0
    except HorologError as error:
        why = error.message.removeprefix(f"{field}: ")
        raise refused(field, why) from None
    return policy_of(action, after_ms, field, field)


def check_has_room(topic: str, policy: LatePolicy, field: str) -> None:
    """Raise BAD_REQUEST if the dead-letter topic of a topic would have too long a name."""
    most = TOPIC_NAME_MAX - len(LATE_PREFIX)
    if policy.action is Late.DEAD_LETTER and len(topic) > most:
        raise refused(
            field,
            f"dead-letter: the name of topic {topic!r} has {len(topic)} characters, and %LATE% "
            f"before it; at most {most} are allowed",
            f"{most} characters",
        )
