"""Sends of one turn: checked against topics and time, then appended in frames of at most 1 MiB."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horolog.broker.columns import put, stamp
from horolog.broker.effects import Reply
from horolog.broker.shard import Applied, Shard
from horolog.broker.topics import Topic
from horolog.delay.store import Unfiled
from horolog.errors import ErrorCode, HorologError
from horolog.limits import FRAME_BYTES_MAX, MESSAGES_PER_SEND_MAX
from horolog.log.consume_queue import UNIT
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.protocol.commands import MessageType, NewMessage, SendMessages, Sent, TopicType
from horolog.protocol.rocketmq.layout import QUEUE_ID_AT

_COLUMNS = np.dtype("i8,i8,i8,i8,u8,i8")  # kind, due ms, topic, tags code, key hash, queue
_HERE = frozenset({MessageType.NORMAL, MessageType.DELAY})


class _Request(NamedTuple):
    token: object
    sent: Sent
    rows: list[int]  # per accepted message: its place in the request
    first: int  # row of its first accepted message in the turn


class Sends:
    """Collects the sends of one turn; `flush` appends them."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._requests: list[_Request] = []
        self._records: list[bytes] = []
        self._columns: list[tuple[int, int, int, int, int, int]] = []

    def add(self, token: object, command: SendMessages, wall_ms: int) -> None:
        """Check one request; refusals of single messages stand in its result."""
        topic = self._shard.topics.get(command.topic)
        messages = command.messages
        if not 1 <= len(messages) <= MESSAGES_PER_SEND_MAX:
            raise HorologError(
                ErrorCode.MESSAGE_CORRUPTED,
                f"messages: {len(messages)} in one request; 1 to {MESSAGES_PER_SEND_MAX} are allowed",
                field="messages",
                limit=f"1 to {MESSAGES_PER_SEND_MAX}",
            )
        n = len(messages)
        sent = Sent([-1] * n, [-1] * n, [-1] * n)
        latest = wall_ms + self._shard.settings.max_delay_ms
        rows = []
        first = len(self._records)
        queues = len(topic.queues)
        for i, message in enumerate(messages):
            refusal = self._refuse(topic, message, latest, wall_ms)
            if refusal is not None:
                sent.refused[i] = refusal
                continue
            rows.append(i)
            scheduled = message.due_ms > wall_ms
            topic.next_queue = (topic.next_queue + 1) % queues
            self._records.append(message.record)
            self._columns.append(
                (
                    Kind.SCHEDULED if scheduled else Kind.MESSAGE,
                    message.due_ms,
                    topic.number,
                    message.tags_code,
                    message.key_hash,
                    topic.next_queue,
                )
            )
        self._requests.append(_Request(token, sent, rows, first))

    def has_key(self, key: int) -> bool:
        """Whether a message of that key hash was collected in this turn."""
        return any(column[4] == key for column in self._columns)

    def _refuse(
        self, topic: Topic, message: NewMessage, latest: int, wall_ms: int
    ) -> HorologError | None:
        kind = message.type
        if kind not in _HERE:
            return HorologError(
                ErrorCode.NOT_IMPLEMENTED,
                f"message type {kind.name} is not supported yet",
                field="message_type",
            )
        if topic.type is not TopicType.MIXED and topic.type.value != kind.name.lower():
            return HorologError(
                ErrorCode.TYPE_CONFLICT,
                f"topic {topic.name!r} takes {topic.type.value} messages, not {kind.name.lower()}",
                field="message_type",
            )
        if message.due_ms > latest:
            limit = self._shard.settings.max_delay_ms
            return HorologError(
                ErrorCode.ILLEGAL_DELIVERY_TIME,
                f"delivery_timestamp: due in {message.due_ms - wall_ms} ms; at most {limit} ms "
                f"({limit / 3_600_000:g} h) ahead are allowed",
                field="delivery_timestamp",
                limit=f"{limit} ms",
            )
        return None

    def flush(self, wall_ms: int) -> list[Reply]:
        """Append everything collected; gives the replies, to be held until it is committed."""
        if self._records:
            self._append_all(wall_ms)
        replies = [Reply(request.token, request.sent) for request in self._requests]
        self._requests, self._records, self._columns = [], [], []
        return replies

    def _append_all(self, wall_ms: int) -> None:
        sizes = np.array(list(map(len, self._records)), np.int64)
        columns = np.array(self._columns, _COLUMNS)
        heads = np.zeros(len(sizes), HEAD)
        heads["size"] = sizes
        for name, column in zip(("kind", "due_ms", "topic", "tags", "key"), "01234", strict=True):
            heads[name] = columns[f"f{column}"]
        queues = columns["f5"]
        offsets = np.full(len(sizes), -1, np.int64)
        origins = np.empty(len(sizes), np.int64)
        first = 0
        limit = min(FRAME_BYTES_MAX, self._shard.log.segment_bytes // 4)
        ends = np.cumsum(sizes)
        while first < len(sizes):
            budget = (int(ends[first - 1]) if first else 0) + limit
            stop = max(first + 1, int(np.searchsorted(ends, budget, side="right")))
            rows = slice(first, stop)
            offsets[rows], origins[rows] = self._append_frame(
                self._records[rows], heads[rows], queues[rows], wall_ms
            )
            first = stop
        self._fill(origins.tolist(), queues.tolist(), offsets.tolist())

    def _append_frame(
        self,
        records: list[bytes],
        heads: np.ndarray,
        queues: np.ndarray,
        wall_ms: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        shard = self._shard
        body = bytearray(b"".join(records))
        base = shard.log.place(len(body))
        sizes = heads["size"].astype(np.int64)
        at = np.cumsum(sizes) - sizes
        raw = np.frombuffer(body, np.uint8)
        raw[at[:, None] + np.arange(HEAD_BYTES)] = heads.view(np.uint8).reshape(-1, HEAD_BYTES)
        put(raw, at + (HEAD_BYTES + QUEUE_ID_AT), queues.astype(">i4"))
        offsets = np.full(len(heads), -1, np.int64)
        now = np.flatnonzero(heads["kind"] == Kind.MESSAGE)
        units = []
        if len(now):
            offsets[now], groups = shard.topics.assign(heads["topic"][now], queues[now])
            for topic, queue_id, rows in groups:
                chosen = now[rows]
                unit = np.empty(len(chosen), UNIT)
                unit["position"] = at[chosen] + base
                unit["size"] = sizes[chosen]
                unit["tags"] = heads["tags"][chosen]
                units.append((topic, queue_id, unit))
        stamp(
            raw,
            at,
            base=base,
            queue_offset=np.maximum(offsets, 0),
            store_ms=shard.stamp_ms(wall_ms),
            store_host=shard.settings.store_host,
        )
        shard.log.append(body, len(records), wall_ms)
        shard.uncommitted.append(
            Applied(shard.log.end, units, unfiled_of(heads, at, base, body), [])
        )
        return offsets, at + base

    def _fill(self, origins: list[int], queues: list[int], offsets: list[int]) -> None:
        for _, sent, rows, first in self._requests:
            stop = first + len(rows)
            if len(rows) == len(sent.origins):
                sent.origins = origins[first:stop]
                sent.queue_ids = queues[first:stop]
                sent.queue_offsets = offsets[first:stop]
                continue
            for row, i in enumerate(rows, first):
                sent.origins[i] = origins[row]
                sent.queue_ids[i] = queues[row]
                sent.queue_offsets[i] = offsets[row]


def unfiled_of(
    heads: np.ndarray, at: np.ndarray, base: int, body: bytes | bytearray
) -> Unfiled | None:
    """The scheduled messages of a frame body, to be filed when it is committed; None if it has none."""
    rows = np.flatnonzero(heads["kind"] == Kind.SCHEDULED)
    if not len(rows):
        return None
    if len(rows) == len(heads):
        return Unfiled(heads, (at + base).astype(np.uint64), memoryview(body))
    view = memoryview(body)
    starts = at[rows]
    ends = starts + heads["size"][rows]
    records = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
    return Unfiled(heads[rows], (starts + base).astype(np.uint64), memoryview(records))
