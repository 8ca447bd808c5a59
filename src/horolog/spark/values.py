"""Values of an Arrow array for C functions that take one value at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

# Rows copied at once: so few that they are still in the processor's cache.
_CACHED_ROWS = 256


def values_of(array: pa.Array) -> Iterator[bytes]:
    """Return the values of a binary array without nulls.

    As `bytes` and not as views: the garbage collector ignores `bytes`, which saves more time than a
    copy costs.
    """
    slices = (array.slice(at, _CACHED_ROWS) for at in range(0, len(array), _CACHED_ROWS))
    return itertools.chain.from_iterable(
        each.to_numpy(zero_copy_only=False).tolist() for each in slices
    )


def content_of(array: pa.Array) -> memoryview:
    """Return all bytes of a binary array without nulls, one value after another."""
    _, offsets, content = array.buffers()
    if content is None or not len(array):
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int32)
    return memoryview(content)[bounds[array.offset] : bounds[array.offset + len(array)]]
