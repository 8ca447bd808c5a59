"""An order-independent sum over messages: two sides compare sums instead of messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

MASK = (1 << 64) - 1


def row_sum(
    keys: npt.NDArray[Any],
    due_ms: npt.NDArray[Any],
    positions: npt.NDArray[Any],
    rows: npt.NDArray[Any],
) -> int:
    """Sum a hash of each message modulo 2⁶⁴: its key hash, its due time and its origin.

    Sums of parts may be added (`& MASK`) in any order.
    """
    mixed = mix(positions.astype(np.uint64) ^ mix(rows.astype(np.uint64)))
    mixed = mix(mixed ^ due_ms.astype(np.int64).view(np.uint64))
    mixed = mix(mixed ^ keys.astype(np.uint64))
    return int(mixed.sum(dtype=np.uint64))


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the splitmix64 hash to each element."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
