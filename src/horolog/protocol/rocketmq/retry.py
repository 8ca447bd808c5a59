"""Copies of a message for another attempt, and for the dead letters of its consumer group.

A copy keeps body, tag, keys, born time, user properties and message id of the message.  These
properties describe it to clients:

RETRY_TOPIC            the topic in which the first attempt failed; clients show it instead of the
                       retry topic
ORIGIN_MESSAGE_ID      where the first attempt was stored, as a message id of 4.x clients
DELAY                  the delay level of the pause; TIMER_DELAY_MS instead, where the group has a
                       back-off of its own
DLQ_ORIGIN_TOPIC       of a dead letter: the topic in which the first attempt failed
DLQ_ORIGIN_MESSAGE_ID  of a dead letter: the message id
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.delays import Due, Levels, due_of
from horolog.protocol.rocketmq.late_policy import LATE_PREFIX
from horolog.protocol.rocketmq.message import check_stored_size, key_hash
from horolog.protocol.rocketmq.message_group import NO_GROUP, group_code
from horolog.protocol.rocketmq.tags import tags_code
from horolog.protocol.send_commands import ANY_QUEUE, HEAD_AS_SENT, MessageType

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LETTER_PREFIXES = (DEAD_LETTER_PREFIX, LATE_PREFIX)  # prefixes of all topics of dead letters
FIRST_LEVEL = 3  # 10 s in RocketMQ's table
_OF_ONE_ATTEMPT = frozenset(
    name.encode()
    for name in (
        properties.DELAY,
        properties.TIMER_DELIVER_MS,
        properties.ORIGIN_MESSAGE_ID,
        properties.RETRY_TOPIC,
        properties.DLQ_ORIGIN_TOPIC,
        properties.DLQ_ORIGIN_MESSAGE_ID,
        properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES,
        "__STARTDELIVERTIME",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_DELAY_LEVEL",
        "REAL_TOPIC",
        "REAL_QID",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
    )
)


def retry_topic(group: str) -> str:
    """Return the topic where messages wait for another attempt of a group."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters.

    A "group" with `LATE_PREFIX` is the topic of late messages itself.
    """
    return group if group.startswith(LATE_PREFIX) else DEAD_LETTER_PREFIX + group


def group_of_letters(topic: str) -> str:
    """Return the group whose dead letters a topic has."""
    return topic.removeprefix(DEAD_LETTER_PREFIX)


class Letter(NamedTuple):
    """A dead letter, as its properties describe it."""

    topic: str  # where the first attempt failed; "": not known
    message_id: str


def letter_of(stored: bytes) -> Letter:
    """Read the properties of a dead letter."""
    known = properties.decode(layout.topic_and_properties(stored)[1])
    topic = known.get(properties.DLQ_ORIGIN_TOPIC) or known.get(properties.RETRY_TOPIC, "")
    message_id = known.get(properties.UNIQ_KEY) or known.get(properties.DLQ_ORIGIN_MESSAGE_ID, "")
    return Letter(topic, message_id)


def late_letter_record(stored: bytes, topic: str) -> bytes:
    """Return the record of a dead letter, due now, for a scheduled message that was too late.

    The dead letter belongs to no consumer group; `topic` is where it goes.
    """
    origin, before = layout.topic_and_properties(stored)
    message_id = properties.value_of(before, properties.UNIQ_KEY) or ""
    added = {
        properties.DLQ_ORIGIN_TOPIC: origin,
        properties.DLQ_ORIGIN_MESSAGE_ID: message_id,
    }
    text = b"\x02" + b"".join([*_pieces(before), properties.encode(added)])
    return _record_of(stored, topic, message_id, 0, Due(0, 0, text))


def redriven_record(stored: bytes, topic: str, due_ms: int) -> bytes:
    """Return the record of a dead letter as a new message of a topic, with a head as sent.

    Its attempts start again.  In a retry topic it keeps the name of the topic that clients show.

    due_ms  due time; 0: now
    """
    letter = letter_of(stored)
    before = layout.topic_and_properties(stored)[1]
    added: dict[str, str] = {}
    if topic.startswith(RETRY_PREFIX):
        added[properties.RETRY_TOPIC] = letter.topic
    if due_ms:
        added[properties.TIMER_DELIVER_MS] = str(due_ms)
    text = b"\x02" + b"".join([*_pieces(before), properties.encode(added)])
    code = group_code(properties.value_of(before, properties.SHARDING_KEY) or "")
    return _record_of(stored, topic, letter.message_id, 0, Due(due_ms, 0, text), code)


class Failed(NamedTuple):
    """A message that a consumer of a group failed on."""

    layout: bytes
    group: str
    topic: str  # topic in which the first attempt failed
    origin_id: str  # message id of the first attempt
    message_id: str
    attempts: int  # attempts after the first that it has had in this group


def failed(stored: bytes, group: str) -> Failed:
    """Describe a stored message that a consumer of a group failed on.

    Only attempts that went through the group's own retry topic count.
    """
    topic, of_message = layout.topic_and_properties(stored)
    known = properties.decode(of_message)
    message_id = known.get(properties.UNIQ_KEY) or layout.offset_message_id(stored)
    if topic != retry_topic(group):
        return Failed(stored, group, topic, layout.offset_message_id(stored), message_id, 0)
    return Failed(
        stored,
        group,
        known.get(properties.RETRY_TOPIC, topic),
        known.get(properties.ORIGIN_MESSAGE_ID) or layout.offset_message_id(stored),
        message_id,
        layout.reconsume_times(stored),
    )


def sent_by_client(stored: bytes, group: str) -> Failed:
    """Describe a message that a client made for the retry topic.

    The client has counted this attempt already.
    """
    known = properties.decode(layout.topic_and_properties(stored)[1])
    message_id = known.get(properties.UNIQ_KEY, "")
    return Failed(
        stored,
        group,
        known.get(properties.RETRY_TOPIC, retry_topic(group)),
        known.get(properties.ORIGIN_MESSAGE_ID, message_id),
        message_id,
        layout.reconsume_times(stored) - 1,
    )


def retry_record(message: Failed, level: int, levels: Levels) -> bytes:
    """Return the record of the copy for another attempt, due after the pause of a level."""
    return _delayed(message, {properties.DELAY: str(level)}, levels)


def retry_record_after(message: Failed, pause_ms: int, levels: Levels) -> bytes:
    """Return the record of the copy for another attempt, due after a pause of any length."""
    return _delayed(message, {"TIMER_DELAY_MS": str(pause_ms)}, levels)


def _delayed(message: Failed, added: dict[str, str], levels: Levels) -> bytes:
    topic = retry_topic(message.group)
    text = b"\x02" + _kept(message) + properties.encode(added)
    due = due_of(text, levels, f"REAL_TOPIC\x01{topic}\x02".encode())
    return _record(message, topic, due)


def dead_letter_record(message: Failed) -> bytes:
    """Return the record of the copy among the dead letters, due now."""
    added = {
        properties.DLQ_ORIGIN_TOPIC: message.topic,
        properties.DLQ_ORIGIN_MESSAGE_ID: message.message_id,
    }
    text = b"\x02" + _kept(message) + properties.encode(added)
    return _record(message, dead_letter_topic(message.group), Due(0, 0, text))


def _kept(message: Failed) -> bytes:
    """Return the properties that a copy keeps, and those that name the original message."""
    before = layout.topic_and_properties(message.layout)[1]
    kept = _pieces(before)
    added = {
        properties.RETRY_TOPIC: message.topic,
        properties.ORIGIN_MESSAGE_ID: message.origin_id,
    }
    if properties.value_of(before, properties.UNIQ_KEY) is None:
        added[properties.UNIQ_KEY] = message.message_id
    return b"".join([*kept, properties.encode(added)])


def _pieces(before: bytes) -> list[bytes]:
    """Return the properties that all copies keep, each with its separator."""
    return [
        piece + b"\x02"
        for piece in before.split(b"\x02")
        if piece and piece.partition(b"\x01")[0] not in _OF_ONE_ATTEMPT
    ]


def _record(message: Failed, topic: str, due: Due) -> bytes:
    return _record_of(message.layout, topic, message.message_id, message.attempts + 1, due)


def _record_of(
    before: bytes, topic: str, message_id: str, attempts: int, due: Due, code: int = NO_GROUP
) -> bytes:
    """Build the record with a head as sent (`send_commands`)."""
    stored = due.text[1:]
    check_stored_size(len(stored))
    made = layout.readdressed(before, topic, stored, attempts, ANY_QUEUE)
    tag = properties.value_of(stored, properties.TAGS)
    head = HEAD_AS_SENT.pack(
        HEAD_AS_SENT.size + len(made),
        MessageType.DELAY if due.due_ms else MessageType.NORMAL,
        properties.value_of(stored, properties.KEYS) is not None,
        due.lane,
        due.due_ms,
        code,
        tags_code(tag or ""),
        key_hash(topic, message_id),
    )
    return head + made
