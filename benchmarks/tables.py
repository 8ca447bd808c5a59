"""Requests as one table of bytes, a row each, made from one request in which only some places differ.

Made before the clock starts, so that a generator that shares its cores with the broker has little left to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Table = Any  # array of uint8, a row for each request
Column = Any  # array of int64, a number for each row


def repeat(template: bytes, n: int) -> Table:
    """A table of n rows that are all the same."""
    return np.tile(np.frombuffer(template, np.uint8), (n, 1))


def places(template: bytes, piece: bytes, count: int) -> list[int]:
    """Where a piece of bytes stands; it must stand there so many times."""
    found, at = [], template.find(piece)
    while at >= 0:
        found.append(at)
        at = template.find(piece, at + 1)
    assert len(found) == count, (piece, found)
    return found


def put_digits(table: Table, at: int, width: int, numbers: Column) -> None:
    """Write numbers as decimal digits."""
    table[:, at : at + width] = numbers[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10 + ord(
        "0"
    )


def put_binary(table: Table, at: int, type_: str, numbers: Column) -> None:
    """Write numbers as binary ones of a numpy type."""
    column = np.ascontiguousarray(np.asarray(numbers).astype(type_))
    width = column.dtype.itemsize
    table[:, at : at + width] = column.view(np.uint8).reshape(-1, width)
