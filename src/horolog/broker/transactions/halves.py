"""Half messages: stored where consumers cannot see them, until their transactions end.

A HALF record contains the record of the message, so that is neither in a queue nor in the key
index, and nothing is scheduled.  A half message that is sent again, with its id and body and within
the window, is the same transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import stamp
from horolog.broker.effects import Now, Reply
from horolog.broker.life.space import DiskPressure
from horolog.broker.send.group_queues import draw_queues
from horolog.broker.send.late_marks import check_policy
from horolog.broker.send.repeats import is_repeat
from horolog.broker.send.sends import check_count, too_late
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.broker.transactions.open_halves import half_of
from horolog.errors import HorologError
from horolog.limits import TRANSACTION_OPEN_MS
from horolog.log.frame_reader import Hole
from horolog.log.half_records import decode_half, half_envelope
from horolog.log.record import ENVELOPE_BYTES, HEAD, HEAD_BYTES, Kind
from horolog.protocol.accepted import refusal
from horolog.protocol.commands import MessageType, Sent, TopicType
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.transaction_commands import SendHalf


class _New(NamedTuple):
    """A half message that is to be appended, and the result to fill in."""

    record: bytes
    key: int
    topic: int
    first_check_ms: int
    sent: Sent
    row: int


class Halves:
    """Collects the half messages of one turn; `flush` appends them."""

    def __init__(self, shard: Shard, disk: DiskPressure) -> None:
        self._shard = shard
        self._disk = disk
        self._new: list[_New] = []
        self._repeated: list[tuple[_New, _New]] = []  # each with the one it repeats
        self._by_key: dict[int, list[_New]] = {}  # of `_new`
        self._replies: list[Reply] = []
        self._fresh: dict[int, bytes] = {}  # position → record, if not committed
        self._committed = 0  # at the last flush: all below was answered before this turn

    def add(self, token: object, command: SendHalf, now: Now) -> None:
        """Queue one request; refusals of single messages are reported in its result."""
        shard = self._shard
        topic = shard.topics.get(command.topic)
        topic.check_writable()
        records, sizes = command.columns()
        check_count(len(sizes))
        shard.halves.check_room(len(sizes))
        self._disk.check(now.mono_ms, now.wall_ms, len(records))
        sent = Sent([0] * len(sizes), [0] * len(sizes), [0] * len(sizes), due_ms=[0] * len(sizes))
        at = 0
        for row, size in enumerate(sizes):
            self._add(topic, command, records[at : at + size], sent, row, now)
            at += size
        self._replies.append(Reply(token, sent))

    def _add(
        self, topic: Topic, command: SendHalf, record: bytes, sent: Sent, row: int, now: Now
    ) -> None:
        head = np.frombuffer(record, HEAD, 1).copy()
        queue = _queue_of(record)
        type = TopicType.MIXED if command.any_type else topic.type
        found = self._refusal(topic, type, head, record[HEAD_BYTES:], queue, now)
        if found is not None:
            sent.refused[row], sent.queue_ids[row] = found, -1
            return
        if queue < 0:
            queue = int(draw_queues([topic], head["topic"])[0])
        key = int(head["key"][0])
        head["topic"], head["kind"] = topic.id, Kind.HALF
        made = layout.with_queue(record[HEAD_BYTES:], queue)
        first_check_ms = now.wall_ms + self._patience_ms(made)
        new = _New(head.tobytes() + made, key, topic.id, first_check_ms, sent, row)
        earlier = self._earlier_in_turn(new, reuses_ids=command.reuses_ids)
        if earlier is not None:
            self._repeated.append((new, earlier))
        elif not self._is_known(new, now, reuses_ids=command.reuses_ids):
            self._new.append(new)
            self._by_key.setdefault(key, []).append(new)
            self._shard.halves.under_way[topic.id] += 1

    def _refusal(
        self,
        topic: Topic,
        type: TopicType,
        head: npt.NDArray[Any],
        stored: bytes,
        queue: int,
        now: Now,
    ) -> HorologError | None:
        kind, due_ms = int(head["kind"][0]), int(head["due_ms"][0])
        found = refusal(topic.name, type, MessageType(kind))
        if found is not None or queue >= topic.write_queues:
            return found or topic.no_such_queue(queue)
        due_ms = now.wall_ms - due_ms if due_ms < 0 else due_ms
        if due_ms > now.wall_ms:
            try:
                check_policy(stored)
            except HorologError as error:
                return error.without_traceback()
        return too_late(due_ms, now.wall_ms, self._shard.settings.max_delay_ms)

    def _patience_ms(self, made: bytes) -> int:
        """Return the ms until the first check: what the producer wishes, or the setting."""
        stored = layout.topic_and_properties(made)[1]
        wished = properties.value_of(stored, properties.CHECK_IMMUNITY) or ""
        if wished.isascii() and wished.isdigit() and len(wished) < _DIGITS:
            return min(int(wished) * 1000, TRANSACTION_OPEN_MS)
        return self._shard.settings.transactions.timeout_ms

    # --- repeats ----------------------------------------------------------------------------------

    def _earlier_in_turn(self, new: _New, *, reuses_ids: bool) -> _New | None:
        if not self._shard.settings.dedup_ms:
            return None
        for other in self._by_key.get(new.key, ()):
            if is_repeat(new.record, other.record, reuses_ids=reuses_ids, answered=False, age_ms=0):
                return other
        return None

    def _is_known(self, new: _New, now: Now, *, reuses_ids: bool) -> bool:
        """Return whether it repeats one of an earlier turn; if so, fill in that result."""
        shard = self._shard
        position = shard.halves.with_key(new.key)
        if position is None:
            return False
        first = shard.halves.open.get(position) or shard.halves.over[position]
        age_ms = now.wall_ms - first.begun_ms
        earlier = self._record(position)
        if age_ms >= shard.settings.dedup_ms or earlier is None:
            return False
        if int(np.frombuffer(earlier, HEAD, 1)["topic"][0]) != new.topic:
            return False  # of a deleted topic that had the same name
        answered = position < self._committed
        if not is_repeat(
            new.record, earlier, reuses_ids=reuses_ids, answered=answered, age_ms=age_ms
        ):
            return False
        _fill_result(new, position, first.queue, first.half_offset)
        return True

    def _record(self, position: int) -> bytes | None:
        fresh = self._fresh.get(position)
        if fresh is not None:
            return fresh
        found = self._shard.log.record(position)
        return None if isinstance(found, Hole) else found[ENVELOPE_BYTES:]

    # --- appending --------------------------------------------------------------------------------

    def flush(self, now: Now) -> list[Reply]:
        """Append the queued half messages; return the replies, to hold until the commit."""
        committed = self._shard.log.commit_position
        self._committed = committed
        self._fresh = {at: record for at, record in self._fresh.items() if at >= committed}
        for batch in self._shard.log.in_frames(self._new, _logged_bytes):
            self._append(batch, now)
        for again, first in self._repeated:
            sent, row = first.sent, first.row
            _fill_result(again, sent.origins[row], sent.queue_ids[row], sent.queue_offsets[row])
        replies, self._replies = self._replies, []
        self._new, self._repeated, self._by_key = [], [], {}
        self._shard.halves.note_appended()
        return replies

    def _append(self, batch: list[_New], now: Now) -> None:
        shard = self._shard
        pieces: list[bytes] = []
        for new in batch:
            pieces += (half_envelope(len(new.record), new.first_check_ms), new.record)
        body = bytearray(b"".join(pieces))
        sizes = np.array([len(new.record) + ENVELOPE_BYTES for new in batch], np.int64)
        at = sizes.cumsum() - sizes
        base = shard.log.next_body_position(len(body))
        first = shard.halves.last_offset + 1
        # The layout names the position of the HALF, which begins where the envelope does.
        stamp(
            np.frombuffer(body, np.uint8),
            at + ENVELOPE_BYTES,
            base=base - ENVELOPE_BYTES,
            queue_offset=np.arange(first, first + len(batch)),
            store_ms=shard.stamp_ms(now.wall_ms),
            store_host=shard.settings.store_host,
        )
        shard.log_times.note(now.mono_ms, now.wall_ms, shard.log.end)  # keeps the log for repeats
        shard.log.append(body, len(batch), now.wall_ms)
        shard.counters.halves_begun += len(batch)
        for new, start, length in zip(batch, at.tolist(), sizes.tolist(), strict=True):
            record = bytes(body[start + ENVELOPE_BYTES : start + length])
            half = half_of(base + start, decode_half(record), now.wall_ms, new.first_check_ms)
            shard.halves.begin(half)
            self._fresh[half.position] = record
            _fill_result(new, half.position, half.queue, half.half_offset)

    def check_invariants(self) -> None:
        """Check that nothing is left over between two steps."""
        assert not self._new, "taken up, and not appended"
        assert not self._replies


_DIGITS = 12


def _queue_of(record: bytes) -> int:
    at = HEAD_BYTES + layout.QUEUE_ID_AT
    return int.from_bytes(record[at : at + 4], "big", signed=True)


def _logged_bytes(new: _New) -> int:
    return ENVELOPE_BYTES + len(new.record)


def _fill_result(new: _New, position: int, queue: int, half_offset: int) -> None:
    new.sent.origins[new.row] = position
    new.sent.queue_ids[new.row] = queue
    new.sent.queue_offsets[new.row] = half_offset
