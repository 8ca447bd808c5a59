"""Commands of sends that were read without protobuf's objects (`quick_sends`).

A request is a command of its own (`to_send_quickly`); requests that came together are one command for each topic
(`gather`), so what a command costs is shared by them, and each call has its own answer.  A message that breaks a limit
is for protobuf's way, for the words of its refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from horolog.errors import HorologError
from horolog.limits import BODY_MAX, PROPERTIES_MAX, STORED_PROPERTIES_MAX
from horolog.protocol.commands import MessageType, NewRecords, SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_sends import Cut, QuickSend
from horolog.protocol.grpc.translate import Peer, of_producer, to_record
from horolog.protocol.rocketmq import names, properties
from horolog.protocol.rocketmq.layout import HEAD
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, key_hash_of, layout_pieces
from horolog.protocol.rocketmq.record_columns import Messages, records_of
from horolog.protocol.send_commands import ANY_QUEUE, HEAD_AS_SENT

_TIMER = f"{properties.TIMER_DELIVER_MS}\x01".encode()
_ID = properties.IN_REGION + f"{properties.UNIQ_KEY}\x01".encode()


def to_send_quickly(request: QuickSend, peer: Peer) -> tuple[SendMessages, dict[int, HorologError]]:
    """Do what `translate.to_send` does: give the command, and refusals of messages by their place in the request."""
    topic = names.check_topic(request.topic)
    name = topic.encode()
    named = topic, bytes((len(name),)) + name, name + b"\0"
    pieces: list[bytes] = []
    sizes: list[int] = []
    refused: dict[int, HorologError] = {}
    for i, cut in enumerate(request.messages):
        try:
            record = _record(named, cut, peer) or _refused(request, topic, cut, peer)
        except HorologError as error:
            refused[i] = error.kept()
            continue
        pieces += record
        sizes.append(sum(map(len, record)))
    return SendMessages(topic, NewRecords(b"".join(pieces), sizes)), refused


def _refused(request: QuickSend, topic: str, cut: Cut, peer: Peer) -> tuple[bytes, ...]:
    """The record of a message that breaks a limit, as protobuf's way has it: mostly its refusal."""
    message = pb.Message.FromString(request.raw[cut[6] : cut[7]])
    return (to_record(topic, message, peer).record,)


def _record(named: tuple[str, bytes, bytes], cut: Cut, peer: Peer) -> tuple[bytes, ...] | None:
    """The record of a message, in pieces; None if it breaks a limit.

    named  the topic; its name after its length; and in front of a zero
    """
    message_id, shape, (seconds, nanos), due_ms, (user, user_size), body, _, _ = cut
    (untimed, timed), sys_flag, code, has_keys, host, marks, group, trace, marks_size = shape
    kind = timed if due_ms else untimed
    if kind is None or not 0 < len(body) <= BODY_MAX or user_size + marks_size > PROPERTIES_MAX:
        return None
    born_ms, made = of_producer(named[0], seconds, nanos, host)
    timer = b"%b%d\x02" % (_TIMER, due_ms) if due_ms else b""
    stored = b"".join((user, made, trace, _ID, message_id, b"\x02", marks, timer))
    pieces = layout_pieces(named[1], body, stored, sys_flag, 0, born_ms, peer, ANY_QUEUE)
    size = RECORD_HEAD_BYTES + HEAD.size + len(body) + len(named[1]) + 2 + len(stored)
    hashed = key_hash_of(named[2], message_id)
    return HEAD_AS_SENT.pack(size, kind, has_keys, 0, due_ms, group, code, hashed), *pieces


class Gathered(NamedTuple):
    """Sends to one topic as a command.

    ids     of its messages
    places  of its requests, among those that were gathered
    ends    where in `ids` the messages of each request end
    """

    command: SendMessages
    ids: list[bytes]
    places: list[int]
    ends: list[int]


def gather(
    requests: Sequence[QuickSend], peers: Sequence[Peer]
) -> tuple[list[Gathered], list[int]]:
    """Commands for requests, and the places of those that must go alone; `peers` is where each comes from."""
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
        rows: list[tuple[Any, ...]] = []
        taken: list[int] = []
        ends: list[int] = []
        for place in places:
            made = _rows(topic, requests[place].messages, peers[place])
            if made is None:
                alone.append(place)
                continue
            rows += made
            taken.append(place)
            ends.append(len(rows))
        if rows:
            messages = Messages(*zip(*rows, strict=True))
            records = records_of(topic.encode(), messages)
            found.append(Gathered(SendMessages(topic, records), list(messages.ids), taken, ends))
    return found, alone


def _rows(topic: str, cuts: Sequence[Cut], peer: Peer) -> list[tuple[Any, ...]] | None:
    """Messages as rows of `Messages`; None if one of them breaks a limit."""
    rows: list[tuple[Any, ...]] = []
    for message_id, shape, (seconds, nanos), due_ms, (user, user_size), body, _, _ in cuts:
        (untimed, timed), sys_flag, code, has_keys, host, marks, group, trace, marks_size = shape
        kind = timed if due_ms else untimed
        if (
            kind is not _kind(group, due_ms)
            or not 0 < len(body) <= BODY_MAX
            or user_size + marks_size > PROPERTIES_MAX
        ):
            return None
        try:
            born_ms, made = of_producer(topic, seconds, nanos, host)
        except HorologError:
            return None
        timer = b"%b%d\x02" % (_TIMER, due_ms) if due_ms else b""
        text = b"".join((user, made, trace, _ID, message_id, b"\x02", marks, timer))
        if len(text) > STORED_PROPERTIES_MAX:
            return None
        head = has_keys, code, group, due_ms, 0, peer
        rows.append((body, 0, ANY_QUEUE, sys_flag, 0, born_ms, text, message_id, *head))
    return rows


def _kind(group: int, due_ms: int) -> MessageType:
    """The kind that `records_of` takes."""
    if group:
        return MessageType.FIFO
    return MessageType.DELAY if due_ms else MessageType.NORMAL
