"""Recognise sends that repeat an earlier one: same topic, message id and body, within the window.

A client that got no answer sends again, and must not schedule twice.  Such a message is not
appended; it is answered with the result of the first send, whatever has become of that message
since.  The first send is looked for:

    in this turn      two messages of one turn, perhaps of one request
    appended          frames that are not committed yet: their bodies are at hand
    committed         the key index, from the log position on where the window begins (`log_times`)

A 4.x client keeps the id in its message object, and sends the object again because it wants two
messages, or because it got no answer.  `_SendFields.is_deliberate_copy` tells which.

The body counts because ids are not unique: clients make them of their IPv4 address and process id,
which are the same in many a container, and of a counter.  A message of another client must not be
taken for a repeat, and lost.

A message that a 4.x consumer has received keeps its id when it is sent on, perhaps with a delay.
Such a message differs from a repeat of the first send by properties that clients add to received
messages.

A hash of topic and id only points to a record; the record itself shows whether topic, id and body
are the same.  A filter (`key_filter`) spares nearly all new messages that search.  Nothing of this
is logged or replayed: a repeat that is not appended leaves no trace, and the window survives a
restart because key index and log do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.recall import past
from horolog.broker.send.key_filter import KeyFilter
from horolog.broker.shard import Shard
from horolog.log.frame_reader import Hole
from horolog.log.key_merge import equal_ranges
from horolog.log.record import HEAD, HEAD_BYTES, KIND_AT, Kind
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.retry import DEAD_LETTER_PREFIX

_SENT = frozenset({Kind.MESSAGE, Kind.SCHEDULED})
_PATIENCE_MS = 200  # no client sends again sooner than that
_RECEIVED = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "1ST_POP_TIME")
_NEWEST = 64  # records of a key that are examined: all messages of a benchmark may have one id


class _SendFields(NamedTuple):
    """The fields by which two messages of a topic are the same.

    Each attempt of a message that consumers fail on is a copy of its own, with the same id; and a
    group may fail on several messages with one id, of two topics, or sent further apart than the
    window.
    """

    message_id: str | None
    attempts: int = 0  # retries before this one; 1 for a dead letter, which is made only once
    topic: str = ""  # of a copy for another attempt: the topic where the first one failed
    # Body of a first attempt.  A client that sends a retry itself may compress the body again.
    body: bytes = b""
    received: tuple[str | None, ...] = ()  # of a first attempt: its values of `_RECEIVED`
    origin_id: str = ""  # of a later attempt: where the first was stored
    born_ms: int = 0
    born_host: tuple[bytes, int] = (b"", 0)  # the connection that it came by
    store_ms: int = 0

    def is_same_send(self, other: _SendFields) -> bool:
        """Return whether `other` is the same send.

        A consumer that sends a copy itself, because it got no answer to its send-back, knows no log
        position and puts the message id in its place.
        """
        if self[:_EQUAL] != other[:_EQUAL]:
            return False
        return self.origin_id == other.origin_id or self.message_id in (
            self.origin_id,
            other.origin_id,
        )

    def is_deliberate_copy(self, first: _SendFields, *, answered: bool, age_ms: int) -> bool:
        """Return whether a 4.x client that has sent `first` wants this message too.

        Both must have come over the same connection.  An application that sends again, and a client
        that waits for each answer and tries again, give the message a born time of its own; a retry
        without the knowledge of an asynchronous caller keeps the born time.

        answered  whether `first` was answered before this message arrived
        age_ms    how long `first` has been stored
        """
        if self.attempts or not self.born_host[1] or self.born_host != first.born_host:
            return False
        apart = abs(self.born_ms - first.born_ms)
        if answered:
            return bool(apart) or age_ms < _PATIENCE_MS
        return 0 < apart < _PATIENCE_MS


_EQUAL = _SendFields._fields.index("origin_id")  # so many fields must be equal


class Reused(NamedTuple):
    """Facts about sends whose clients may give one id to several messages."""

    rows: Sequence[range] = ()  # of the turn, one range a request
    answered: int = 0  # sends below this log position were answered before the commands arrived
    wall_ms: int = 0


class First(NamedTuple):
    """The result of the earlier send that is repeated."""

    origin: int
    queue_id: int
    queue_offset: int  # −1: it was scheduled
    due_ms: int


class Repeats:
    """Finds the messages of a turn that were sent before."""

    def __init__(self, shard: Shard, mono_ms: int) -> None:
        self._shard = shard
        times = shard.log_times
        self._filter = KeyFilter(times.window_ms + times.span_ms, mono_ms)
        since = times.since(mono_ms)
        if since is not None:  # appended by former processes
            for keys in shard.key_index.keys_from(since):
                self._filter.add(keys, mono_ms)

    def among(
        self,
        record: Callable[[int], bytes],
        heads: npt.NDArray[np.void],
        mono_ms: int,
        reused: Reused = Reused(),
        refused: Collection[int] = (),
    ) -> dict[int, First | int]:
        """Return the rows that repeat an earlier send: its result, or its row in this turn.

        record   returns the record of a row
        heads    of all rows
        refused  rows that are not stored: they repeat nothing, and nothing repeats them
        """
        if not self._shard.log_times.window_ms:
            return {}
        keys = heads["key"].astype(np.uint64)
        maybe = self._filter.add(keys, mono_ms)
        found: dict[int, First | int] = {}
        if len(maybe):
            self._find_earlier(record, heads["topic"], keys, maybe, found, mono_ms, reused)
        if len(keys) > 1:
            self._find_in_turn(record, heads["topic"], keys, found, reused, refused)
        return {row: first for row, first in found.items() if row not in refused}

    def _find_in_turn(
        self,
        record: Callable[[int], bytes],
        topics: npt.NDArray[Any],
        keys: npt.NDArray[np.uint64],
        found: dict[int, First | int],
        reused: Reused,
        refused: Collection[int],
    ) -> None:
        ordered = keys.copy()
        ordered.sort()
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not twice:
            return
        may_reuse = set(chain.from_iterable(reused.rows))
        firsts: dict[tuple[int, *tuple[Any, ...]], dict[str, int]] = {}  # then by `origin_id`
        for row, key in enumerate(keys.tolist()):
            if key in twice and row not in found and row not in refused:
                sent = _fields_of(record(row))
                rows = firsts.setdefault((int(topics[row]), *sent[:_EQUAL]), {})
                first = rows.get(sent.origin_id, rows.get(sent.message_id or ""))
                if first is None and sent.origin_id == sent.message_id:
                    first = next(iter(rows.values()), None)
                if first is None or (
                    row in may_reuse
                    and sent.is_deliberate_copy(_fields_of(record(first)), answered=False, age_ms=0)
                ):
                    rows[sent.origin_id] = row
                else:
                    found[row] = first

    # --- earlier turns --------------------------------------------------------------------------

    def _find_earlier(
        self,
        record: Callable[[int], bytes],
        topics: npt.NDArray[Any],
        keys: npt.NDArray[np.uint64],
        maybe: npt.NDArray[np.int64],
        found: dict[int, First | int],
        mono_ms: int,
        reused: Reused,
    ) -> None:
        since = self._shard.log_times.since(mono_ms)
        if since is None:
            return
        may_reuse = set(chain.from_iterable(reused.rows))
        decided: set[int] = set()
        for at, position, is_stored in self._places(keys[maybe], since):
            row = int(maybe[at])
            if row in decided:
                continue
            earlier = self._record(position, is_stored=is_stored)
            sent = _fields_of(record(row))
            first = _result_of(position, earlier, int(topics[row]), sent) if earlier else None
            if first is None or self._is_copy(position):
                continue
            assert earlier is not None
            if row not in may_reuse:
                found[row] = first  # newest come first, so the oldest wins
                continue
            decided.add(row)
            before = _fields_of(earlier)
            if not sent.is_deliberate_copy(
                before,
                answered=position < reused.answered,
                age_ms=reused.wall_ms - before.store_ms,
            ):
                found[row] = first

    def _is_copy(self, position: int) -> bool:
        """Return whether a reschedule made the record at that log position, not a send."""
        for change in self._shard.uncommitted:
            if change.keyed is not None and position in change.keyed.positions:
                return change.keyed.body[KIND_AT] == Kind.RECALL
        return past.moved_from(self._shard, position) is not None

    def _places(self, keys: npt.NDArray[np.uint64], since: int) -> Iterator[tuple[int, int, bool]]:
        """Yield records with these key hashes, newest first.

        Each is (index in `keys`, log position, whether it is committed).
        """
        order = np.argsort(keys, kind="stable")
        wanted = keys[order]
        for change in reversed(self._shard.uncommitted):
            if change.keyed is None:
                continue
            rows, places = equal_ranges(wanted, change.keyed.keys)
            positions = change.keyed.positions[rows]
            newest = np.argsort(positions)[::-1]
            for position, at in zip(
                positions[newest].tolist(), order[places[newest]].tolist(), strict=True
            ):
                if position >= since:
                    yield at, position, False
        ats, positions = self._shard.key_index.find_many(keys, since)
        rank = np.arange(len(ats)) - np.searchsorted(ats, ats)  # of each, among those of its key
        near = np.searchsorted(ats, ats, side="right") - np.searchsorted(ats, ats) - rank
        chosen = near <= _NEWEST
        yield from (
            (at, position, True)
            for at, position in zip(
                ats[chosen][::-1].tolist(), positions[chosen][::-1].tolist(), strict=True
            )
        )

    def _record(self, position: int, *, is_stored: bool) -> bytes | None:
        """Return the record at a log position; None if the log has lost it.

        The loss is reported when the record is read for a consumer.
        """
        if is_stored:
            found = self._shard.log.message(position)
            return None if isinstance(found, Hole) else found
        return next(
            change.keyed.record(position)
            for change in self._shard.uncommitted
            if change.keyed is not None and position in change.keyed.positions
        )


def is_repeat(
    record: bytes, earlier: bytes, *, reuses_ids: bool, answered: bool, age_ms: int
) -> bool:
    """Return whether a record repeats an earlier one.

    Arguments are as in `SendMessages` and `_SendFields.is_deliberate_copy`.
    """
    sent, before = _fields_of(record), _fields_of(earlier)
    if not sent.is_same_send(before):
        return False
    return not (reuses_ids and sent.is_deliberate_copy(before, answered=answered, age_ms=age_ms))


def _fields_of(record: bytes) -> _SendFields:
    stored = layout.decode(record[HEAD_BYTES:])
    message_id = properties.value_of(stored.properties, properties.UNIQ_KEY)
    if not stored.reconsume_times:
        of_4x = stored.born_ms, stored.born_host, stored.store_ms
        received = tuple(properties.value_of(stored.properties, name) for name in _RECEIVED)
        return _SendFields(message_id, 0, "", stored.body, received, "", *of_4x)
    known = properties.decode(stored.properties)
    return _SendFields(
        message_id,
        1 if stored.topic.startswith(DEAD_LETTER_PREFIX) else stored.reconsume_times,
        known.get(properties.RETRY_TOPIC, ""),
        origin_id=known.get(properties.ORIGIN_MESSAGE_ID, ""),
    )


def _result_of(position: int, record: bytes, topic: int, sent: _SendFields) -> First | None:
    """Return the result of the send that appended a record; None if that does not match."""
    head = np.frombuffer(record, HEAD, 1)[0]
    if int(head["kind"]) not in _SENT or int(head["topic"]) != topic:
        return None
    if not _fields_of(record).is_same_send(sent):
        return None
    stored = layout.decode(record[HEAD_BYTES:])
    scheduled = int(head["kind"]) == Kind.SCHEDULED
    offset = -1 if scheduled else stored.queue_offset
    return First(position, stored.queue_id, offset, int(head["due_ms"]))
