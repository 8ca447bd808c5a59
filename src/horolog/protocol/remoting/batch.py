"""The body of a batch: messages back to back, each with its own flag, body and properties.

Layout of a message: total size i32, magic i32, CRC i32, flag i32, body (i32 length), properties
(i16 length).
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
_STORED_MAX = 0xFFFF  # bytes of properties, since their length is 16 bits


class Items(NamedTuple):
    """Messages of a batch, as columns.

    fault  why the batch was not parsed to its end; None: these are all its messages
    """

    flags: Sequence[int]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]  # the properties, perhaps not UTF-8
    fault: HorologError | None = None

    @property
    def are_usual(self) -> bool:
        """Whether there are messages, and the sizes of all bodies are allowed."""
        sizes = list(map(len, self.bodies))
        return bool(sizes) and min(sizes) > 0 and max(sizes) <= BODY_MAX


class Form(NamedTuple):
    """Sizes that all messages of a batch share."""

    size: int
    body_size: int
    stored_size: int


class Rows(NamedTuple):
    """Messages of one form as rows of bytes, and the flag of each."""

    flags: npt.NDArray[Any]
    bodies: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.uint8]


def cut(body: bytes) -> Items:
    """Split a batch into its messages, up to the first one that cannot be parsed."""
    return cut_even(body) or cut_each(body)


def form_of(body: bytes) -> Form | None:
    """Return the sizes that the first and the last message of a batch share.

    Return None if the sizes differ, or if the batch is not a multiple of them.
    """
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
        return None  # the last message shows most batches of unequal messages
    return Form(size, body_size, stored_size)


def rows_of(batches: Sequence[bytes], form: Form) -> Rows | None:
    """Return the messages of batches as rows; None if one has other sizes than `form`."""
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
    """Split a batch in one call, if all bodies have one size and all properties one size.

    Return None for any other batch.
    """
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
    """Split any batch like `cut`, message by message."""
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
            return items._replace(fault=_broken_batch(len(bodies) + 1, "is cut short"))
        text_at = tail + 2
        stop = text_at + stored_size
        if body_size < 0 or size != stop - at or stop > end:
            why = "has lengths that do not add up"
            return items._replace(fault=_broken_batch(len(bodies) + 1, why))
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


def _broken_batch(number: int, why: str) -> HorologError:
    """Build the refusal of a batch because of message `number`, counted from 1."""
    return refused("body", f"message {number} of the batch {why}", code=ErrorCode.MESSAGE_CORRUPTED)
