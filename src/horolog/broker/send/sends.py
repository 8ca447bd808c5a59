"""Sends of one turn: checked against topics and time, then appended in frames of at most 1 MiB.

A message that repeats an earlier one (`repeats`) is not appended; it gets the result of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import queue_ids
from horolog.broker.effects import Reply
from horolog.broker.send import late_marks
from horolog.broker.send.group_queues import choose_queues
from horolog.broker.send.message_frames import append_messages
from horolog.broker.send.repeats import First, Repeats, Reused
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import MESSAGES_PER_SEND_MAX
from horolog.log.record import HAS_KEYS, HEAD, Kind
from horolog.log.unaligned import get
from horolog.protocol.accepted import ACCEPTED, refusal
from horolog.protocol.commands import MessageType, SendMessages, Sent, TopicType
from horolog.protocol.send_commands import HEAD_AS_SENT

_Column = npt.NDArray[np.int64]
_MESSAGE, _SCHEDULED = np.uint8(Kind.MESSAGE), np.uint8(Kind.SCHEDULED)
_FIFO, _DELAY = int(MessageType.FIFO), int(MessageType.DELAY)
_TYPE_ROWS = {type: row for row, type in enumerate(TopicType)}
_TAKES = np.zeros((len(_TYPE_ROWS), 256), np.bool_)  # [row of topic type, message type]
for _type, _kinds in ACCEPTED.items():
    _TAKES[_TYPE_ROWS[_type], list(_kinds)] = True
_TAKES[:, MessageType.TRANSACTION] = False  # sent as half messages (`transactions.halves`)


NO_REPLY = object()
"""The token of a send that needs no reply."""


class _Request(NamedTuple):
    token: object
    topic: Topic
    rows: range  # of the turn
    draw: int  # queue of its first message, round-robin
    parts: Sequence[int]
    reuses_ids: bool
    type: TopicType  # that decides which messages are accepted of this sender


class _Turn(NamedTuple):
    """The collected sends as columns; heads are as they will be logged."""

    records: bytes
    at: _Column  # of each record
    heads: npt.NDArray[Any]
    queues: _Column

    def record(self, row: int) -> bytes:
        """Return the record of one row, as it was sent."""
        at = int(self.at[row])
        return self.records[at : at + int(self.heads["size"][row])]


class Sends:
    """Collects the sends of one turn; `flush` decides and appends them."""

    def __init__(self, shard: Shard, mono_ms: int = 0) -> None:
        self._shard = shard
        self._repeats = Repeats(shard, mono_ms)
        self._requests: list[_Request] = []
        self._records: list[bytes] = []  # of each request
        self._sizes: list[int] = []  # of each record
        self._looked = 0  # requests whose keys are in the next two fields
        self._keys: set[int] = set()
        self._keyed = False
        self._committed = 0  # at the last `flush`

    def add(self, token: object, command: SendMessages) -> None:
        """Queue one request for `flush`; refusals of single messages are reported in its result."""
        topic = self._shard.topics.get(command.topic)
        topic.check_writable()
        records, sizes = command.columns()
        count = len(sizes)
        check_count(count)
        first, draw = len(self._sizes), topic.draw(count)
        self._requests.append(
            _Request(
                token,
                topic,
                range(first, first + count),
                draw,
                command.parts,
                command.reuses_ids,
                TopicType.MIXED if command.any_type else topic.type,
            )
        )
        self._records.append(records)
        self._sizes += sizes

    def has_topic(self, name: str) -> bool:
        """Return whether a message of that topic was collected in this turn."""
        return any(request.topic.name == name for request in self._requests)

    def has_key(self, key: int) -> bool:
        """Return whether a message of that key hash was collected in this turn."""
        self._collect_keys()
        return key in self._keys

    def has_keyed(self) -> bool:
        """Return whether a message with user keys was collected in this turn."""
        self._collect_keys()
        return self._keyed

    def _collect_keys(self) -> None:
        """Collect the keys of requests added since the last call; only for turns with recalls."""
        for request, records in zip(
            self._requests[self._looked :], self._records[self._looked :], strict=True
        ):
            at = 0
            for row in request.rows:
                size, _, flags, _, _, _, _, key = HEAD_AS_SENT.unpack_from(records, at)
                assert size == self._sizes[row], (row, size)
                self._keys.add(key)
                self._keyed |= bool(flags & HAS_KEYS)
                at += size
        self._looked = len(self._requests)

    def flush(self, wall_ms: int, mono_ms: int) -> list[Reply]:
        """Append all collected sends; return the replies, to hold until the commit."""
        # Sends committed in the last turn were answered in it, before this turn's sends arrived.
        answered, self._committed = self._committed, self._shard.log.commit_position
        if not self._requests:
            return []
        requests, turn, refused = self._decide(wall_ms)
        reused = [request.rows for request in requests if request.reuses_ids]
        of_4x = Reused(reused, answered, wall_ms)
        repeats = self._repeats.among(turn.record, turn.heads, mono_ms, of_4x, refused)
        if len(repeats) + len(refused) < len(turn.heads):
            self._shard.log_times.note(mono_ms, wall_ms, self._shard.log.end)
        if repeats or refused:
            return self._append_others(requests, turn, repeats, refused, wall_ms)
        offsets, origins = self._append(turn, wall_ms)
        columns = (origins, turn.queues, offsets, turn.heads["due_ms"])
        return _replies(requests, *(column.tolist() for column in columns))

    def _decide(self, wall_ms: int) -> tuple[list[_Request], _Turn, dict[int, HorologError]]:
        """Decide the collected sends, and which are refused; start to collect again."""
        requests, records = self._requests, b"".join(self._records)
        sizes = np.array(self._sizes, np.int64)
        self._requests, self._records, self._sizes = [], [], []
        self._keys.clear()
        self._keyed, self._looked = False, 0
        raw = np.frombuffer(records, np.uint8)
        at = sizes.cumsum() - sizes
        heads = get(raw, at, HEAD)
        assert bool((heads["size"] == sizes).all()), "sizes of records"
        topics, queue_counts, types, draws = _columns_of(requests)
        due = heads["due_ms"].astype(np.int64)
        if bool((due < 0).any()):
            since = np.where(heads["lane"], self._shard.stamp_level_ms(wall_ms), wall_ms)
            due = np.where(due < 0, since - due, due)
        queues = queue_ids(raw, at)
        kinds, groups = heads["kind"], heads["topic"].copy()  # as sent: codes of message groups
        takes = _TAKES[types, kinds] | (kinds == _FIFO) & (due != 0) & _TAKES[types, _DELAY]
        bad = ~takes | (queues >= queue_counts)
        bad |= due > wall_ms + self._shard.settings.max_delay_ms
        refused = {}
        for row in bad.nonzero()[0].tolist():
            refused[row] = self._refusal(
                requests, row, int(heads["kind"][row]), int(due[row]), int(queues[row]), wall_ms
            )
        if refused:
            _refuse_parts(requests, refused)
        queues = choose_queues(queues, groups, draws, queue_counts)
        is_later = due > wall_ms
        heads["kind"] = np.where(is_later, _SCHEDULED, _MESSAGE)
        heads["lane"] *= is_later
        if bool(is_later.any()) and (unclear := late_marks.mark(records, at, heads)):
            refused |= unclear
            _refuse_parts(requests, refused)
        heads["due_ms"] = due
        heads["topic"] = topics
        return requests, _Turn(records, at, heads, queues), refused

    def _refusal(
        self, requests: list[_Request], row: int, kind: int, due_ms: int, queue: int, wall_ms: int
    ) -> HorologError:
        """Return why a message is refused that is known to be."""
        request = next(r for r in requests if row in r.rows)
        topic = request.topic
        found = refusal(topic.name, request.type, MessageType(kind), is_timed=due_ms != 0)
        if found is None and kind == MessageType.TRANSACTION:
            found = refused(
                "message_type",
                "TRANSACTION, but it is not sent as a half message",
                code=ErrorCode.TYPE_CONFLICT,
            )
        if found is None and queue >= topic.write_queues:
            found = topic.no_such_queue(queue)
        found = found or too_late(due_ms, wall_ms, self._shard.settings.max_delay_ms)
        assert found is not None, row
        return found

    def _append_others(
        self,
        requests: list[_Request],
        turn: _Turn,
        repeats: dict[int, First | int],
        refused: dict[int, HorologError],
        wall_ms: int,
    ) -> list[Reply]:
        """Append all messages but refused ones and repeats, which get the first one's result."""
        count = len(turn.heads)
        new = np.array(
            [row for row in range(count) if row not in repeats and row not in refused], np.int64
        )
        offsets, origins = np.full((2, count), -1, np.int64)
        if len(new):
            records = b"".join([turn.record(row) for row in new.tolist()])
            chosen = _Turn(records, turn.at, turn.heads.take(new), turn.queues[new])
            offsets[new], origins[new] = self._append(chosen, wall_ms)
        queues, due = turn.queues.copy(), turn.heads["due_ms"].copy()
        queues[list(refused)] = -1
        for row, first in sorted(repeats.items()):
            if isinstance(first, First):
                origins[row], queues[row], offsets[row], due[row] = first
            else:
                for column in (origins, queues, offsets, due):
                    column[row] = column[first]
        replies = _replies(
            requests, *(column.tolist() for column in (origins, queues, offsets, due))
        )
        for request, reply in zip(requests, replies, strict=True):
            sent = reply.result
            assert isinstance(sent, Sent)
            rows = request.rows
            sent.refused = {i: refused[row] for i, row in enumerate(rows) if row in refused}
            sent.first_due_ms = {
                i: int(due[row])
                for i, row in enumerate(rows)
                if row in repeats and row not in refused
            }
        return replies

    def _append(self, turn: _Turn, wall_ms: int) -> tuple[_Column, _Column]:
        """Append messages in frames; return queue offsets (−1: scheduled) and log positions."""
        sizes = turn.heads["size"].astype(np.int64)
        limit = self._shard.log.frame_bytes_max
        if len(turn.records) <= limit:
            return append_messages(self._shard, turn.records, turn.heads, turn.queues, wall_ms)
        ends = np.cumsum(sizes)
        cuts = [0]
        while cuts[-1] < len(sizes):
            budget = (int(ends[cuts[-1] - 1]) if cuts[-1] else 0) + limit
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, budget, side="right"))))
        view = memoryview(turn.records)
        found = [
            append_messages(
                self._shard,
                view[int(ends[first] - sizes[first]) : int(ends[stop - 1])],
                turn.heads[first:stop],
                turn.queues[first:stop],
                wall_ms,
            )
            for first, stop in pairwise(cuts)
        ]
        offsets, origins = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return offsets, origins


