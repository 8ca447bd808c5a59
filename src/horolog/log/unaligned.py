"""Reads and writes of many values at any offsets of a buffer.

A view of overlapping values, one for each byte of the buffer, is indexed with the offsets: ten
times as fast as gathering bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def get(raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Return the values of a dtype, structured or not, at these offsets (a contiguous copy)."""
    kind = np.dtype(dtype)
    found: npt.NDArray[Any] = _at_any(raw, kind.itemsize)[at].view(kind)
    return found


def put(raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    """Write the bytes of these values, as they are in memory, at these offsets."""
    width = values.dtype.itemsize
    _at_any(raw, width)[at] = np.ascontiguousarray(values).view(f"V{width}")


def _at_any(raw: npt.NDArray[np.uint8], width: int) -> npt.NDArray[Any]:
    """Return a view of `width` bytes from each byte on; numpy copies plain bytes fastest."""
    return np.ndarray((max(0, len(raw) - width + 1),), f"V{width}", raw, 0, (1,))
