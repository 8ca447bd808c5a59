"""Answers to pop consumers: messages with the handles that their clients parse.

Each message carries its handle in the property POP_CK, and its failed attempts in its reconsume
times.  The fields of the answer say the same for a whole batch; clients that find the property use
it, but need the fields to be present.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Any

from horolog.errors import refused
from horolog.limits import ACK_BITS_BYTES_MAX, ACKS_PER_REQUEST_MAX, STORED_PROPERTIES_MAX
from horolog.protocol.commands import Delivered
from horolog.protocol.rocketmq import layout, properties

POP_CK = "POP_CK"
_NORMAL = "0"  # queues of the topic itself, not of a retry topic
_NUMBER_FIELDS = ("it", "pt", "q", "rq", "so")  # numeric fields of an entry


def popped(messages: Sequence[Delivered], handle_of: Callable[[str], str]) -> list[bytes]:
    """Return the layouts of the answer; `handle_of` maps a receipt handle to the client's."""
    return [_with_handle(each, handle_of(each.receipt_handle)) for each in messages]


def _with_handle(message: Delivered, handle: str) -> bytes:
    topic, stored = layout.topic_and_properties(message.layout)
    named = properties.replaced(stored, POP_CK, handle)
    if len(named) <= STORED_PROPERTIES_MAX:
        stored = named
    # Otherwise clients would read a negative length, and nothing of the messages after it: the
    # message goes out without its handle, and is delivered again.
    queue_id = layout.queue_id_of(message.layout)
    return layout.readdressed(message.layout, topic, stored, message.attempt - 1, queue_id)


def counts_of(messages: Sequence[Delivered]) -> str:
    """Encode how often each message delivered in order has failed, if it has failed."""
    failed = [each for each in messages if each.attempt > 1]
    return ";".join(
        f"{_NORMAL} qo{each.queue_id}%{each.queue_offset} {each.attempt - 1}" for each in failed
    )


def fields_of(
    messages: Sequence[Delivered], popped_ms: int, invisible_ms: int, rest: int = 0
) -> dict[str, str]:
    """Return the fields of the answer; `rest` is how many more messages there are."""
    queues: dict[int, list[int]] = {}
    for message in messages:
        queues.setdefault(message.queue_id, []).append(message.queue_offset)
    starts = [f"{_NORMAL} {queue} {min(offsets)}" for queue, offsets in queues.items()]
    listed = [
        f"{_NORMAL} {queue} {','.join(map(str, sorted(offsets)))}"
        for queue, offsets in queues.items()
    ]
    found = {
        "popTime": str(popped_ms),
        "invisibleTime": str(invisible_ms),
        "reviveQid": "0",
        "restNum": str(rest),
    }
    if messages:
        found |= {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(listed)}
    return found


def handles_of_batch(body: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return (group, topic, handles) of each entry of a batch acknowledgement.  BAD_REQUEST."""
    entries = body.get("acks")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise refused("acks", "a list of JSON objects is needed")
    bits = [_set_of_bits(entry) for entry in entries]
    count = sum(each.bit_count() for each in bits)
    if max(count, len(entries)) > ACKS_PER_REQUEST_MAX:
        raise refused("acks", f"{count} messages; at most {ACKS_PER_REQUEST_MAX} are allowed")
    broker = body.get("brokerName")
    name = broker.replace(" ", "") if isinstance(broker, str) else ""
    return [_entry(entry, each, name or "-") for entry, each in zip(entries, bits, strict=True)]


def _entry(entry: dict[str, Any], bits: int, broker: str) -> tuple[str, str, list[str]]:
    group, topic = entry.get("c"), entry.get("t")
    if not isinstance(group, str) or not isinstance(topic, str):
        raise refused("acks", "an entry names no group, or no topic")
    numbers = [number for name in _NUMBER_FIELDS if type(number := entry.get(name)) is int]
    if len(numbers) != len(_NUMBER_FIELDS) or min(numbers) < 0:
        raise refused("acks", f"{', '.join(_NUMBER_FIELDS)} of an entry are no numbers")
    invisible_ms, popped_ms, queue, revive, start = numbers
    return (
        group,
        topic,
        [
            f"{start} {popped_ms} {invisible_ms} {revive} {_NORMAL} {broker} {queue} {start + bit}"
            for bit in range(bits.bit_length())
            if bits >> bit & 1
        ],
    )


def _set_of_bits(entry: dict[str, Any]) -> int:
    """Decode a Java BitSet from its bytes in Base64."""
    encoded = entry.get("b")
    try:
        packed = b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (Base64Error, ValueError):
        packed = b""
    if not packed or len(packed) > ACK_BITS_BYTES_MAX:
        raise refused("b", "no set of bits")
    return int.from_bytes(packed, "little")
