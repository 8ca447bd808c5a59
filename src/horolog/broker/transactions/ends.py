"""How transactions end: committed, rolled back, or given up.

One frame holds the HALF_END and the committed messages: so no crash can lose one, or store it
twice.  A committed message is like any other from there on: visible, or scheduled if it is due
later.  Delays that count from when a message is stored count from the commit, as in RocketMQ; an
absolute due time is kept.

A transaction of unknown outcome ends in `GIVEN_UP_TOPIC`, where RocketMQ's users look for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horolog.broker.columns import queue_ids
from horolog.broker.effects import Now
from horolog.broker.send.message_frames import append_messages
from horolog.broker.shard import Shard
from horolog.broker.transactions.open_halves import Half
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import STORED_PROPERTIES_MAX
from horolog.log.frame_reader import Hole
from horolog.log.half_records import FOLLOWED, HalfOutcome, encode_half_ends
from horolog.log.record import ENVELOPE_BYTES, HAS_KEYS, HEAD, HEAD_BYTES, KIND_AT, Kind
from horolog.log.unaligned import get
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.rocketmq.names import GIVEN_UP_TOPIC
from horolog.protocol.rocketmq.properties import without
from horolog.protocol.transaction_commands import EndTransaction, Resolution

_OUTCOMES = {
    Resolution.COMMIT: HalfOutcome.COMMITTED,
    Resolution.ROLLBACK: HalfOutcome.ROLLED_BACK,
}
_DELAYS = (*properties.DELAYS, "REAL_TOPIC", "REAL_QID")


class _End(NamedTuple):
    position: int
    outcome: HalfOutcome
    record: bytes  # of the message to append; b"" if there is none


class Ends:
    """Collects the transactions that end in a turn; `flush` appends their ends."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._ends: list[_End] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a turn's worth of transactions has ended; the rest waits for the next turn."""
        return self._bytes > self._shard.settings.turn_bytes

    def end(self, command: EndTransaction, now: Now) -> None:
        """End a transaction as a producer says.

        Raise INVALID_TRANSACTION_ID, with the reason, if the transaction is not known, not the
        producer's, or ended otherwise; DAMAGED if it is committed and its message cannot be read
        any more.
        """
        halves = self._shard.halves
        half = halves.open.get(command.position)
        if half is None or half.position >= self._shard.log.commit_position:
            self._repeated(command)
            return
        self._check_is_meant(half, command)
        if command.resolution is Resolution.UNKNOWN:
            return
        record = b""
        if command.resolution is Resolution.COMMIT:
            record = self._committed(half, now)
        self._end(half, _OUTCOMES[command.resolution], record)

    def _repeated(self, command: EndTransaction) -> None:
        over = self._shard.halves.over.get(command.position)
        if over is None or not self._is_of(over.key, command):
            raise _unknown("no such transaction is open, or known to have ended")
        outcome = _OUTCOMES.get(command.resolution)
        if outcome not in (None, over.outcome):
            was = over.outcome.name.lower().replace("_", " ")
            raise _unknown(f"this transaction has ended already: it was {was}")

    def _is_of(self, key: int, command: EndTransaction) -> bool:
        """Return whether a transaction is of the message that the command names, if any."""
        if command.topic is None or command.message_id is None:
            return True
        return key == key_hash(command.topic, command.message_id)

    def _check_is_meant(self, half: Half, command: EndTransaction) -> None:
        topic = self._shard.topics.by_id[half.topic].name
        if command.topic not in (None, topic) or not self._is_of(half.key, command):
            raise _unknown("this transaction is of another message")
        if command.group is not None and command.group != half.group:
            raise HorologError(
                ErrorCode.INVALID_TRANSACTION_ID,
                "The producer group wrong",
                field="producerGroup",
            )
        if command.half_offset not in (None, half.half_offset):
            raise HorologError(
                ErrorCode.INVALID_TRANSACTION_ID,
                "The transaction state table offset wrong",
                field="tranStateTableOffset",
            )

    def record(self, half: Half) -> bytes | Hole:
        """Return the record of a half message."""
        found = self._shard.log.record(half.position)
        if isinstance(found, Hole):
            return found
        if found[KIND_AT] != Kind.HALF:
            why = f"commit log: there is no half message at log position {half.position}"
            return Hole(half.position, why)
        return found[ENVELOPE_BYTES:]

    def _committed(self, half: Half, now: Now) -> bytes:
        """Return the record of a committed message; raise DAMAGED if it cannot be read any more.

        It keeps TRAN_MSG, as RocketMQ's does: by that Java's consumers know that it has a
        transaction id.
        """
        record = self.record(half)
        if isinstance(record, Hole):
            raise HorologError(ErrorCode.DAMAGED, f"transaction: {record.why}")
        head = np.frombuffer(record, HEAD, 1).copy()
        due_ms = int(head["due_ms"][0])
        if due_ms < 0:  # as in a send (`sends`)
            since = self._shard.stamp_level_ms(now.wall_ms) if head["lane"][0] else now.wall_ms
            due_ms = since - due_ms
        is_later = due_ms > now.wall_ms
        head["kind"] = Kind.SCHEDULED if is_later else Kind.MESSAGE
        head["lane"] *= is_later
        head["due_ms"] = due_ms
        return head.tobytes() + layout.committed(record[HEAD_BYTES:], half.position)

    def give_up(self, half: Half) -> None:
        """Give up a transaction: its message goes to GIVEN_UP_TOPIC, for operators to see.

        That topic must exist.
        """
        found = self.record(half)
        if isinstance(found, Hole):
            self._end(half, HalfOutcome.LOST, b"")
            return
        of_half = found[HEAD_BYTES:]
        name, stored = layout.topic_and_properties(of_half)
        for each in (*_DELAYS, properties.TRANSACTION):
            stored = without(stored, each)
        real = {
            "REAL_TOPIC": name,
            "REAL_QID": str(half.queue),
            properties.CHECK_TIMES: str(half.checks),
        }
        for each, text in real.items():
            piece = properties.encode({each: text})
            if len(stored) + len(piece) <= STORED_PROPERTIES_MAX:  # else it goes without
                stored += piece
        made = layout.readdressed(of_half, GIVEN_UP_TOPIC, stored, 0, 0)
        head = np.frombuffer(found, HEAD, 1).copy()
        message_id = properties.value_of(stored, properties.UNIQ_KEY) or ""
        head["size"], head["kind"] = HEAD_BYTES + len(made), Kind.MESSAGE
        head["lane"] = head["due_ms"] = 0
        head["topic"] = self._shard.topics.get(GIVEN_UP_TOPIC).id
        head["key"] = key_hash(GIVEN_UP_TOPIC, message_id)
        self._end(half, HalfOutcome.GIVEN_UP, head.tobytes() + made)

    def _end(self, half: Half, outcome: HalfOutcome, record: bytes) -> None:
        halves = self._shard.halves
        halves.end(half.position, outcome)
        self._shard.counters.halves_ended[outcome] += 1
        halves.under_way[half.topic] += 1
        if record:
            head = np.frombuffer(record, HEAD, 1)
            halves.note_committed(int(head["key"][0]), keyed=bool(head["flags"][0] & HAS_KEYS))
        self._ends.append(_End(half.position, outcome, record))
        self._bytes += len(record)

    # --- appending --------------------------------------------------------------------------------

    def flush(self, now: Now) -> None:
        """Append the ends of this turn."""
        for batch in self._shard.log.in_frames(self._ends, _record_bytes):
            self._append(batch, now)
        self._ends, self._bytes = [], 0
        self._shard.halves.note_appended()

    def _append(self, batch: list[_End], now: Now) -> None:
        """Append one frame: the HALF_END, and the messages that follow it."""
        shard = self._shard
        control = encode_half_ends([(end.position, end.outcome) for end in batch])
        records = [end.record for end in batch if end.outcome in FOLLOWED]
        assert all(records), "a message goes on, and has no record"
        if not records:
            shard.log.append(control, 1, now.wall_ms)
            return
        joined = b"".join(records)
        sizes = np.array([len(record) for record in records], np.int64)
        at = sizes.cumsum() - sizes
        raw = np.frombuffer(joined, np.uint8)
        shard.log_times.note(now.mono_ms, now.wall_ms, shard.log.end)
        append_messages(
            shard, joined, get(raw, at, HEAD), queue_ids(raw, at), now.wall_ms, controls=[control]
        )

    def check_invariants(self) -> None:
        """Check that no end is left over between two steps."""
        assert not self._ends, "ended, and not appended"


def _record_bytes(end: _End) -> int:
    return len(end.record)


def _unknown(why: str) -> HorologError:
    return refused("transaction_id", why, code=ErrorCode.INVALID_TRANSACTION_ID)
