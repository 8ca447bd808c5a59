"""Recalls and reschedules of messages that wait in the lake.

The ids and keys of such messages are in the table, which the core does not read: the caller
searches the table first, and names the rows found and the offloads whose tables were searched.
Messages promoted meanwhile are found in runs; for messages offloaded meanwhile the caller must
search again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.state import Lake
from horolog.limits import HOUR_MS, LAKE_RECALLED_MAX
from horolog.protocol.commands import Recall, RecallMany, Reschedule

_NONE = np.empty(0, LAKE_ROW)


def waiting_rows(lake: Lake, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
    """Return the LAKE_ROW rows that a command names and that still wait."""
    if command.elsewhere is None:
        return _NONE
    named = [
        (row.offload_id, row.position, row.row, topic, row.due_ms) for row in command.elsewhere.rows
    ]
    rows = np.array(named, LAKE_ROW)
    return rows[lake.waits(rows)]


def why_needs_search(
    lake: Lake, topic: int, command: Recall | Reschedule | RecallMany
) -> HorologError | None:
    """Return why a command cannot be decided; None if it can.

    The message may wait in a part of the lake that the caller has not searched.
    """
    if isinstance(command, RecallMany):
        return _why_window_needs_search(lake, topic, command)
    due_ms, found = command.due_ms, command.elsewhere
    if found is None:
        return _not_searched(lake, topic, command.topic, due_ms, due_ms + 1)
    hour = due_ms // HOUR_MS
    new = (n for n in lake.offloads if n not in found.looked and lake.count(n, hour, topic))
    return _offloaded_meanwhile(next(new, None))


def _why_window_needs_search(lake: Lake, topic: int, command: RecallMany) -> HorologError | None:
    from_ms, to_ms = command.from_ms, command.to_ms
    if not command.looked:
        return _not_searched(lake, topic, command.topic, from_ms, to_ms)
    new = (
        offload_id
        for offload_id, hour, of_topic, _ in lake.counts_before(-(-to_ms // HOUR_MS))
        if of_topic == topic and (hour + 1) * HOUR_MS > from_ms and offload_id not in command.looked
    )
    return _offloaded_meanwhile(next(new, None))


def check_room(lake: Lake, count: int, done: int) -> None:
    """Raise IN_TIER if `count` more recalls cannot be remembered; `done` were cancelled before."""
    known = len(lake.recalled_set)
    if known + count > LAKE_RECALLED_MAX:
        raise refused(
            "deliver_at",
            f"{known} messages in the lake are recalled, and remembered until their hours are "
            f"promoted; at most {LAKE_RECALLED_MAX} can be ({done} were cancelled before)",
            f"{LAKE_RECALLED_MAX} messages",
            code=ErrorCode.IN_TIER,
        )


def _offloaded_meanwhile(offload_id: int | None) -> HorologError | None:
    if offload_id is None:
        return None
    return refused(
        "deliver_at",
        f"offload {offload_id} came into the lake meanwhile; try again",
        code=ErrorCode.TOO_MANY_REQUESTS,
    )


def _not_searched(
    lake: Lake, topic: int, topic_name: str, from_ms: int, to_ms: int
) -> HorologError | None:
    if not lake.waiting or not lake.may_hold(topic, from_ms, to_ms):
        return None
    return refused(
        "deliver_at",
        f"messages of topic {topic_name} that are due then or in the same hour wait in the "
        "lake, where this cannot look",
        code=ErrorCode.IN_TIER,
    )
