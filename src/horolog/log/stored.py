"""Fields of many message records as columns: of the head (`log.record.HEAD`) and of the stored layout after it.

Both are at any offset of a buffer (`log.unaligned`).  `STORED` has the fixed fields of the layout, for messages whose
hosts are IPv4; an IPv6 born host moves what follows it by 12 bytes, an IPv6 store host what follows that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.log.record import HEAD, HEAD_BYTES
from horolog.log.unaligned import get, put
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.record_columns import STORED

MESSAGE = np.dtype([("head", HEAD), ("stored", STORED)])  # a message record as far as its body
MESSAGE_BYTES = HEAD_BYTES + STORED.itemsize
assert MESSAGE.itemsize == MESSAGE_BYTES


def stored(raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """A field of the stored layouts at these offsets, big-endian as it stands there (a copy)."""
    return get(raw, at + layout.AT[name], STORED[name])


def put_stored(
    raw: npt.NDArray[np.uint8], at: npt.NDArray[Any], name: str, values: npt.NDArray[Any]
) -> None:
    """Write that field of the stored layouts at these offsets."""
    put(raw, at + layout.AT[name], values.astype(STORED[name]))
