"""Message bodies that a producer has compressed (the stored layout's sysFlag).

4.x producers compress with zlib, and 4.x consumers inflate it.  5.x clients know gzip only: if a
zlib body is labelled GZIP, some inflate it as zlib, others fail.  So they get such a body inflated.
"""

from __future__ import annotations

import zlib

from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.protocol.rocketmq.layout import COMPRESSED, SYS_FLAG_AT, decode
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES

_HOW = 0x700  # 0 and 0x300: zlib; other values are compressions that this code does not know
_ZLIB = frozenset({0, 0x300})
_FLAGS_AT = RECORD_HEAD_BYTES + SYS_FLAG_AT + 3  # the lowest of the four bytes
_GZIP_MAGIC = b"\x1f\x8b"


def for_5x(body: bytes, sys_flag: int) -> tuple[bytes, bool]:
    """Return a stored body as a 5.x consumer gets it, and whether it is compressed.

    A body that does not inflate, or inflates to more than a body may have, is returned unchanged.
    """
    if not sys_flag & COMPRESSED:
        return body, False
    if sys_flag & _HOW not in _ZLIB or body.startswith(_GZIP_MAGIC):
        return body, True
    inflated = inflate(body, BODY_MAX)
    return (body, True) if inflated is None else (inflated[0], False)


def inflate(packed: bytes, most: int, *, wbits: int = zlib.MAX_WBITS) -> tuple[bytes, bytes] | None:
    """Inflate bytes: return the result and the bytes after the compressed stream.

    Return None if the stream is damaged, or inflates to more than `most` bytes.  Deflate shrinks
    repeated bytes to a thousandth: a message of 4 MiB may claim to be one of 4 GiB.

    wbits  as for `zlib.decompressobj`
    """
    inflating = zlib.decompressobj(wbits)
    try:
        plain = inflating.decompress(packed, most + 1)
    except zlib.error:
        return None
    return (plain, inflating.unused_data) if inflating.eof and len(plain) <= most else None


def size_for_5x(record: bytes) -> int:
    """Return about how many bytes a 5.x consumer gets for a record, its body inflated.

    A body of zeros is stored in a thousandth of its size.
    """
    if not record[_FLAGS_AT] & COMPRESSED:
        return len(record)
    try:
        stored = decode(record[RECORD_HEAD_BYTES:])
    except HorologError:
        return len(record)
    plain, _ = for_5x(stored.body, stored.sys_flag)
    return len(record) - len(stored.body) + len(plain)
