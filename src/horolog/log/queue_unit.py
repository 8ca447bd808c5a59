"""Units of consume queues: the log position and size of a message, and the code of its tags.

A unit is RocketMQ's, 20 bytes, but little-endian.  In memory its last field is the tags code alone;
in a file the code takes 33 bits of the field, and a check of the whole unit the rest:

======  =====  ============  =====================================================================
offset  bytes  field         meaning
======  =====  ============  =====================================================================
0       8      position      log position of the message's record
8       4      size          of the record; 0: a hole
12      8      tags code     Java hash of the tag, sign-extended; 0 without a tag.  Of a
                             message that may have several: 2³² + `tags.bits_of` them
                             In a file: bits 0–31 the hash or the bits, bit 32 whether they are
                             bits, 33–63 the check; without one as in memory
======  =====  ============  =====================================================================

A wrong position or size is detected by reading the record, but a wrong code would hide a message
from consumers that filter by tags.  So the check covers position, size and code, the queue and the
queue offset (`checks_of`; docs/decisions/0023-queue-unit-check.md).  Older files have no checks,
and their units are trusted.  Worked example: a bit of a unit's code flips.  Its position still
leads to the message, so the unit is read with `ROTTEN_CODE`, which stands for any tag; a filter
reads the tags from the message itself, and the unit is written again (`broker.consume.queued`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.log.record import MANY_TAGS

UNIT = np.dtype([("position", "<i8"), ("size", "<i4"), ("tags", "<i8")])
UNIT_BYTES = 20
assert UNIT.itemsize == UNIT_BYTES
MANY_CODE = 1 << 32  # set in the tags code of a message that may have several tags
ROTTEN_CODE = 1 << 62  # tags code of a unit that fails its check; no message has this code
NO_UNITS = np.empty(0, UNIT)
Units = npt.NDArray[Any]

_CHECK_AT = 33  # bit of the stored tags code
_CODE_MASK = (1 << _CHECK_AT) - 1
_IS_CHECK = 1 << 29  # set in every check: the sign bits of a code without a check are 0 or −1
_CHECK_SHIFT = 64 - 29
_WORD = (1 << 64) - 1
# Odd numbers with about as many ones as zeros.
_OFFSET_FACTOR = 0x9E37_79B9_7F4A_7C15
_QUEUE_FACTOR = 0xC2B2_AE3D_27D4_EB4F
_SIZE_FACTOR = 0xA076_1D64_78BD_642F
_FIRST_FACTOR = 0xFF51_AFD7_ED55_8CCD
_LAST_FACTOR = 0xC4CE_B9FE_1A85_EC53
_FEW = 4  # up to so many units are decoded one by one: columns cost more


class UnitsPlace(NamedTuple):
    """The queue that units belong to, by ids, and the queue offset of the first unit."""

    topic: int
    queue: int
    first: int

    @property
    def salt(self) -> int:
        """The term added to the position in the check of unit `first`.

        Each later unit adds `_OFFSET_FACTOR` more.
        """
        return (
            (self.topic << 32 | self.queue) * _QUEUE_FACTOR + self.first * _OFFSET_FACTOR
        ) & _WORD


def units_of(heads: Units, positions: Units | int) -> Units:
    """Build UNIT rows of message records from their HEAD rows (`log.record`) and log positions."""
    units = np.empty(len(heads), UNIT)
    units["position"], units["size"], units["tags"] = positions, heads["size"], heads["tags"]
    many = heads["flags"] & MANY_TAGS != 0
    if bool(many.any()):
        units["tags"][many] = heads["tags"][many].view(np.uint32) + np.int64(MANY_CODE)
    return units


def seal(units: Units, place: UnitsPlace) -> bytes:
    """Encode UNIT rows as bytes of a file, with a check in each unit."""
    codes = _stored_codes(units["tags"])
    rows = bytearray(units.tobytes())
    np.frombuffer(rows, UNIT)["tags"] = codes | checks_of(units, codes, place) << _CHECK_AT
    return bytes(rows)


class Unsealed(NamedTuple):
    """Decoded UNIT rows, and the indexes of those that fail their check; these have ROTTEN_CODE."""

    units: Units
    rotten: list[int]


def unseal(raw: bytes | bytearray | memoryview, place: UnitsPlace) -> Unsealed:
    """Decode and check the units in a file's bytes; bytes after the last whole unit are ignored."""
    rows = np.frombuffer(raw, UNIT, len(raw) // UNIT_BYTES)
    if len(rows) <= _FEW:
        found = [
            _unsealed(position, size, stored, place._replace(first=place.first + i))
            for i, (position, size, stored) in enumerate(rows.tolist())
        ]
        rotten = [i for i, unit in enumerate(found) if unit[2] == ROTTEN_CODE]
        return Unsealed(np.array(found, UNIT), rotten)
    stored = rows["tags"].astype(np.int64)
    checks = stored >> _CHECK_AT
    has_check = (checks != 0) & (checks != -1)
    if not bool(has_check.any()):
        return Unsealed(rows, [])
    codes = stored & _CODE_MASK
    units = np.frombuffer(bytearray(raw), UNIT, len(rows))  # much faster than a copy of rows
    units["tags"] = codes.astype(np.int32)
    others = (codes >= MANY_CODE) | ~has_check
    if bool(others.any()):
        units["tags"][others] = np.where(has_check, codes, stored)[others]
    wrong = np.flatnonzero(has_check & (checks != checks_of(rows, codes, place)))
    units["tags"][wrong] = ROTTEN_CODE
    return Unsealed(units, wrong.tolist())


def checks_of(
    rows: Units, codes: npt.NDArray[np.int64], place: UnitsPlace
) -> npt.NDArray[np.int64]:
    """Compute the check of each unit, 30 bits; `codes` are the low 33 bits of the stored tags code.

    With all values unsigned, modulo 2⁶⁴: h = (position + (topic · 2³² + queue) · queue factor +
    queue offset · offset factor) · first factor, xor size · size factor, xor code; then (h xor its
    upper half) times the last factor.  The check is the upper 29 bits of the product, with bit 29
    set.
    """
    mixed = rows["position"].astype(np.uint64)
    mixed += np.arange(len(rows), dtype=np.uint64) * np.uint64(_OFFSET_FACTOR)
    mixed += np.uint64(place.salt)
    mixed *= np.uint64(_FIRST_FACTOR)
    mixed ^= rows["size"].astype(np.int64).view(np.uint64) * np.uint64(_SIZE_FACTOR)
    mixed ^= codes.view(np.uint64)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_LAST_FACTOR)
    return (mixed >> np.uint64(_CHECK_SHIFT)).view(np.int64) | _IS_CHECK


def _stored_codes(tags: Units) -> npt.NDArray[np.int64]:
    codes = tags.astype(np.int64)
    return np.where(codes < 0, codes & (MANY_CODE - 1), codes)


def _unsealed(position: int, size: int, stored: int, place: UnitsPlace) -> tuple[int, int, int]:
    """Decode and check one unit like `unseal`; return (position, size, tags code)."""
    check = stored >> _CHECK_AT
    if check in (0, -1):
        return position, size, stored
    code = stored & _CODE_MASK
    mixed = (position + place.salt) * _FIRST_FACTOR & _WORD
    mixed ^= size * _SIZE_FACTOR & _WORD ^ code
    mixed = (mixed ^ mixed >> 32) * _LAST_FACTOR & _WORD
    if check != mixed >> _CHECK_SHIFT | _IS_CHECK:
        return position, size, ROTTEN_CODE
    if MANY_CODE // 2 <= code < MANY_CODE:
        code -= MANY_CODE
    return position, size, code
