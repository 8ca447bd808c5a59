"""The body of a batch: its messages back to back, each with its own flag, body and properties.

Total size i32, magic i32, CRC i32, flag i32, body (i32 length), properties (i16 length).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import BODY_MAX, MESSAGES_PER_SEND_MAX

_ITEM = struct.Struct(">iiiii")
_TAIL = struct.Struct(">H")
ITEM_MIN = _ITEM.size + 1 + _TAIL.size
_STORED_MAX = 0xFFFF  # bytes, as its length says


class Items(NamedTuple):
    """Messages of a batch, as columns.

    fault  why there are no more of them than these; None: it is the whole batch
    """

    flags: Sequence[int]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]  # their properties, which may be no UTF-8
    fault: HorologError | None = None

    @property
    def are_usual(self) -> bool:
        """Whether there are messages, and all bodies are of a size that is allowed."""
        sizes = list(map(len, self.bodies))
        return bool(sizes) and min(sizes) > 0 and max(sizes) <= BODY_MAX


class Form(NamedTuple):
    """Sizes that all messages of a batch have."""

    size: int
    body_size: int
    stored_size: int


class Rows(NamedTuple):
    """Messages of one form as rows of bytes, and the flag of each."""

    flags: npt.NDArray[Any]
    bodies: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.uint8]


def cut(body: bytes) -> Items:
    """The messages up to the first one that cannot be cut out."""
    return cut_even(body) or cut_each(body)


def form_of(body: bytes) -> Form | None:
    """What the messages of a batch have in common if all are of one size, as its first and its last say."""
    if len(body) < ITEM_MIN:
        return None
    size, _, _, _, body_size = _ITEM.unpack_from(body)
    stored_size = size - _ITEM.size - body_size - _TAIL.size
    if min(size - ITEM_MIN, body_size, stored_size) < 0 or stored_size > _STORED_MAX:
        return None
    count, rest = divmod(len(body), size)
    if rest or not 1 < count <= MESSAGES_PER_SEND_MAX:
        return None
    if _ITEM.unpack_from(body, len(body) - size)[::4] != (size, body_size):
        return None  # as it is mostly seen here, if they differ
    return Form(size, body_size, stored_size)


def rows_of(batches: Sequence[bytes], form: Form) -> Rows | None:
    """The messages of batches of one form; None if that is not what they are."""
    raw = np.frombuffer(b"".join(batches), np.uint8).reshape(-1, form.size)
    tail = _ITEM.size + form.body_size
    text_at = tail + _TAIL.size
    for at, value in (
        (0, form.size.to_bytes(4, "big")),
        (16, form.body_size.to_bytes(4, "big")),
        (tail, form.stored_size.to_bytes(2, "big")),
    ):
        if bool((raw[:, at : at + len(value)] != np.frombuffer(value, np.uint8)).any()):
            return None
    flags = raw[:, 12:16].copy().view(">i4")[:, 0]
    return Rows(flags, raw[:, _ITEM.size : tail], raw[:, text_at:])


def cut_even(body: bytes) -> Items | None:
    """`cut` with one call, if all messages have bodies of one size and properties of one size."""
    form = form_of(body)
    if form is None:
        return None
    size, body_size, stored_size = form
    rows = _even(body_size, stored_size).iter_unpack(body)
    sizes, _, _, flags, bodies_sizes, bodies, stored_sizes, texts = zip(*rows, strict=True)
    for found, wanted in (
        (sizes, size),
        (bodies_sizes, body_size),
        (stored_sizes, stored_size),
    ):
        if found.count(wanted) != len(sizes):
            return None
    return Items(flags, bodies, texts)


@lru_cache(maxsize=256)
def _even(body_size: int, stored_size: int) -> struct.Struct:
    return struct.Struct(f"{_ITEM.format}{body_size}s{_TAIL.format[1:]}{stored_size}s")


def cut_each(body: bytes) -> Items:
    """`cut` of any body, one message after another."""
    flags: list[int] = []
    bodies: list[bytes] = []
    texts: list[bytes] = []
    items = Items(flags, bodies, texts)
    read_item, read_tail, item_bytes = _ITEM.unpack_from, _TAIL.unpack_from, _ITEM.size
    at, end = 0, len(body)
    while at < end:
        if len(bodies) == MESSAGES_PER_SEND_MAX:
            return items._replace(fault=_wrong_count(f"more than {MESSAGES_PER_SEND_MAX}"))
        try:
            size, _, _, flag, body_size = read_item(body, at)
            body_at = at + item_bytes
            tail = body_at + max(0, body_size)
            (stored_size,) = read_tail(body, tail)
        except struct.error:
            return items._replace(fault=broken_batch(len(bodies) + 1, "is cut short"))
        text_at = tail + 2
        stop = text_at + stored_size
        if body_size < 0 or size != stop - at or stop > end:
            why = "has lengths that do not add up"
            return items._replace(fault=broken_batch(len(bodies) + 1, why))
        flags.append(flag)
        bodies.append(body[body_at:tail])
        texts.append(body[text_at:stop])
        at = stop
    return items if bodies else items._replace(fault=_wrong_count("none"))


def _wrong_count(count: str) -> HorologError:
    limit = f"1 to {MESSAGES_PER_SEND_MAX}"
    return refused(
        "messages",
        f"{count} in one batch; {limit} are allowed",
        limit,
        code=ErrorCode.MESSAGE_CORRUPTED,
    )


def broken_batch(number: int, why: str) -> HorologError:
    """The refusal of a batch for the message of that number, from 1 on."""
    return refused("body", f"message {number} of the batch {why}", code=ErrorCode.MESSAGE_CORRUPTED)
