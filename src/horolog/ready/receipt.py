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
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError

_VERSION = 1
_FIELDS = struct.Struct("<BIIIIIIQq")
_CRC = struct.Struct("<I")
_BYTES = _FIELDS.size + _CRC.size


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


def invalid_receipt(why: str) -> HorologError:
    """The refusal of a handle."""
    return HorologError(
        ErrorCode.INVALID_RECEIPT_HANDLE, f"receipt_handle: {why}", field="receipt_handle"
    )


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
