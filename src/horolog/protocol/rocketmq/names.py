"""Checks of names that clients choose: topics, consumer groups, schedules, attempt ids."""

from __future__ import annotations

import re
from functools import lru_cache

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ATTEMPT_ID_MAX, GROUP_NAME_MAX, SCHEDULE_NAME_MAX, TOPIC_NAME_MAX

_NAME = re.compile(r"[A-Za-z0-9%|_-]+\Z")

LANES_TOPIC = "SCHEDULE_TOPIC_XXXX"  # a queue for each delay level, readable by tools
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        LANES_TOPIC,
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of half messages whose producers could not say how their transactions ended; read-only.

RocketMQ uses the same name.
"""
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
CLOUD_TRACE_PREFIX = "rmq_sys_TRACE_DATA_"
"""Prefix of the topics of message traces of 4.x clients with `AccessChannel.CLOUD`.

A region's name follows.
"""
_SYSTEM_GROUPS = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"}
)
_SYSTEM_GROUP_PREFIXES = ("CID_RMQ_SYS_", "CID_ONSAPI_")


def _check(name: str, what: str, limit: int, code: ErrorCode) -> None:
    if not name or not name.strip():
        raise HorologError(code, f"{what} is blank", field=what)
    if len(name) > limit:
        raise HorologError(
            code,
            f"{what} has {len(name)} characters; at most {limit} are allowed",
            field=what,
            limit=f"{limit} characters",
        )
    if not _NAME.match(name):
        raise HorologError(
            code,
            f"{what} {name!r} has characters other than letters, digits, %, |, _ and -",
            field=what,
            limit="[A-Za-z0-9%|_-]",
        )


@lru_cache(maxsize=4096)
def check_topic(name: str) -> str:
    """Return the name if a client may use it for a topic; raise ILLEGAL_TOPIC otherwise."""
    _check(name, "topic", TOPIC_NAME_MAX, ErrorCode.ILLEGAL_TOPIC)
    if name in SYSTEM_TOPICS or (
        name.startswith(_SYSTEM_TOPIC_PREFIX) and not name.startswith(CLOUD_TRACE_PREFIX)
    ):
        raise HorologError(
            ErrorCode.ILLEGAL_TOPIC, f"topic {name!r} is a system topic", field="topic"
        )
    return name


def check_may_be_made(name: str) -> None:
    """Raise ILLEGAL_TOPIC unless clients may create or change this topic."""
    if name == GIVEN_UP_TOPIC:
        raise HorologError(
            ErrorCode.ILLEGAL_TOPIC, f"topic {name!r} is a system topic", field="topic"
        )
    check_topic(name)


def check_schedule(name: str) -> str:
    """Return the name if it is valid for a recurring schedule; raise BAD_REQUEST otherwise.

    The rules are horolog's own, since RocketMQ has no schedules.
    """
    _check(name, "schedule", SCHEDULE_NAME_MAX, ErrorCode.BAD_REQUEST)
    return name


def is_system_group(name: str) -> bool:
    """Return whether a consumer group belongs to one of RocketMQ's own tools."""
    return name in _SYSTEM_GROUPS or name.startswith(_SYSTEM_GROUP_PREFIXES)


@lru_cache(maxsize=4096)
def check_group_name(name: str) -> str:
    """Return the name if it is valid for a group, RocketMQ's tools included; else ILLEGAL_GROUP."""
    _check(name, "consumer group", GROUP_NAME_MAX, ErrorCode.ILLEGAL_GROUP)
    return name


@lru_cache(maxsize=4096)
def check_group(name: str) -> str:
    """Return the name if a client may use it for a consumer group; else raise ILLEGAL_GROUP."""
    check_group_name(name)
    if is_system_group(name):
        raise HorologError(
            ErrorCode.ILLEGAL_GROUP,
            f"consumer group {name!r} is a system group",
            field="consumer group",
        )
    return name


def check_attempt_id(attempt_id: str, field: str = "attempt_id") -> str:
    """Return the id, by which a repeated receive is recognised.

    BAD_REQUEST, naming `field`, if the id is too long.
    """
    if len(attempt_id) > ATTEMPT_ID_MAX:
        raise refused(
            field,
            f"{len(attempt_id)} characters; at most {ATTEMPT_ID_MAX} are allowed",
            f"{ATTEMPT_ID_MAX} characters",
        )
    return attempt_id
