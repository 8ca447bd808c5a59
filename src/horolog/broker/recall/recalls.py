"""Recall: the truth about one scheduled message (P8).

The answer is decided here, in the one place where hand-overs are decided too, so log order is the
order of truth; the reply waits until the RECALL record is committed.  A recall that arrives while
messages are appended but not yet filed is decided as soon as everything appended before it is
committed (`broker.waits`): otherwise "not found" could be said of a message that is handed over
later.

    delay store    knows pending messages, and, until hours and runs are dropped, what became of the
                   others
    log            knows earlier hand-overs; read through the key index, and only for messages whose
                   time has come
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Applied, Settled
from horolog.broker.recall import past
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.delay.lanes import lanes_of
from horolog.delay.state import EntryState
from horolog.errors import refused
from horolog.limits import FIND_MAX, KEY_RECALL_MAX
from horolog.log.control_records import encode_recall, origins_of
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import Recall, RecallByKey, Recalled, RecallStatus
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash
from horolog.units import instant

_GOING = frozenset({int(EntryState.HANDED_OVER), int(EntryState.HANDING_OVER)})


@dataclass(eq=False)
class Copies:
    """The copies of (topic, message id, due time) in the delay store, in log order."""

    shard: Shard
    topic: Topic
    key: int
    message_id: str
    due_ms: int
    refs: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]  # ENTRY
    states: npt.NDArray[np.uint8]  # EntryState, with in-flight bits
    lanes: npt.NDArray[np.uint16]

    @property
    def waiting(self) -> npt.NDArray[np.bool_]:
        """The mask of the copies that are pending."""
        waiting: npt.NDArray[np.bool_] = self.states == EntryState.WAITING
        return waiting

    @cached_property
    def in_log(self) -> list[past.Copy]:
        """The records of the message in the log, read once for a decision."""
        return past.with_id(self.shard, self.topic, self.message_id)


def find_copies(shard: Shard, topic_name: str, message_id: str, due_ms: int) -> Copies:
    """Find all copies in hours, far buffers and runs; raise TOPIC_NOT_FOUND."""
    topic = shard.topics.get(topic_name)
    key = key_hash(topic_name, message_id)
    refs = shard.delay.find_key(key, topic.id, due_ms)
    entries = shard.delay.entries(refs)
    # A record that does not verify is ignored here, and quarantined when it is due.
    records, same = shard.delay.read_repaired(refs, entries)
    for i in np.flatnonzero(same).tolist():
        stored = layout.properties_of(records[i][HEAD_BYTES:])
        same[i] = properties.holds(stored, properties.UNIQ_KEY, message_id)
    lanes = lanes_of(records)
    if not bool(same.all()):
        refs, entries, lanes = refs[same], entries.compress(same), lanes[same]
    states = shard.delay.states(refs)
    return Copies(shard, topic, key, message_id, due_ms, refs, entries, states, lanes)


def was_delivered(shard: Shard, copies: Copies) -> bool:
    """Return whether a copy is handed over, or about to be."""
    if not _GOING.isdisjoint(copies.states.tolist()):
        return True
    if copies.due_ms > shard.store_ms:
        return False  # no hand-over has got this far, whatever the clock says now
    return past.was_delivered(copies.in_log, copies.due_ms)


def why_not_found(shard: Shard, copies: Copies) -> str:
    """Return what became of a message of which no copy is pending and none was delivered."""
    newest = copies.states[-1] if len(copies.states) else None
    if newest == EntryState.QUARANTINED:
        return "is quarantined"
    if newest == EntryState.EXPIRED:
        return "has expired: it was too late to be handed over"
    due_ms = past.moved_to(shard, copies.in_log, copies.due_ms)
    if due_ms is not None:
        return f"was moved to {instant(due_ms)}"
    if newest is None and not any(copy.due_ms == copies.due_ms for copy in copies.in_log):
        if shard.halves.is_open(copies.key):
            return "belongs to a transaction that is open: roll it back"
        if past.has_older(shard, copies.topic, copies.message_id):
            return f"unknown or expired, or older than {FIND_MAX} others with its id"
        return "unknown or expired"
    if newest is None and shard.expired:
        return "was recalled before, or has expired"  # the log is not searched for which
    return "was moved" if newest == EntryState.MOVED else "was recalled before"


class DecidedRecall(NamedTuple):
    """A decided recall: its result, and for cancelled messages the record and what it settles."""

    result: Recalled
    record: bytes | None = None
    settled: Settled | None = None


def recall(shard: Shard, command: Recall) -> DecidedRecall:
    """Decide a recall."""
    copies = find_copies(shard, command.topic, command.message_id, command.due_ms)
    delivered = was_delivered(shard, copies)
    waiting = copies.waiting
    if not bool(waiting.any()):
        if delivered:
            return DecidedRecall(_delivered(copies, ""))
        why = why_not_found(shard, copies)
        return DecidedRecall(_answer(copies, RecallStatus.NOT_FOUND, why))
    refs, gone, lanes = (
        copies.refs[waiting],
        copies.entries.compress(waiting),
        copies.lanes[waiting],
    )
    shard.delay.mark_inflight(refs, EntryState.RECALLING)
    origins = origins_of(gone["origin"], gone["row"])
    record = encode_recall(copies.topic.id, copies.key, copies.due_ms, origins, lanes)
    if delivered:  # a retry of a message that the consumer has seen
        result = _delivered(copies, f"; {len(refs)} more that waited will not be")
    else:
        result = _answer(copies, RecallStatus.CANCELLED, "will not be handed over")
    return DecidedRecall(result, record, Settled(refs, EntryState.RECALLED, lanes))


def _delivered(copies: Copies, more: str) -> Recalled:
    why = f"was handed over before the recall{more}"
    return _answer(copies, RecallStatus.ALREADY_DELIVERED, why)


def _answer(copies: Copies, status: RecallStatus, why: str) -> Recalled:
    detail = f"{status.value}: message {copies.message_id} of topic {copies.topic.name} {why}"
    return Recalled(status, detail, copies.message_id, copies.due_ms)


def cancelled(command: Recall) -> Recalled:
    """Return the result for a message whose copies in the tier are recalled."""
    status = RecallStatus.CANCELLED
    name = f"message {command.message_id} of topic {command.topic}"
    detail = f"{status.value}: {name} will not be handed over"
    return Recalled(status, detail, command.message_id, command.due_ms)


def recalls_with_key(shard: Shard, command: RecallByKey, adopted: list[Recall]) -> list[Recall]:
    """Return the recalls that a recall by key stands for, oldest first.

    There is one for each message id and due time.  Raise TOPIC_NOT_FOUND; BAD_REQUEST if more than
    `KEY_RECALL_MAX` records have the key.

    adopted  recalls of adopted messages, which the index does not know
    """

    def check(records: int) -> None:
        if records + len(adopted) > KEY_RECALL_MAX:
            raise refused(
                "key",
                f"{records + len(adopted)} records of topic {command.topic} have {command.key!r}; "
                f"at most {KEY_RECALL_MAX} are looked at (recall by id, or by window)",
                f"{KEY_RECALL_MAX} records",
            )

    found = past.with_key(shard, shard.topics.get(command.topic), command.key, check)
    known = [Recall(command.topic, copy.message_id, copy.due_ms) for copy in found]
    return list(dict.fromkeys([*known, *adopted]))


def applied_recalls(end: int, settled: list[Settled]) -> Applied:
    """Return the change that recalls make when the frames that end at `end` are committed."""
    refs = np.concatenate([each.refs for each in settled])
    lanes = np.concatenate([each.lanes for each in settled])
    return Applied(end, [], None, [Settled(refs, EntryState.RECALLED, lanes)])
