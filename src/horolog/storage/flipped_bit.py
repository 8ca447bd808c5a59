"""Finding the one bit that has flipped in a content whose CRC-32 is known.

A CRC is linear: content and sum differ from what they were by a pattern that depends only on the
place of the bit, and no two places within 2³² − 1 bits have the same pattern.  So the pattern is
taken back block by block, from the end of the content, until it is that of a bit in the last block:
the flipped bit is that many blocks before the end.

Other damage has the pattern of some bit with a chance of (bits of the content) in 2³².  So a caller
that puts a bit right checks whether the result is consistent.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
from zlib_ng.zlib_ng import crc32

_U32 = struct.Struct("<I")
_SUMS = struct.Struct("<II")
_BLOCK = 4_096
_STEP = [crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256)]  # a pattern, one byte further
_BY_TOP = {step >> 24: byte for byte, step in enumerate(_STEP)}  # the top bytes of all steps differ


def flipped_bit(content: bytes, crc: int, start: int = 0) -> tuple[int, int] | None:
    """Return (byte, bit) that flipped since `content` had this CRC-32; None: not one flipped bit.

    start  what the CRC was started from

    Returns (len(content) + n, bit) if the bit is one of byte n of the sum itself, which is stored
    little-endian.  Takes about 1 ms for 4 MiB, beside the CRC; the first time some 50 ms more.
    """
    pattern = crc32(content, start) ^ crc
    if pattern.bit_count() == 1:
        at = pattern.bit_length() - 1
        return len(content) + at // 8, at % 8
    last, back = _last_block(), _block_back()
    for end in range(len(content), 0, -_BLOCK):
        found = last.get(pattern)
        if found is not None:
            from_end, bit = divmod(found, 8)
            return (end - 1 - from_end, bit) if from_end < end else None
        pattern = (
            back[0][pattern & 0xFF]
            ^ back[1][pattern >> 8 & 0xFF]
            ^ back[2][pattern >> 16 & 0xFF]
            ^ back[3][pattern >> 24]
        )
    return None


@cache
def _last_block() -> dict[int, int]:
    """Map the pattern of each bit of the last block to 8 × the count of bytes after it + bit."""
    found = {}
    for bit in range(8):
        pattern = _STEP[1 << bit]
        for after in range(_BLOCK):
            found[pattern] = 8 * after + bit
            pattern = _STEP[pattern & 0xFF] ^ pattern >> 8
    return found


@cache
def _block_back() -> list[list[int]]:
    """Build the table that takes a pattern back by a block, to be XORed for each of its 4 bytes."""
    return [[_bits_back(byte << shift) for byte in range(256)] for shift in (0, 8, 16, 24)]


def _bits_back(pattern: int) -> int:
    back = 0
    for bit in range(32):
        if pattern >> bit & 1:
            back ^= _bit_back(bit)
    return back


@cache
def _bit_back(bit: int) -> int:
    pattern = 1 << bit
    for _ in range(_BLOCK):
        before = _BY_TOP[pattern >> 24]
        pattern = ((pattern ^ _STEP[before]) << 8 & 0xFFFFFFFF) | before
    return pattern


def is_intact(content: bytes, header_bytes: int) -> bool:
    """Return whether the sums of a file with header and body are right.

    The header ends with the CRC-32 of the body and its own.
    """
    if len(content) < header_bytes:
        return False
    sums: tuple[int, int] = _SUMS.unpack_from(content, header_bytes - _SUMS.size)
    return sums == (crc32(content[header_bytes:]), crc32(content[: header_bytes - 4]))


def flipped_back(content: bytes, header_bytes: int) -> bytes | None:
    """Put right a flipped bit in the header, the body, or both, of a file as in `is_intact`.

    Returns None if that is not the damage.
    """
    if len(content) < header_bytes:
        return None
    head, body = content[: header_bytes - 4], content[header_bytes:]
    head_and_sum = put_right(head, content[header_bytes - 4 : header_bytes])
    if head_and_sum is None:
        return None
    body_and_sum = put_right(body, head_and_sum[-8:-4])
    return head_and_sum + body_and_sum[:-4] if body_and_sum is not None else None


def put_right(part: bytes, stored: bytes) -> bytes | None:
    """Put right a part and its sum if at most one bit of them has flipped; None if more have."""
    whole, crc = bytearray(part + stored), _U32.unpack(stored)[0]
    if crc32(part) != crc:
        found = flipped_bit(part, crc)
        if found is None:
            return None
        byte, bit = found
        whole[byte] ^= 1 << bit
    return bytes(whole)


def changed_bytes(found: bytes, right: bytes) -> list[tuple[int, bytes]]:
    """Return (offset, byte) of each byte of `right` that differs in `found`, which is as long."""
    differs = np.frombuffer(found, np.uint8) != np.frombuffer(right, np.uint8)
    return [(at, right[at : at + 1]) for at in np.flatnonzero(differs).tolist()]
