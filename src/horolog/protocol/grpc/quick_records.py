"""Commands for sends that were read without protobuf's objects (`quick_sends`).

A request alone is a command (`to_send_quickly`); requests that arrive together become one command
for each topic (`gather`), so they share the cost of a command, and each call still gets its own
answer.  Messages that break a limit are left to `translate`, which knows the text of the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, starmap
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.limits import BODY_MAX, PROPERTIES_MAX, STORED_PROPERTIES_MAX
from horolog.protocol.commands import MessageType, SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_sends import QuickSend
from horolog.protocol.grpc.sent_meanings import Meaning
from horolog.protocol.grpc.translate import Peer, of_producer, to_send
from horolog.protocol.rocketmq import names, properties
from horolog.protocol.rocketmq.record_columns import Messages, records_of
from horolog.protocol.send_commands import ANY_QUEUE

_TIMER = f"{properties.TIMER_DELIVER_MS}\x01".encode()
_ID = properties.IN_REGION + f"{properties.UNIQ_KEY}\x01".encode()


def to_send_quickly(request: QuickSend, peer: Peer) -> tuple[SendMessages, dict[int, HorologError]]:
    """Return the command and the refusals by place in the request, as `translate.to_send` does."""
    topic = names.check_topic(request.topic)
    columns = _columns(topic, [request], [peer])
    if columns is None:
        return to_send(pb.SendMessageRequest.FromString(request.raw), peer)
    return SendMessages(topic, records_of(topic.encode(), columns)), {}


class Gathered(NamedTuple):
    """Sends to one topic as a command.

    ids     of its messages
    places  of its requests, among the gathered requests
    ends    where in `ids` the messages of each request end
    """

    command: SendMessages
    ids: Sequence[bytes]
    places: list[int]
    ends: list[int]


def gather(
    requests: Sequence[QuickSend], peers: Sequence[Peer]
) -> tuple[list[Gathered], list[int]]:
    """Return commands for requests, and the places of requests that must be sent alone.

    peers  the sender of each request
    """
    of_topics: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        of_topics.setdefault(request.topic, []).append(place)
    found: list[Gathered] = []
    alone: list[int] = []
    for topic, places in of_topics.items():
        try:
            names.check_topic(topic)
        except HorologError:
            alone += places
            continue
        taken, columns = _within_limits(topic, places, requests, peers)
        if columns is not None:
            command = SendMessages(topic, records_of(topic.encode(), columns))
            ends = list(accumulate([len(requests[place].ids) for place in taken]))
            found.append(Gathered(command, columns.ids, taken, ends))
        alone += sorted({*places}.difference(taken))
    return found, alone


def _within_limits(
    topic: str, places: list[int], requests: Sequence[QuickSend], peers: Sequence[Peer]
) -> tuple[list[int], Messages | None]:
    """Return the places of requests that break no limit, and all their messages, or None."""
    columns = _columns(topic, [requests[at] for at in places], [peers[at] for at in places])
    if columns is not None:
        return places, columns
    taken = [at for at in places if _columns(topic, [requests[at]], [peers[at]]) is not None]
    if not taken:
        return [], None
    return taken, _columns(topic, [requests[at] for at in taken], [peers[at] for at in taken])


def _columns(topic: str, requests: Sequence[QuickSend], peers: Sequence[Peer]) -> Messages | None:
    """Return the messages of requests as columns; None if one of them breaks a limit."""
    if len(requests) == 1 and len(requests[0].ids) == 1:
        return _columns_of_one(topic, requests[0], peers[0])
    _, _, *columns = zip(*requests, strict=True)
    ids, keys, born, due_ms, bodies, meanings = [
        list(chain.from_iterable(column)) for column in columns
    ]
    known = set(meanings)
    body_sizes = list(map(len, bodies))
    size = max([meaning.size for meaning in known]) + max(map(len, keys))
    if not 0 < min(body_sizes) <= max(body_sizes) <= BODY_MAX or size > PROPERTIES_MAX:
        return None
    if not all(starmap(_is_allowed, set(zip(meanings, map(bool, due_ms), strict=True)))):
        return None
    pairs = list(zip(meanings, born, strict=True))
    try:
        made = {pair: _front(topic, *pair) for pair in set(pairs)}
    except HorologError:
        return None
    fronts = [made[pair] for pair in pairs]
    timers = [b"%b%d\x02" % (_TIMER, due) if due else b"" for due in due_ms]
    texts = [
        b"".join((front, name, meaning.tag, key, meaning.grouped, timer))
        for (_, front), name, meaning, key, timer in zip(
            fronts, ids, meanings, keys, timers, strict=True
        )
    ]
    if max(map(len, texts)) > STORED_PROPERTIES_MAX:
        return None
    count = len(ids)
    one = known.pop() if len(known) == 1 else None
    hosts = [[peer] * len(each.ids) for each, peer in zip(requests, peers, strict=True)]
    return Messages(
        bodies=bodies,
        flags=[0] * count,
        queue_ids=[ANY_QUEUE] * count,
        sys_flags=[one.sys_flag] * count if one else [meaning.sys_flag for meaning in meanings],
        attempts=[0] * count,
        born_ms=[born_ms for born_ms, _ in fronts],
        texts=texts,
        ids=ids,
        keyed=list(map(bool, keys)),
        tags_codes=[one.code] * count if one else [meaning.code for meaning in meanings],
        groups=[one.group] * count if one else [meaning.group for meaning in meanings],
        due_ms=due_ms,
        lanes=[0] * count,
        born_hosts=list(chain.from_iterable(hosts)),
    )


def _columns_of_one(topic: str, request: QuickSend, peer: Peer) -> Messages | None:
    """Do what `_columns` does for a single message, without the overhead of sets and joins."""
    _, _, ids, (key,), (born,), due_ms, bodies, (meaning,) = request
    allowed = 0 < len(bodies[0]) <= BODY_MAX and meaning.size + len(key) <= PROPERTIES_MAX
    if not allowed or not _is_allowed(meaning, bool(due_ms[0])):
        return None
    try:
        born_ms, front = _front(topic, meaning, born)
    except HorologError:
        return None
    timer = b"%b%d\x02" % (_TIMER, due_ms[0]) if due_ms[0] else b""
    text = b"".join((front, ids[0], meaning.tag, key, meaning.grouped, timer))
    if len(text) > STORED_PROPERTIES_MAX:
        return None
    return Messages(
        bodies=bodies,
        flags=[0],
        queue_ids=[ANY_QUEUE],
        sys_flags=[meaning.sys_flag],
        attempts=[0],
        born_ms=[born_ms],
        texts=[text],
        ids=ids,
        keyed=[key != b""],
        tags_codes=[meaning.code],
        groups=[meaning.group],
        due_ms=due_ms,
        lanes=[0],
        born_hosts=[peer],
    )


def _front(topic: str, meaning: Meaning, born: tuple[int, int]) -> tuple[int, bytes]:
    """Return when a message was made, in ms, and its stored properties up to its id."""
    born_ms, producer = of_producer(topic, *born, meaning.host)
    return born_ms, b"".join((meaning.user, producer, meaning.trace, _ID))


def _is_allowed(meaning: Meaning, timed: bool) -> bool:
    """Return whether the due time (or its lack) is allowed, and `records_of` writes the type."""
    kind = meaning.timed if timed else meaning.untimed
    if meaning.group:
        return kind is MessageType.FIFO
    return kind is (MessageType.DELAY if timed else MessageType.NORMAL)
