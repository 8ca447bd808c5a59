"""Copies of rows of structured arrays, as whole rows.

numpy copies such rows field by field, at 25 to 70 ns a row of 64 bytes, in `rows[index]`,
`rows[mask]`, `rows.copy()` and `np.concatenate`.  `rows.take(index)` and `rows.compress(mask)` copy
whole rows, at 3 ns; use `copied` instead of `rows.copy()` and `joined` instead of `np.concatenate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_Rows = npt.NDArray[Any]


def copied(rows: _Rows) -> _Rows:
    """Copy rows that are contiguous in memory."""
    found: _Rows = _as_bytes(rows).copy().view(rows.dtype)
    return found


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Join parts of one dtype into one array; a single part is returned without a copy."""
    first = parts[0]
    if len(parts) == 1:
        return first
    assert all(part.dtype == first.dtype for part in parts), "dtypes of rows"
    found: _Rows = np.concatenate([_as_bytes(part) for part in parts]).view(first.dtype)
    return found


def _as_bytes(rows: _Rows) -> _Rows:
    return rows.view(f"V{rows.dtype.itemsize}")
