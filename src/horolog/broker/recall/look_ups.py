"""Look up messages by id or by key, wherever they are, and tell what has become of them.

The key index names every record of the log that belongs to an id or key: the message as it was
sent, and as it was handed over.  The delay store knows pending messages, also those whose records
retention has dropped from the log, and adopted ones, which have no record (`key_searches` finds
those by key).  A message is one view, however many records it has, and its origin joins them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from horolog.broker.recall import past
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    FIND_BYTES_MAX,
    FIND_MAX,
    ID_LOOK_UPS,
    MIB,
    TURN_FOUND_MAX,
    TURN_READ_BYTES,
)
from horolog.log.controls import read_control
from horolog.log.frame_reader import OpenFrame
from horolog.log.record import HEAD_BYTES, Kind, kinds_of
from horolog.protocol.commands import FindMessages, FoundMessage, MessageState, Recall
from horolog.protocol.history_commands import FindTopics, TopicsKnown
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash, user_key_hash

_STATES = {
    EntryState.WAITING: MessageState.PENDING,
    EntryState.HANDED_OVER: MessageState.DELIVERED,
    EntryState.RECALLED: MessageState.RECALLED,
    EntryState.QUARANTINED: MessageState.QUARANTINED,
    EntryState.MOVED: MessageState.MOVED,
    EntryState.EXPIRED: MessageState.EXPIRED,
}

_Origin = tuple[int, int]  # log position and row


def find_messages(shard: Shard, query: FindMessages) -> list[FoundMessage]:
    """Return all messages of a topic with an id or a key, by origin.

    Raise as `find_in_parts`.
    """
    parts = find_in_parts(shard, query)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: list[FoundMessage] = end.value
            return found


def find_in_parts(
    shard: Shard, query: FindMessages, adopted: Sequence[Recall] = ()
) -> Generator[int, None, list[FoundMessage]]:
    """Find all messages of a topic with an id or a key, by origin; yield the records of each part.

    Each state is that of a moment between the parts; what becomes of the messages meanwhile, such
    as a hand-over, is looked up too.  `adopted` names adopted messages with the key.  Raise
    TOPIC_NOT_FOUND; BAD_REQUEST unless the query has either an id or a key, or if more records
    match than are read, or more bytes than are kept.
    """
    topic = shard.topics.get(query.topic)
    if bool(query.message_id) == bool(query.key):
        raise refused("message_id", "give either a message id or a key")
    found = _Found(query)
    yield from _find_in_log(shard, topic, query, len(adopted), found)
    yield from _find_in_store(shard, topic, query, adopted, found)
    gone = _came_back(shard, topic, found.views)
    return [found.views[origin] for origin in sorted(found.views) if origin not in gone]


def _find_in_log(
    shard: Shard, topic: Topic, query: FindMessages, adopted: int, found: _Found
) -> Iterator[int]:
    """Find the messages of which the log has records; yield the records of each part.

    adopted  count of adopted messages that will be looked at too
    """
    by_id = bool(query.message_id)
    key = key_hash(topic.name, query.message_id) if by_id else user_key_hash(topic.name, query.key)

    def positions() -> list[int]:
        at = shard.key_index.find(key)
        check_count(len(at) + adopted, query)
        return at

    seen: dict[int, str] = {}  # log position → message id
    while new := [at for at in positions() if at not in seen]:
        is_first = not seen
        seen |= dict.fromkeys(new, "")
        for first in range(0, len(new), TURN_FOUND_MAX):
            part = new[first : first + TURN_FOUND_MAX]
            left = TURN_READ_BYTES
            for record in past.copies_at(shard, topic, part):
                left -= len(record.layout)
                if left < 0:
                    yield TURN_FOUND_MAX  # no more in this turn
                    left = TURN_READ_BYTES - len(record.layout)
                if not _is_meant(record, query):
                    continue
                name = seen[record.position] = record.message_id
                # A record appended since then may be of a message that was found: look again.
                again = [] if is_first else [at for at in seen if seen[at] == name]
                for copy in past.copies_at(shard, topic, again) if again else [record]:
                    found.put(*_view(shard, topic, copy))  # the hand-over replaces the send
            yield len(part)


def _find_in_store(
    shard: Shard, topic: Topic, query: FindMessages, adopted: Sequence[Recall], found: _Found
) -> Iterator[int]:
    """Find the messages that only the delay store has; yield the records of each part."""
    if query.message_id:
        for origin, view in _waiting_only(shard, topic, query.message_id, None):
            if origin not in found.views:
                found.put(origin, view)
    for number, each in enumerate(adopted, 1):
        if number % TURN_FOUND_MAX == 0:
            yield TURN_FOUND_MAX
        for origin, view in _waiting_only(shard, topic, each.message_id, each.due_ms):
            if query.key in view.keys and origin not in found.views:
                found.put(origin, view)


class _Found:
    """The messages that a look-up has found, by origin."""

    def __init__(self, query: FindMessages) -> None:
        self.views: dict[_Origin, FoundMessage] = {}
        self._query = query
        self._bytes = 0

    def put(self, origin: _Origin, view: FoundMessage) -> None:
        """Add or replace a message; BAD_REQUEST if all together are too large to be kept."""
        before = self.views.get(origin)
        self._bytes += len(view.layout) - (len(before.layout) if before is not None else 0)
        self.views[origin] = view
        if self._bytes > FIND_BYTES_MAX:
            limit = f"{FIND_BYTES_MAX // MIB} MiB"
            raise refused(
                "message_id" if self._query.message_id else "key",
                f"the messages of topic {view.topic} that match have more than {limit}; look for "
                "one by its id",
                limit,
            )


def _is_meant(record: past.Copy, query: FindMessages) -> bool:
    """Return whether a record has the id or key itself: hashes may collide."""
    if query.message_id:
        return record.message_id == query.message_id
    return query.key in record.keys


def find_topics(shard: Shard, query: FindTopics) -> TopicsKnown:
    """Return the topics that have messages with that id, of as many topics as a turn may search."""
    files = (
        shard.key_index.files + len(shard.delay.hours) + sum(1 for _ in shard.delay.far.sources())
    )
    limit = max(1, ID_LOOK_UPS // (1 + files))
    page = shard.topics.page(query.after, limit)
    keys = [key_hash(topic.name, query.message_id) for topic in page]
    logged = set(shard.key_index.find_many(np.array(keys, np.uint64))[0].tolist())
    found = [
        topic.name
        for i, (topic, key) in enumerate(zip(page, keys, strict=True))
        if (i in logged or len(shard.delay.find_key(key, topic.id, None)))
        and find_messages(shard, FindMessages(topic.name, query.message_id))
    ]
    return TopicsKnown(found, page[-1].name if len(page) == limit else None)


def check_count(count: int, query: FindMessages) -> None:
    """Raise BAD_REQUEST if a look-up would read too many records."""
    if count > FIND_MAX:
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"key: {count} records of topic {query.topic} match; at most {FIND_MAX} are looked at",
            field="message_id" if query.message_id else "key",
            limit=f"{FIND_MAX} records",
        )


def _view(shard: Shard, topic: Topic, record: past.Copy) -> tuple[_Origin, FoundMessage]:
    match record.kind:
        case Kind.SCHEDULED:
            origin = (record.position, 0)
            state = _state(shard, topic, record)
        case Kind.HANDED:
            origin = _origin_of(shard, record.position)
            state = MessageState.DELIVERED
        case _:
            origin = (record.position, 0)
            state = MessageState.DELIVERED
    visible = record.kind is not Kind.SCHEDULED
    fields = layout.decode(record.layout)
    return origin, FoundMessage(
        state,
        topic.name,
        record.message_id,
        record.keys,
        record.due_ms,
        origin[0],
        fields.queue_id,
        fields.queue_offset if visible else -1,
        fields.store_ms,
        record.layout,
    )


def _came_back(shard: Shard, topic: Topic, found: Mapping[_Origin, FoundMessage]) -> set[_Origin]:
    """Return origins of messages that went to a tier and came back under another origin.

    The store has forgotten these origins, like those of messages recalled in the tier.
    """
    copies: dict[tuple[str, int], list[_Origin]] = {}
    for origin, view in found.items():
        copies.setdefault((view.message_id, view.due_ms), []).append(origin)
    gone: set[_Origin] = set()
    for name, origins in copies.items():
        if len(origins) < 2:
            continue
        back = [origin for origin in origins if past.is_promoted(shard, origin[0])]
        gone |= {
            origin
            for origin in origins
            if any(origin < later for later in back)
            and found[origin].state in (MessageState.RECALLED, MessageState.IN_TIER)
            and not len(_refs_of(shard, topic, *name, origin[0]))
        }
    return gone


def _origin_of(shard: Shard, position: int) -> _Origin:
    """Return the origin of a HANDED record; the HAND_OVER before it in its frame names that."""
    frame = shard.log.frame(position)
    assert isinstance(frame, OpenFrame), "the record was read out of it"
    base, body = frame.start, frame.body
    offsets = np.array(list(frame.ends()), np.int64)
    row = int(np.searchsorted(offsets, position - base))
    control = int(np.flatnonzero(kinds_of(body, offsets[:row]) == Kind.HAND_OVER)[-1])
    at = int(offsets[control])
    found = read_control(body, at, base + at).content.origins[row - control - 1]
    return int(found["position"]), int(found["row"])


# --- the delay store ----------------------------------------------------------------------------


def _state(shard: Shard, topic: Topic, record: past.Copy) -> MessageState:
    """Return what became of a scheduled message of which the log has no hand-over."""
    refs = _refs_of(shard, topic, record.message_id, record.due_ms, record.position)
    if len(refs):
        return _settled(shard, refs[:1])
    if any(record.position in unfiled.origins for unfiled in shard.delay.stalled):
        return MessageState.PENDING
    if shard.tier.holds(topic.id, record.due_ms, record.position):
        return MessageState.IN_TIER
    # It was recalled or moved in the tier, or hours and runs forgot it, as its time has passed.
    copies = past.with_id(shard, topic, record.message_id)
    moved = past.moved_to(shard, copies, record.due_ms) is not None
    return MessageState.MOVED if moved else MessageState.RECALLED


def _refs_of(shard: Shard, topic: Topic, message_id: str, due_ms: int, position: int) -> Any:
    """Return references to the message with that log position; empty if there is none."""
    refs = shard.delay.find_key(key_hash(topic.name, message_id), topic.id, due_ms)
    entries = shard.delay.entries(refs)
    return refs[np.flatnonzero((entries["origin"] == position) & (entries["row"] == 0))]


def _settled(shard: Shard, ref: Any) -> MessageState:
    state = int(shard.delay.states(ref)[0]) & EntryState.SETTLED_BITS
    return _STATES[EntryState(state)]


def _waiting_only(
    shard: Shard, topic: Topic, message_id: str, due_ms: int | None
) -> Iterable[tuple[_Origin, FoundMessage]]:
    """Yield messages (due at that time) as the delay store has them.

    They serve for messages of which the log has no record.
    """
    refs = shard.delay.find_key(key_hash(topic.name, message_id), topic.id, due_ms)
    entries = shard.delay.entries(refs)
    records, good = shard.delay.read_repaired(refs, entries)
    rotten = ~good & (shard.delay.states(refs) == EntryState.WAITING)
    if bool(rotten.any()):
        shard.delay.quarantine(refs[rotten], entries[rotten])
    for i, record in enumerate(records):
        origin = int(entries["origin"][i]), int(entries["row"][i])
        state = _settled(shard, refs[i : i + 1])
        try:
            view = waiting_view(
                topic.name, bytes(record), state, int(entries["due_ms"][i]), origin[0]
            )
        except HorologError:
            continue  # the record is damaged
        if view.message_id == message_id:
            yield origin, view


def waiting_view(
    topic: str, record: bytes, state: MessageState, due_ms: int, origin: int
) -> FoundMessage:
    """Return the view of a message that is not visible, from its record."""
    stored = record[HEAD_BYTES:]
    fields = layout.decode(stored)
    decoded = properties.decode(fields.properties)
    return FoundMessage(
        state,
        topic,
        decoded.get(properties.UNIQ_KEY, ""),
        decoded.get(properties.KEYS, "").split(),
        due_ms,
        origin,
        fields.queue_id,
        -1,
        fields.store_ms,
        stored,
    )
