"""Values of an Arrow array for functions in C that take one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

# Rows made at once: what was just copied is still in the processor's cache
_CACHED_ROWS = 256


def values_of(array: pa.Array) -> Iterator[bytes]:
    """The values of a binary array without nulls.

    `bytes` and not views: the garbage collector does not look at them, which is quicker than not to copy.
    """
    slices = (array.slice(at, _CACHED_ROWS) for at in range(0, len(array), _CACHED_ROWS))
    return itertools.chain.from_iterable(
        each.to_numpy(zero_copy_only=False).tolist() for each in slices
    )


def content_of(array: pa.Array) -> memoryview:
    """All bytes of an array of type binary without nulls, one value after another."""
    _, offsets, content = array.buffers()
    if content is None or not len(array):
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int32)
    return memoryview(content)[bounds[array.offset] : bounds[array.offset + len(array)]]
