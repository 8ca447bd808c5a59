"""Tags codes: the hash of a tag, and the Bloom filter of several tags.

The code of a single tag is Java's `String.hashCode`, which RocketMQ keeps in its consume queues.
The code of several tags is a Bloom filter of 32 bits: each tag sets up to `BITS_A_TAG` of them.  A
message may have a tag if its code has all bits of the tag, so the texts must be compared after
that.  Of messages with three tags that do not have a wanted tag about one in a hundred passes, with
five tags about one in twenty (`benchmarks.filters`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from xxhash import xxh32_intdigest

BITS_A_TAG = 4
_SEPARATORS = re.compile(r"\|\||,")  # 5.x clients send no tag with a bar
_CACHED_MAX = 256  # characters; longer tags are rare, and are not cached


def tags_code(tag: str) -> int:
    """Return the hash of a tag, a signed 32-bit integer: h = 31·h + UTF-16 code unit; 0 for ""."""
    return _known(tag) if len(tag) <= _CACHED_MAX else _hash(tag)


def _hash(tag: str) -> int:
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        code = (31 * code + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


_known = lru_cache(maxsize=4_096)(_hash)


def split_tags(text: str) -> list[str]:
    """Return the tags of a message that may have several, joined by `||` or by commas."""
    return [tag for piece in _SEPARATORS.split(text) if (tag := piece.strip())]


@lru_cache(maxsize=4_096)
def bits_of_tag(tag: str) -> int:
    """Return the bits of a tag (u32), each given by 5 bits of xxh32 (seed 0) of its UTF-8 name.

    The 5-bit pieces are taken from the lowest bits on.
    """
    hashed, bits = xxh32_intdigest(tag.encode("utf-8", "surrogatepass")), 0
    for i in range(BITS_A_TAG):
        bits |= 1 << (hashed >> 5 * i & 31)
    return bits


def bits_of(tags: Iterable[str]) -> int:
    """Return the code of a message with these tags (u32); 0 without tags."""
    bits = 0
    for tag in tags:
        bits |= bits_of_tag(tag)
    return bits
