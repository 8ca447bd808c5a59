"""Expire messages that are too late: drop or dead-letter them, as their policy says.

The decision is made once, at hand-over, and logged before the hand-over of the turn: a RECALL_MANY
record with the flag IS_EXPIRED names the messages that expire, and dead letters follow in the same
frame as visible messages.  So a replay reads neither clock nor settings, and no crash can keep the
one without the other.

A turn reads the policies only if a message is at least LATE_AFTER_MIN_MS late.  Then each message
costs a comparison of columns, and a message with a policy of its own also a look at its properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Applied, Settled
from horolog.broker.counters import Count
from horolog.broker.send.message_frames import append_messages
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.delay.state import EntryState
from horolog.errors import HorologError
from horolog.limits import LATE_AFTER_MIN_MS
from horolog.log.control_records import RECALLED, encode_recall_many
from horolog.log.record import HAS_LATE, HEAD, HEAD_BYTES, Kind
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.rocketmq import layout, properties, retry
from horolog.protocol.rocketmq.late_policy import (
    PROPERTY,
    Late,
    LatePolicy,
    late_topic,
    parse_policy,
)


class DueMessages(NamedTuple):
    """Messages that are about to be handed over, as columns."""

    refs: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]
    heads: npt.NDArray[Any]
    body: bytearray
    offsets: npt.NDArray[np.int64]  # of the records in the body

    def record(self, row: int) -> bytes:
        """Copy one message record out of the body."""
        at = int(self.offsets[row])
        return bytes(self.body[at : at + int(self.heads["size"][row])])


class LateMessages:
    """Expires messages that are too late.

    `records` are the turn's control records, where topics are made.
    """

    def __init__(self, shard: Shard, topics: TopicChanges, records: list[bytes]) -> None:
        self._shard = shard
        self._topics = topics
        self._records = records

    def expire(self, due: DueMessages, wall_ms: int) -> npt.NDArray[np.bool_] | None:
        """Expire messages that are too late; return the mask of their rows, None if none is."""
        lateness = wall_ms - due.heads["due_ms"].astype(np.int64)
        if int(lateness.max()) < LATE_AFTER_MIN_MS:
            return None
        chosen = self._choose_late(due, lateness)
        if not chosen:
            return None
        wanted = [row for row, action in chosen.items() if action is Late.DEAD_LETTER]
        letters = self._make_letters(due, sorted(wanted))
        for row in wanted:
            if row not in letters:
                del chosen[row]  # it is handed over
        if not chosen:
            return None
        rows = np.array(sorted(chosen), np.int64)
        self._append(due, rows, list(letters.values()), wall_ms)
        is_late = np.zeros(len(due.refs), np.bool_)
        is_late[rows] = True
        return is_late

    # --- which ------------------------------------------------------------------------------------

    def _choose_late(self, due: DueMessages, lateness: npt.NDArray[np.int64]) -> dict[int, Late]:
        topics = self._shard.topics
        chosen: dict[int, Late] = {}
        own = (due.heads["flags"] & HAS_LATE) != 0
        of_topics = due.heads["topic"]
        if topics.late:
            for topic_id in np.unique(of_topics).tolist():
                policy = topics.late.get(topic_id)
                if policy is not None:
                    rows = (of_topics == topic_id) & (lateness > policy.after_ms) & ~own
                    chosen |= dict.fromkeys(np.flatnonzero(rows).tolist(), policy.action)
        for row in np.flatnonzero(own & (lateness >= LATE_AFTER_MIN_MS)).tolist():
            policy = self._policy_of(due.record(row))
            if not policy.is_default and int(lateness[row]) > policy.after_ms:
                chosen[row] = policy.action
        return chosen

    @staticmethod
    def _policy_of(record: bytes) -> LatePolicy:
        topic, of_message = layout.topic_and_properties(record[HEAD_BYTES:])
        # A retry has the properties of the first attempt.
        if topic.startswith(retry.RETRY_PREFIX):
            return LatePolicy()
        try:
            return parse_policy(properties.value_of(of_message, PROPERTY) or Late.HAND_OVER)
        except HorologError:
            return LatePolicy()  # unreadable, though checked when it was sent

    # --- what follows -----------------------------------------------------------------------------

    def _make_letters(self, due: DueMessages, rows: list[int]) -> dict[int, bytes]:
        """Build the dead letters by row, and make their topics where missing.

        Rows are left out whose topic cannot be made, or whose properties have no room for more.
        """
        made = {}
        for row in rows:
            record = due.record(row)
            name = self._shard.topics.by_id[int(due.heads["topic"][row])].name
            try:
                if late_topic(name) not in self._shard.topics.by_name:
                    self._topics.make(CreateTopic(late_topic(name), TopicType.MIXED, 1))
                made[row] = retry.late_letter_record(record[HEAD_BYTES:], late_topic(name))
            except HorologError as error:
                if error.fatal:
                    raise
        return made

    def _append(
        self, due: DueMessages, rows: npt.NDArray[np.int64], letters: list[bytes], wall_ms: int
    ) -> None:
        shard = self._shard
        controls = self._records.copy()  # they make the topics of the dead letters
        self._records.clear()
        settled = []
        for topic_id in np.unique(due.heads["topic"][rows]).tolist():
            mine = rows[due.heads["topic"][rows] == topic_id]
            messages = np.zeros(len(mine), RECALLED)
            messages["position"] = due.entries["origin"][mine]
            messages["row"] = due.entries["row"][mine]
            messages["due_ms"] = due.heads["due_ms"][mine]
            shard.counters.add(topic_id, Count.EXPIRED, len(mine))
            lanes = due.heads["lane"][mine]
            controls.append(encode_recall_many(topic_id, messages, lanes, expired=True))
            settled.append(Settled(due.refs[mine], EntryState.EXPIRED, lanes))
        shard.delay.mark_inflight(due.refs[rows], EntryState.RECALLING)
        if not letters:
            shard.log.append(b"".join(controls), len(controls), wall_ms)
            shard.uncommitted.append(Applied(shard.log.end, [], None, settled))
            return
        heads = np.concatenate([np.frombuffer(record, HEAD, 1) for record in letters])
        names = [layout.topic_and_properties(record[HEAD_BYTES:])[0] for record in letters]
        heads["kind"] = Kind.MESSAGE
        heads["topic"] = [shard.topics.by_name[name].id for name in names]
        queues = np.zeros(len(letters), np.int64)
        append_messages(
            shard, b"".join(letters), heads, queues, wall_ms, controls=controls, settled=settled
        )
