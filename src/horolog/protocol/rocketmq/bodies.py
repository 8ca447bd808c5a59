"""Bodies that a sender has compressed (the stored layout's sysFlag).

4.x clients compress with zlib, and what consumes with them inflates it.  5.x clients know gzip only: some take what is
called GZIP for zlib where it is, others fail.  So they get such a body as it was before.
"""

from __future__ import annotations

import zlib

from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.protocol.rocketmq.layout import COMPRESSED, SYS_FLAG_AT, decode
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES

_HOW = 0x700  # 0 and 0x300: zlib; others are compressions that nothing here knows
_ZLIB = frozenset({0, 0x300})
_FLAGS_AT = RECORD_HEAD_BYTES + SYS_FLAG_AT + 3  # the lowest of the four bytes
_GZIP_MAGIC = b"\x1f\x8b"


def for_5x(body: bytes, sys_flag: int) -> tuple[bytes, bool]:
    """A stored body as a 5.x consumer gets it, and whether that is compressed.

    What does not inflate, or to more than a body may have, stays as it is.
    """
    if not sys_flag & COMPRESSED:
        return body, False
    if sys_flag & _HOW not in _ZLIB or body.startswith(_GZIP_MAGIC):
        return body, True
    inflated = inflate(body, BODY_MAX)
    return (body, True) if inflated is None else (inflated[0], False)


def inflate(packed: bytes, most: int, *, wbits: int = zlib.MAX_WBITS) -> tuple[bytes, bytes] | None:
    """What these bytes inflate to, and those that follow them; None if that is damaged, or more than `most` bytes.

    Deflate makes a thousandth of what repeats: a message of 4 MiB may say that it is one of 4 GiB.

    wbits  as of `zlib.decompressobj`
    """
    inflating = zlib.decompressobj(wbits)
    try:
        plain = inflating.decompress(packed, most + 1)
    except zlib.error:
        return None
    return (plain, inflating.unused_data) if inflating.eof and len(plain) <= most else None


def size_for_5x(record: bytes) -> int:
    """About how many bytes of an answer a 5.x consumer gets for a record: a body of zeros is stored in a thousandth."""
    if not record[_FLAGS_AT] & COMPRESSED:
        return len(record)
    try:
        stored = decode(record[RECORD_HEAD_BYTES:])
    except HorologError:
        return len(record)
    plain, _ = for_5x(stored.body, stored.sys_flag)
    return len(record) - len(stored.body) + len(plain)
