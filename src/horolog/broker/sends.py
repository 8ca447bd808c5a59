"""Sends of one turn: checked against topics and time, then appended in frames of at most 1 MiB.

A message that repeats one sent before (`repeats`) is not appended; it gets the first one's result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horolog.broker.columns import stamp
from horolog.broker.effects import Reply
from horolog.broker.key_columns import key_columns
from horolog.broker.repeats import First, Repeats
from horolog.broker.shard import Applied, Shard
from horolog.broker.topics import Topic
from horolog.delay.adopted import Adoption
from horolog.delay.store import Unfiled
from horolog.errors import ErrorCode, HorologError
from horolog.limits import FRAME_BYTES_MAX, MESSAGES_PER_SEND_MAX
from horolog.log.consume_queue import UNIT
from horolog.log.record import HAS_KEYS, HEAD, HEAD_BYTES, Kind, encode_adopt
from horolog.log.unaligned import put
from horolog.protocol.accepted import ACCEPTED, refusal
from horolog.protocol.commands import NewMessage, SendMessages, Sent
from horolog.protocol.rocketmq.layout import QUEUE_ID_AT

_HEAD_FIELDS = ("kind", "due_ms", "topic", "tags", "key", "flags")
_COLUMNS = np.dtype(
    [*((name, np.uint64 if name == "key" else np.int64) for name in _HEAD_FIELDS), ("queue", "i8")]
)


class _Request(NamedTuple):
    token: object
    sent: Sent
    rows: list[int]  # per accepted message: its place in the request
    first: int  # row of its first accepted message in the turn


class Sends:
    """Collects the sends of one turn; `flush` appends them."""

    def __init__(self, shard: Shard, mono_ms: int = 0) -> None:
        self._shard = shard
        self._repeats = Repeats(shard, mono_ms)
        self._requests: list[_Request] = []
        self._messages: list[NewMessage] = []
        self._columns: list[tuple[int, int, int, int, int, int, int]] = []
        self._keys: set[int] = set()
        self._keyed = False

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
        first = len(self._messages)
        queues = len(topic.queues)
        for i, message in enumerate(messages):
            refused = self._refuse(topic, message, latest, wall_ms)
            if refused is not None:
                sent.refused[i] = refused
                continue
            rows.append(i)
            scheduled = message.due_ms > wall_ms
            topic.next_queue = (topic.next_queue + 1) % queues
            self._messages.append(message)
            self._keys.add(message.key_hash)
            self._keyed |= message.has_keys
            self._columns.append(
                (
                    Kind.SCHEDULED if scheduled else Kind.MESSAGE,
                    message.due_ms,
                    topic.number,
                    message.tags_code,
                    message.key_hash,
                    HAS_KEYS if message.has_keys else 0,
                    topic.next_queue,
                )
            )
        self._requests.append(_Request(token, sent, rows, first))

    def has_key(self, key: int) -> bool:
        """Whether a message of that key hash was collected in this turn."""
        return key in self._keys

    def has_keyed(self) -> bool:
        """Whether a message with user keys was collected in this turn."""
        return self._keyed

    def _refuse(
        self, topic: Topic, message: NewMessage, latest: int, wall_ms: int
    ) -> HorologError | None:
        if message.type not in ACCEPTED[topic.type]:
            return refusal(topic.name, topic.type, message.type)
        if message.due_ms > latest:
            return too_late(message.due_ms, wall_ms, self._shard.settings.max_delay_ms)
        return None

    def flush(self, wall_ms: int, mono_ms: int) -> list[Reply]:
        """Append everything collected; gives the replies, to be held until it is committed."""
        if self._messages:
            columns = np.array(self._columns, _COLUMNS)
            repeats = self._repeats.among(self._messages, columns, mono_ms)
            if len(repeats) < len(columns):
                self._shard.log_times.note(mono_ms, wall_ms, self._shard.log.end)
            if repeats:
                self._append_others(columns, repeats, wall_ms)
            else:
                offsets, origins = self._append(self._messages, columns, wall_ms)
                self._fill(origins.tolist(), columns["queue"].tolist(), offsets.tolist())
        replies = [Reply(request.token, request.sent) for request in self._requests]
        self._requests, self._messages, self._columns = [], [], []
        self._keys.clear()
        self._keyed = False
        return replies

    def _append_others(
        self, columns: np.ndarray, repeats: dict[int, First | int], wall_ms: int
    ) -> None:
        """Append all but the repeats, and give these the results of those that they repeat."""
        new = np.array([row for row in range(len(columns)) if row not in repeats], np.int64)
        offsets, origins = np.full((2, len(columns)), -1, np.int64)
        if len(new):
            messages = [self._messages[row] for row in new.tolist()]
            offsets[new], origins[new] = self._append(messages, columns[new], wall_ms)
        queues = columns["queue"].copy()
        due = dict[int, int]()
        for row, first in sorted(repeats.items()):
            if isinstance(first, First):
                origins[row], queues[row], offsets[row], due[row] = first
            else:
                origins[row], queues[row], offsets[row] = (
                    column[first] for column in (origins, queues, offsets)
                )
                due[row] = int(columns["due_ms"][first])
        self._fill(origins.tolist(), queues.tolist(), offsets.tolist())
        for _, sent, rows, first_row in self._requests:
            sent.first_due_ms = {i: due[row] for row, i in enumerate(rows, first_row) if row in due}

    def _append(
        self, messages: list[NewMessage], columns: np.ndarray, wall_ms: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Append messages in frames; gives their queue offsets (−1: scheduled) and log positions."""
        records = [message.record for message in messages]
        sizes = np.array(list(map(len, records)), np.int64)
        heads = np.zeros(len(sizes), HEAD)
        heads["size"] = sizes
        for name in _HEAD_FIELDS:
            heads[name] = columns[name]
        queues = columns["queue"]
        offsets = np.full(len(sizes), -1, np.int64)
        origins = np.empty(len(sizes), np.int64)
        first = 0
        limit = min(FRAME_BYTES_MAX, self._shard.log.segment_bytes // 4)
        ends = np.cumsum(sizes)
        while first < len(sizes):
            budget = (int(ends[first - 1]) if first else 0) + limit
            stop = max(first + 1, int(np.searchsorted(ends, budget, side="right")))
            rows = slice(first, stop)
            offsets[rows], origins[rows] = append_messages(
                self._shard, records[rows], heads[rows], queues[rows], wall_ms
            )
            first = stop
        return offsets, origins

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


def append_messages(
    shard: Shard,
    records: list[bytes],
    heads: np.ndarray,
    queues: np.ndarray,
    wall_ms: int,
    adoption: Adoption | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Append one frame of messages; gives their queue offsets (−1: scheduled) and log positions.

    adoption  the transaction that these messages are all of; its record comes first
    """
    control = encode_adopt(adoption.fields()) if adoption is not None else b""
    body = bytearray(b"".join([control, *records]))
    base = shard.log.place(len(body))
    sizes = heads["size"].astype(np.int64)
    at = len(control) + np.cumsum(sizes) - sizes
    raw = np.frombuffer(body, np.uint8)
    put(raw, at, heads)
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
    if adoption is not None:
        adoption = adoption._replace(position=base)
    shard.log.append(body, len(records) + (adoption is not None), wall_ms)
    shard.uncommitted.append(
        Applied(
            shard.log.end,
            units,
            unfiled_of(heads, at, base, body, wall_ms),
            [],
            key_columns(heads, at, base, body),
            adoption,
        )
    )
    return offsets, at + base


def too_late(due_ms: int, wall_ms: int, max_delay_ms: int) -> HorologError | None:
    """Why a message may not be due then; None if it may."""
    if due_ms <= wall_ms + max_delay_ms:
        return None
    return HorologError(
        ErrorCode.ILLEGAL_DELIVERY_TIME,
        f"delivery_timestamp: due in {due_ms - wall_ms} ms; at most {max_delay_ms} ms "
        f"({max_delay_ms / 3_600_000:g} h) ahead are allowed",
        field="delivery_timestamp",
        limit=f"{max_delay_ms} ms",
    )


def unfiled_of(
    heads: np.ndarray, at: np.ndarray, base: int, body: bytes | bytearray, append_ms: int
) -> Unfiled | None:
    """The scheduled messages of a frame body, to be filed when it is committed; None if it has none."""
    rows = np.flatnonzero(heads["kind"] == Kind.SCHEDULED)
    if not len(rows):
        return None
    if len(rows) == len(heads) and int(heads["size"].sum()) == len(body):
        return Unfiled(heads, (at + base).astype(np.uint64), memoryview(body), append_ms)
    view = memoryview(body)
    starts = at[rows]
    ends = starts + heads["size"][rows]
    records = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
    return Unfiled(heads[rows], (starts + base).astype(np.uint64), memoryview(records), append_ms)
