"""Receipt handles: the text by which a client acks a message or changes its lease.

A handle is base64url without padding of a version byte, the fields of `Receipt` and a CRC; the
version keeps old handles readable when fields are added.  Clients treat a handle as opaque.

A handle names one grant.  It is valid until the lease ends or a newer grant of the same queue
offset exists.  A handle of an older epoch (before a restart) is valid under the same rule; if the
restart lost the record of its grant (which no reply waits for), it is valid until the expiry time
in it.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError, refused

_VERSION = 1
_FRONT = struct.Struct("<BIII")  # first fields, the same in all handles of one place
_OWN = struct.Struct("<IIIQq")
_FIELDS = struct.Struct(_FRONT.format + _OWN.format[1:])
_CRC = struct.Struct("<I")
_BYTES = _FIELDS.size + _CRC.size
_WHOLE = struct.Struct(_FIELDS.format + "I")
assert _WHOLE.size == _BYTES
assert _BYTES % 3 == 0, "base64 of handles that are joined is the joined base64 of each"
_CHARACTERS = _BYTES // 3 * 4
_STANDARD = bytes.maketrans(b"-_", b"+/")


class Receipt(NamedTuple):
    """One grant of one message to one group."""

    group: int
    topic: int
    queue: int
    attempt: int
    grant: int
    epoch: int
    offset: int
    expires_ms: int  # wall clock; used only when the grant's record was lost


def encode_receipt(receipt: Receipt) -> str:
    """Encode a handle for the client."""
    packed = _FIELDS.pack(_VERSION, *receipt)
    return urlsafe_b64encode(packed + _CRC.pack(crc32(packed))).decode()


def encode_receipts(
    place: tuple[int, int, int], epoch: int, expires_ms: int, grants: Iterable[tuple[int, int, int]]
) -> list[str]:
    """Encode the handles of grants that were made together in a (group, topic, queue).

    grants  (offset, attempt, grant) of each
    """
    front = _FRONT.pack(_VERSION, *place)
    so_far, pack, check = crc32(front), _OWN.pack, _CRC.pack
    pieces: list[bytes] = []
    for offset, attempt, grant in grants:
        own = pack(attempt, grant, epoch, offset, expires_ms)
        pieces += (front, own, check(crc32(own, so_far)))
    text = urlsafe_b64encode(b"".join(pieces)).decode()
    return [text[at : at + _CHARACTERS] for at in range(0, len(text), _CHARACTERS)]


def invalid_receipt(why: str) -> HorologError:
    """Build the error for an invalid handle."""
    return refused("receipt_handle", why, code=ErrorCode.INVALID_RECEIPT_HANDLE)


def decode_receipt(text: str) -> Receipt:
    """Decode a handle; INVALID_RECEIPT_HANDLE if it is malformed."""
    try:
        packed = urlsafe_b64decode(text.encode("ascii"))
    except (Base64Error, ValueError) as error:
        raise invalid_receipt("not one of ours") from error
    if len(packed) != _BYTES or packed[0] != _VERSION:
        raise invalid_receipt("not one of ours")
    if crc32(packed[: _FIELDS.size]) != _CRC.unpack_from(packed, _FIELDS.size)[0]:
        raise invalid_receipt("damaged")
    return Receipt(*_FIELDS.unpack_from(packed)[1:])


def decode_receipts(texts: Sequence[str]) -> Iterator[Receipt | HorologError]:
    """Decode many handles; yield a receipt, or an error for a malformed handle."""
    found = _decode_together(texts)
    if found is not None:
        yield from found
        return
    for text in texts:
        try:
            yield decode_receipt(text)
        except HorologError as error:
            yield error


def _decode_together(texts: Sequence[str]) -> list[Receipt] | None:
    """Decode all handles together; None if any is malformed."""
    if set(map(len, texts)) != {_CHARACTERS}:
        return None
    try:
        raw = a2b_base64("".join(texts).encode("ascii").translate(_STANDARD), strict_mode=True)
    except (Base64Error, ValueError):
        return None
    if len(raw) != _BYTES * len(texts):
        return None
    rows = _WHOLE.iter_unpack(raw)
    found, at, named = [], 0, tuple.__new__  # takes half as long as Receipt does
    for version, group, topic, queue, attempt, grant, epoch, offset, end, crc in rows:
        if version != _VERSION or crc32(raw[at : at + _FIELDS.size]) != crc:
            return None
        fields = group, topic, queue, attempt, grant, epoch, offset, end
        found.append(named(Receipt, fields))
        at += _BYTES
    return found