def _columns_of(requests: list[_Request]) -> npt.NDArray[np.int64]:
    """Return four rows: of each message topic id, count of queues, row in `_TAKES`, and draw."""
    rows = [
        (each.topic.id, each.topic.write_queues, _TYPE_ROWS[each.type], each.draw - each.rows.start)
        for each in requests
    ]
    counts = [len(each.rows) for each in requests]
    return np.array(rows, np.int64).repeat(counts, axis=0).T


def _refuse_parts(requests: list[_Request], refused: dict[int, HorologError]) -> None:
    """Refuse all messages of a part that has a refused message, for the same reason."""
    for request in requests:
        first = request.rows.start
        for count in request.parts:
            rows = range(first, first + count)
            first += count
            why = next((refused[row] for row in rows if row in refused), None)
            if why is not None:
                refused.update(dict.fromkeys(rows, why))


def _replies(
    requests: list[_Request],
    origins: list[int],
    queues: list[int],
    offsets: list[int],
    due: list[int],
) -> list[Reply]:
    found = []
    for request in requests:
        rows = slice(request.rows.start, request.rows.stop)
        sent = Sent(origins[rows], queues[rows], offsets[rows], due_ms=due[rows])
        found.append(Reply(request.token, sent))
    return found


def check_count(count: int) -> None:
    """Raise MESSAGE_CORRUPTED for a request with no messages, or too many."""
    if not 1 <= count <= MESSAGES_PER_SEND_MAX:
        raise refused(
            "messages",
            f"{count} in one request; 1 to {MESSAGES_PER_SEND_MAX} are allowed",
            f"1 to {MESSAGES_PER_SEND_MAX}",
            code=ErrorCode.MESSAGE_CORRUPTED,
        )


def too_late(due_ms: int, wall_ms: int, max_delay_ms: int) -> HorologError | None:
    """Return why a message may not be due at that time; None if it may."""
    if due_ms <= wall_ms + max_delay_ms:
        return None
    return refused(
        "delivery_timestamp",
        f"due in {due_ms - wall_ms} ms; at most {max_delay_ms} ms "
        f"({max_delay_ms / 3_600_000:g} h) ahead are allowed",
        f"{max_delay_ms} ms",
        code=ErrorCode.ILLEGAL_DELIVERY_TIME,
    )
