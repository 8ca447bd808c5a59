"""Recalls and reschedules of messages that wait in the lake.

Their ids and keys stand in the table, which the core does not read: whoever asks looks there first, and names the rows
and the offloads whose tables were searched.  What was promoted meanwhile is in runs and found there; what came into the
lake meanwhile is a refusal, and is looked for again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.gone import GONE
from horolog.lake.core.held import Lake
from horolog.limits import HOUR_MS, LAKE_GONE_MAX
from horolog.protocol.commands import Recall, RecallMany, Reschedule
from horolog.protocol.tier_commands import Elsewhere

_NONE = np.empty(0, GONE)


def claim(lake: Lake, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
    """GONE rows that wait, of those that a command names; IN_TIER, TOO_MANY_REQUESTS."""
    if command.elsewhere is None:
        _check_none(lake, topic, command.topic, command.due_ms, command.due_ms + 1)
        return _NONE
    return _waiting(lake, topic, command.due_ms, command.elsewhere)


def claim_window(lake: Lake, topic: int, command: RecallMany) -> None:
    """IN_TIER if messages that may be meant wait in the lake and nobody has looked there; TOO_MANY_REQUESTS."""
    if not command.looked:
        _check_none(lake, topic, command.topic, command.from_ms, command.to_ms)
        return
    for number, hour, of_topic, _ in lake.left(-(-command.to_ms // HOUR_MS)):
        is_meant = of_topic == topic and (hour + 1) * HOUR_MS > command.from_ms
        if is_meant and number not in command.looked:
            raise _came_meanwhile(number)


def check_room(lake: Lake, count: int, done: int) -> None:
    """IN_TIER if so many more recalls cannot be remembered."""
    known = len(lake.gone)
    if known + count > LAKE_GONE_MAX:
        raise HorologError(
            ErrorCode.IN_TIER,
            f"deliver_at: {known} messages in the lake are recalled, and remembered until their hours are promoted; "
            f"at most {LAKE_GONE_MAX} can be ({done} were cancelled before)",
            field="deliver_at",
            limit=f"{LAKE_GONE_MAX} messages",
        )


def _waiting(lake: Lake, topic: int, due_ms: int, found: Elsewhere) -> npt.NDArray[Any]:
    hour = due_ms // HOUR_MS
    new = [n for n in lake.offloads if n not in found.looked and lake.count(n, hour, topic)]
    if new:
        raise _came_meanwhile(new[0])
    named = [(row.number, row.position, row.row, topic, row.due_ms) for row in found.rows]
    rows = np.array(named, GONE)
    return rows[lake.waits(rows)]


def _came_meanwhile(number: int) -> HorologError:
    return HorologError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"deliver_at: offload {number} came into the lake meanwhile; try again",
        field="deliver_at",
    )


def _check_none(lake: Lake, topic: int, topic_name: str, from_ms: int, to_ms: int) -> None:
    if lake.waiting and lake.may_hold(topic, from_ms, to_ms):
        raise HorologError(
            ErrorCode.IN_TIER,
            f"deliver_at: messages of topic {topic_name} that are due then or in the same hour wait in the "
            "lake, where this cannot look",
            field="deliver_at",
        )
