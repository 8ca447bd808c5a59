"""Recall: the truth about one scheduled message (P8).

The answer is decided here, in the one place where hand-overs are decided too, so log order is the order of
truth; the reply waits until the RECALL record is committed.  A recall that comes while scheduled messages are
appended but not yet filed is decided as soon as what was appended before it is committed (`broker.step` holds
it back): otherwise "not found" could be said of a message that is handed over later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.shard import Applied, Settled, Shard
from horolog.delay.hour import Hour
from horolog.delay.state import EntryState
from horolog.log.record import HEAD_BYTES, encode_recall, origins_of
from horolog.protocol.commands import Recall, Recalled, RecallStatus
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash

_GOING = EntryState.HANDED_OVER, EntryState.HANDING_OVER


def recall(shard: Shard, command: Recall) -> tuple[Recalled, bytes | None, Settled | None]:
    """Decide a recall: its result, and if something is cancelled the RECALL record and what it settles."""
    topic = shard.topics.get(command.topic)
    key = key_hash(command.topic, command.message_id)
    found = shard.delay.find_key(key, topic.number, command.due_ms)
    if found is None:
        return _answer(command, RecallStatus.NOT_FOUND, "unknown or expired"), None, None
    hour, index = found
    index, entries = _same_id(hour, index, command.message_id)
    states = hour.states[index]
    waiting = states == EntryState.WAITING
    if bool(waiting.any()):
        cancelled = index[waiting]
        hour.mark_inflight(cancelled, EntryState.RECALLING)
        record = encode_recall(
            topic.number, key, command.due_ms, origins_of(entries["origin"][waiting])
        )
        return (
            _answer(command, RecallStatus.CANCELLED, "will not be handed over"),
            record,
            Settled(hour.hour, cancelled, EntryState.RECALLED),
        )
    if bool(np.isin(states, _GOING).any()):
        return (
            _answer(command, RecallStatus.ALREADY_DELIVERED, "was handed over before the recall"),
            None,
            None,
        )
    if len(states):
        why = "is quarantined" if bool((states == EntryState.QUARANTINED).any()) else "was recalled"
        return _answer(command, RecallStatus.NOT_FOUND, f"{why} before"), None, None
    return _answer(command, RecallStatus.NOT_FOUND, "unknown or expired"), None, None


def _same_id(
    hour: Hour, index: npt.NDArray[np.int64], message_id: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    entries = hour.entries(index)
    same = []
    for record in hour.records(entries):
        stored = layout.decode(bytes(record[HEAD_BYTES:]))
        same.append(properties.decode(stored.properties).get(properties.UNIQ_KEY) == message_id)
    rows = np.array(same, bool)
    return index[rows], entries[rows]


def _answer(command: Recall, status: RecallStatus, why: str) -> Recalled:
    detail = f"{status.value}: message {command.message_id} of topic {command.topic} {why}"
    return Recalled(status, detail, command.message_id)


def applied(end: int, settled: list[Settled]) -> Applied:
    """What recalls in the frame that ends at `end` change when it is committed."""
    return Applied(end, [], None, settled)
