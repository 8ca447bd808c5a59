"""Flag the messages of a turn that have a late policy of their own.

So hand-over need not search for one.  Only turns with messages that are due later are searched,
with one pass over the bytes of all their records.  A body that holds the name of the property costs
its record one parse of the properties, however often the name occurs.

In a message that is visible at once, and in a copy for another attempt, a policy means nothing, so
it need not be readable: the former was perhaps never checked, and the latter has its properties.  A
copy that was refused would be lost, since the consumer is done with its message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import HorologError
from horolog.log.record import HAS_LATE, HEAD_BYTES, Kind
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.late_policy import PROPERTY, check_has_room, parse_policy
from horolog.protocol.rocketmq.retry import RETRY_PREFIX

_NEEDLE = f"{PROPERTY}\x01".encode()


def mark(
    records: bytes, at: npt.NDArray[np.int64], heads: npt.NDArray[Any]
) -> dict[int, HorologError]:
    """Flag the heads of scheduled messages with a late policy; return the unreadable ones by row.

    records  of a turn, back to back
    at       offset at which each record begins
    heads    of the records, with the kind that is logged
    """
    refused: dict[int, HorologError] = {}
    for row in _rows_with(records, at):
        if heads["kind"][row] != Kind.SCHEDULED:
            continue
        start = int(at[row]) + HEAD_BYTES
        stored = records[start : int(at[row]) + int(heads["size"][row])]
        try:
            has_policy = check_policy(stored)
        except HorologError as error:
            refused[row] = error.without_traceback()
        else:
            heads["flags"][row] |= HAS_LATE * has_policy
    return refused


def check_policy(stored: bytes) -> bool:
    """Return whether a stored message that is due later has a late policy of its own.

    Raise BAD_REQUEST if the policy cannot be read, except that of a copy for another attempt.
    """
    if _NEEDLE not in stored:
        return False
    topic, of_message = layout.topic_and_properties(stored)
    text = properties.value_of(of_message, PROPERTY)
    if text is None:
        return False  # only the body contains the name
    if not topic.startswith(RETRY_PREFIX):
        check_has_room(topic, parse_policy(text), PROPERTY)
    return True


def _rows_with(records: bytes, at: npt.NDArray[np.int64]) -> Iterator[int]:
    place = records.find(_NEEDLE)
    while place >= 0:
        row = int(np.searchsorted(at, place, side="right")) - 1
        yield row
        if row + 1 == len(at):
            return
        place = records.find(_NEEDLE, int(at[row + 1]))
