"""The code of a tag: Java's `String.hashCode`, which RocketMQ keeps in its consume queues."""

from __future__ import annotations

from functools import lru_cache

_CACHED_MAX = 256  # characters; longer ones are rare, and are not kept


def tags_code(tag: str) -> int:
    """Hash of a tag as a signed 32-bit number: h = 31·h + UTF-16 code unit; "" gives 0."""
    return _known(tag) if len(tag) <= _CACHED_MAX else _hash(tag)


def _hash(tag: str) -> int:
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        code = (31 * code + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


_known = lru_cache(maxsize=4_096)(_hash)
