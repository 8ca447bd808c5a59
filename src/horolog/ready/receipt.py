"""Receipt handles: what a client gives back to ack a message, or to change its lease.

Text: base64url without padding of a version byte and the fields below, so that old handles stay readable when
fields are added.  Clients treat it as opaque.

A handle names one grant.  It stays good until its lease ends or a newer grant of the same queue offset exists;
one of an older epoch (before a restart) is good under the same rule, and if the restart lost the record of its
grant (which nobody waited for), until the time that stands in it.
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
_FRONT = struct.Struct("<BIII")  # what handles of one place begin with
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
    """The text for the client."""
    packed = _FIELDS.pack(_VERSION, *receipt)
    return urlsafe_b64encode(packed + _CRC.pack(crc32(packed))).decode()


def encode_receipts(
    place: tuple[int, int, int], epoch: int, expires_ms: int, grants: Iterable[tuple[int, int, int]]
) -> list[str]:
    """The texts of grants that were made together in a (group, topic, queue); a grant is (offset, attempt, grant id)."""
    front = _FRONT.pack(_VERSION, *place)
    so_far, pack, check = crc32(front), _OWN.pack, _CRC.pack
    pieces: list[bytes] = []
    for offset, attempt, grant in grants:
        own = pack(attempt, grant, epoch, offset, expires_ms)
        pieces += (front, own, check(crc32(own, so_far)))
    text = urlsafe_b64encode(b"".join(pieces)).decode()
    return [text[at : at + _CHARACTERS] for at in range(0, len(text), _CHARACTERS)]


def invalid_receipt(why: str) -> HorologError:
    """The refusal of a handle."""
    return refused("receipt_handle", why, code=ErrorCode.INVALID_RECEIPT_HANDLE)


def decode_receipt(text: str) -> Receipt:
    """Read a handle; anything that is not one: INVALID_RECEIPT_HANDLE."""
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
    """What each handle says, or why it is none."""
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
    """All of them, if nothing is wrong with any."""
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
