"""Codes of tags and message groups for heads of records; codes of short texts are cached."""

from __future__ import annotations

from functools import lru_cache

from horolog.protocol.rocketmq.message_group import NO_GROUP, group_code
from horolog.protocol.rocketmq.tags import tags_code

_CACHED_MAX = 256  # bytes; longer texts are rare, and are not cached


def code_of_tag(tag: bytes) -> int:
    """Return the tags code of a tag."""
    return _known_tag(tag) if len(tag) <= _CACHED_MAX else tags_code(tag.decode())


def code_of_group(group: bytes) -> int:
    """Return the code of a message group; `NO_GROUP` for an empty one."""
    if not group:
        return NO_GROUP
    return _known_group(group) if len(group) <= _CACHED_MAX else group_code(group.decode())


@lru_cache(maxsize=4_096)
def _known_group(group: bytes) -> int:
    return group_code(group.decode())


@lru_cache(maxsize=4_096)
def _known_tag(tag: bytes) -> int:
    return tags_code(tag.decode())
