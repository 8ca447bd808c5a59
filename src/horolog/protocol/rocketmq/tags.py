"""The code of a tag: Java's `String.hashCode`, which RocketMQ keeps in its consume queues."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def tags_code(tag: str) -> int:
    """Hash of a tag as a signed 32-bit number: h = 31·h + UTF-16 code unit; "" gives 0."""
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        code = (31 * code + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code
