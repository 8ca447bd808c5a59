"""Fields of many message records as columns: of the head (`log.record.HEAD`) and the stored layout.

Records are at any offsets of a buffer (`log.unaligned`).  `STORED` has the fixed fields of the
layout, for messages with IPv4 hosts; an IPv6 born host moves the fields after it by 12 bytes, and
so does an IPv6 store host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.log.record import HEAD, HEAD_BYTES
from horolog.log.unaligned import get, put
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.record_columns import STORED

MESSAGE = np.dtype([("head", HEAD), ("stored", STORED)])  # a message record up to its body
MESSAGE_BYTES = HEAD_BYTES + STORED.itemsize
assert MESSAGE.itemsize == MESSAGE_BYTES


def stored(raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return a field of the stored layouts at these offsets, big-endian as stored (a copy)."""
    return get(raw, at + layout.AT[name], STORED[name])


def put_stored(
    raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], name: str, values: npt.NDArray[Any]
) -> None:
    """Write a field of the stored layouts at these offsets, big-endian as stored."""
    put(raw, at + layout.AT[name], values.astype(STORED[name]))
