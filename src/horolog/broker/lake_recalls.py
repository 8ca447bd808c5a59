"""Recalls and reschedules of messages that wait in the lake.

Their ids and keys stand in the table, which the core does not read: whoever asks looks there first, and names the rows
and the offloads whose tables were searched.  What was promoted meanwhile is in runs and found here; what came into the
lake meanwhile is a refusal, and is looked for again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from horolog.broker.offloads import append_step
from horolog.broker.recall.bulk_recalls import check_space
from horolog.broker.recall.reschedules import FromLake, reschedule
from horolog.broker.shard import Shard
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.gone import GONE
from horolog.limits import HOUR_MS, LAKE_GONE_MAX
from horolog.protocol.commands import (
    Recall,
    Recalled,
    RecallMany,
    RecallStatus,
    Reschedule,
    Rescheduled,
)
from horolog.protocol.offload_commands import (
    RecallFromLake,
    RecallManyFromLake,
    RescheduleFromLake,
)


def recall(shard: Shard, command: RecallFromLake, wall_ms: int) -> Recalled | None:
    """Recall those rows of one message that wait in the lake still; None if there are none."""
    rows = _waiting(shard, command)
    if not len(rows):
        return None
    append_step(shard, {"step": "recalled"}, rows.tobytes(), wall_ms)
    status = RecallStatus.CANCELLED
    name = f"message {command.message_id} of topic {command.topic}"
    detail = f"{status.value}: {name} will not be handed over"
    return Recalled(status, detail, command.message_id, command.due_ms)


def move(shard: Shard, command: RescheduleFromLake, wall_ms: int) -> Rescheduled:
    """Reschedule all copies of one message, those in the lake with those that are here."""
    rows = _waiting(shard, command)
    named = Reschedule(command.topic, command.message_id, command.due_ms, command.new_due_ms)
    return reschedule(shard, named, wall_ms, FromLake(rows, command.record))


def recall_rows(shard: Shard, command: RecallManyFromLake, wall_ms: int) -> npt.NDArray[np.bool_]:
    """Recall those of these rows that wait in the lake still; gives which."""
    waits = shard.delay.far.lake.waits(command.rows)
    if bool(waits.any()) and not command.dry_run:
        check_space(shard, command.done)
        rows = command.rows[waits]
        _check_room(shard, len(rows), command.done)
        append_step(shard, {"step": "recalled"}, rows.tobytes(), wall_ms)
    return waits


def _waiting(shard: Shard, command: RecallFromLake | RescheduleFromLake) -> npt.NDArray[np.void]:
    """GONE rows of a message that wait in the lake; TOO_MANY_REQUESTS if there may be others."""
    lake = shard.delay.far.lake
    topic = shard.topics.get(command.topic).number
    hour = command.due_ms // HOUR_MS
    new = [n for n in lake.offloads if n not in command.looked and lake.count(n, hour, topic)]
    if new:
        raise _came_meanwhile(new[0])
    named = [(row.number, row.position, row.row, topic, row.due_ms) for row in command.rows]
    rows = np.array(named, GONE)
    rows = rows[lake.waits(rows)]
    _check_room(shard, len(rows))
    return rows


def _came_meanwhile(number: int) -> HorologError:
    return HorologError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"deliver_at: offload {number} came into the lake meanwhile; try again",
        field="deliver_at",
    )


def _check_room(shard: Shard, count: int, done: int = 0) -> None:
    known = len(shard.delay.far.lake.gone)
    if known + count > LAKE_GONE_MAX:
        raise HorologError(
            ErrorCode.IN_LAKE,
            f"deliver_at: {known} messages in the lake are recalled, and remembered until their hours are promoted; "
            f"at most {LAKE_GONE_MAX} can be ({done} were cancelled before)",
            field="deliver_at",
            limit=f"{LAKE_GONE_MAX} messages",
        )


def check_recall_many(shard: Shard, command: RecallMany) -> None:
    """IN_LAKE if messages that may be meant wait in the lake, and nobody has looked there."""
    if not command.looked:
        check_recall(shard, command.topic, command.from_ms, command.to_ms)
        return
    topic = shard.topics.get(command.topic).number
    for number, hour, of_topic, _ in shard.delay.far.lake.left(-(-command.to_ms // HOUR_MS)):
        is_meant = of_topic == topic and (hour + 1) * HOUR_MS > command.from_ms
        if is_meant and number not in command.looked:
            raise _came_meanwhile(number)


def check_recall(shard: Shard, topic_name: str, from_ms: int, to_ms: int) -> None:
    """IN_LAKE if messages of that topic, due in hours of [from_ms, to_ms), wait in the lake."""
    lake = shard.delay.far.lake
    if lake.waiting and lake.may_hold(shard.topics.get(topic_name).number, from_ms, to_ms):
        raise HorologError(
            ErrorCode.IN_LAKE,
            f"deliver_at: messages of topic {topic_name} that are due then or in the same hour wait in the "
            "lake, where this cannot look",
            field="deliver_at",
        )


def check_recalls(shard: Shard, commands: Sequence[Recall | Reschedule]) -> None:
    """The same for messages of known due times."""
    for command in commands:
        check_recall(shard, command.topic, command.due_ms, command.due_ms + 1)
