"""Sends that repeat an earlier one: same topic and message id, within the window.

A client that got no answer sends again, and must not schedule twice.  Such a message is not appended; it is
answered with the result of the first one, whatever has become of that since.  Where the first one is found:

    in this turn      two messages of one turn, perhaps of one request
    appended          frames that are not committed yet: their bodies are at hand
    committed         the key index, from the log position on where the window begins (`log_times`)

A hash of topic and id only points to a record; the record itself says whether topic and id are the same.  A
filter (`key_filter`) spares nearly all new messages that search.  Nothing of this is logged or replayed: what is
not appended leaves no trace, and the window survives a restart because key index and log do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker import past
from horolog.broker.key_filter import KeyFilter
from horolog.broker.shard import Shard
from horolog.log.frame_reader import Hole
from horolog.log.key_merge import equal_ranges
from horolog.log.record import HEAD, HEAD_BYTES, KIND_AT, Kind
from horolog.protocol.rocketmq import layout, properties

_SENT = frozenset({Kind.MESSAGE, Kind.SCHEDULED})


class _Same(NamedTuple):
    """What messages of a topic are the same by.

    Each attempt of a message that consumers fail on is a copy of its own, with the same id; and a group may fail on
    several messages with one id, of two topics, or sent further apart than the window.
    """

    message_id: str | None
    attempts: int = 0  # how often it was tried again
    topic: str = ""  # of a copy for another attempt: where the first one failed
    origin_id: str = ""  # and where that was stored

    def means(self, other: _Same) -> bool:
        """Whether it is the same send.

        A consumer that sends a copy itself, because it got no answer to its send-back, knows no log position and
        says the message id in its place.
        """
        if self[:3] != other[:3]:
            return False
        return self.origin_id == other.origin_id or self.message_id in (
            self.origin_id,
            other.origin_id,
        )


class First(NamedTuple):
    """The result of the send that is repeated."""

    origin: int
    queue_id: int
    queue_offset: int  # −1: it was scheduled
    due_ms: int


class Repeats:
    """Tells which messages of a turn were sent before."""

    def __init__(self, shard: Shard, mono_ms: int = 0) -> None:
        self._shard = shard
        times = shard.log_times
        self._filter = KeyFilter(times.window_ms + times.span_ms, mono_ms)
        since = times.since(mono_ms)
        if since is not None:  # what former processes have appended
            for keys in shard.key_index.keys_from(since):
                self._filter.add(keys, mono_ms)

    def among(
        self, record: Callable[[int], bytes], heads: npt.NDArray[np.void], mono_ms: int
    ) -> dict[int, First | int]:
        """Rows that repeat an earlier send: its result, or its row if it is of the same turn.

        record  gives the record of a row
        heads   of all rows
        """
        if not self._shard.log_times.window_ms:
            return {}
        keys = heads["key"].astype(np.uint64)
        maybe = self._filter.add(keys, mono_ms)
        found: dict[int, First | int] = {}
        if len(maybe):
            self._earlier(record, heads["topic"], keys, maybe, found, mono_ms)
        if len(keys) > 1:
            self._same_turn(record, heads["topic"], keys, found)
        return found

    def _same_turn(
        self,
        record: Callable[[int], bytes],
        topics: npt.NDArray[Any],
        keys: npt.NDArray[np.uint64],
        found: dict[int, First | int],
    ) -> None:
        ordered = np.sort(keys)
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not twice:
            return
        firsts: dict[tuple[int, *tuple[Any, ...]], dict[str, int]] = {}  # and by `origin_id`
        for row, key in enumerate(keys.tolist()):
            if key in twice and row not in found:
                same = _same(record(row))
                rows = firsts.setdefault((int(topics[row]), *same[:3]), {})
                first = rows.get(same.origin_id, rows.get(same.message_id or ""))
                if first is None and same.origin_id == same.message_id:
                    first = next(iter(rows.values()), None)
                if first is None:
                    rows[same.origin_id] = row
                else:
                    found[row] = first

    # --- earlier turns --------------------------------------------------------------------------

    def _earlier(
        self,
        record: Callable[[int], bytes],
        topics: npt.NDArray[Any],
        keys: npt.NDArray[np.uint64],
        maybe: npt.NDArray[np.int64],
        found: dict[int, First | int],
        mono_ms: int,
    ) -> None:
        since = self._shard.log_times.since(mono_ms)
        if since is None:
            return
        for at, earlier in self._records(keys[maybe], since):
            row = int(maybe[at])
            if row not in found:
                first = _first(earlier, int(topics[row]), _same(record(row)))
                if first is not None and not self._is_copy(first.origin):
                    found[row] = first

    def _is_copy(self, position: int) -> bool:
        """Whether a reschedule made that record, not a send."""
        for change in self._shard.uncommitted:
            if change.keyed is not None and position in change.keyed.positions:
                return change.keyed.body[KIND_AT] == Kind.RECALL
        return past.moved_from(self._shard, position) is not None

    def _records(
        self, keys: npt.NDArray[np.uint64], since: int
    ) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """(Index in `keys`, (log position, record)) of records with these key hashes, in log order for each."""
        committed = self._shard.key_index.find_many(keys, since)
        for at, position in zip(*(column.tolist() for column in committed), strict=True):
            record = self._committed(position)
            if record is not None:
                yield at, (position, record)
        order = np.argsort(keys, kind="stable")
        wanted = keys[order]
        for change in self._shard.uncommitted:
            if change.keyed is None:
                continue
            rows, places = equal_ranges(wanted, change.keyed.keys)
            for row, at in zip(rows.tolist(), order[places].tolist(), strict=True):
                position = int(change.keyed.positions[row])
                if position >= since:
                    yield at, (position, change.keyed.record(position))

    def _committed(self, position: int) -> bytes | None:
        """The record there; None if the log has lost it, which is told when it is read for a consumer."""
        found = self._shard.log.message(position)
        return None if isinstance(found, Hole) else found


def _same(record: bytes) -> _Same:
    stored = layout.decode(record[HEAD_BYTES:])
    message_id = properties.value_of(stored.properties, properties.UNIQ_KEY)
    if not stored.reconsume_times:
        return _Same(message_id)
    known = properties.decode(stored.properties)
    return _Same(
        message_id,
        stored.reconsume_times,
        known.get(properties.RETRY_TOPIC, ""),
        known.get(properties.ORIGIN_MESSAGE_ID, ""),
    )


def _first(found: tuple[int, bytes], topic: int, same: _Same) -> First | None:
    """The result of the send that appended this record; None if it is of another message, or a hand-over."""
    position, record = found
    head = np.frombuffer(record, HEAD, 1)[0]
    if int(head["kind"]) not in _SENT or int(head["topic"]) != topic:
        return None
    if not _same(record).means(same):
        return None
    stored = layout.decode(record[HEAD_BYTES:])
    scheduled = int(head["kind"]) == Kind.SCHEDULED
    offset = -1 if scheduled else stored.queue_offset
    return First(position, stored.queue_id, offset, int(head["due_ms"]))
