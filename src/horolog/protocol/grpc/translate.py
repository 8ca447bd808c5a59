"""Translation of 5.x send requests to commands, and of protobuf's times and names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import MessageType, NewMessage, NewRecords, SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.transactions import half_properties
from horolog.protocol.rocketmq import layout, names, properties
from horolog.protocol.rocketmq.late_policy import LATE_PREFIX
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.retry import DEAD_LETTER_PREFIX, RETRY_PREFIX

_MS_MAX = 253_402_300_800_000  # year 10000, the end of the range of a protobuf Timestamp
_NANOS_MAX = 999_999_999
_HOST_CACHED_MAX = 64  # bytes of a host name given by the producer; longer ones are not cached
_PREFIXES = (DEAD_LETTER_PREFIX, RETRY_PREFIX, LATE_PREFIX)  # of topics, before another name
_TYPES = frozenset(pb.MessageType.values())


class Peer(NamedTuple):
    """Address of the sender of a request: 4 bytes of IPv4 (zeros if not known) and port."""

    host: bytes = b"\0\0\0\0"
    port: int = 0

    @property
    def text(self) -> str:
        """The address as host:port."""
        return f"{'.'.join(map(str, self.host))}:{self.port}"


def name_of(resource: pb.Resource) -> str:
    """Return the name of a topic or group, with its namespace before it, as in RocketMQ.

    In `%DLQ%group` the namespace is put before the group: the dead letters belong to a group in
    that namespace.
    """
    namespace, name = resource.resource_namespace, resource.name
    if not namespace:
        return name
    of = next((each for each in _PREFIXES if name.startswith(each)), "")
    return f"{of}{namespace}%{name[len(of) :]}"


def resource_of(name: str, namespace: str) -> pb.Resource:
    """Return the resource whose `name_of` is this name, in the namespace that it was named with."""
    of = next((each for each in _PREFIXES if name.startswith(each)), "")
    rest = name[len(of) :].removeprefix(f"{namespace}%") if namespace else name[len(of) :]
    return pb.Resource(resource_namespace=namespace, name=of + rest)


def timestamp_ms(stamp: Timestamp, field: str, code: ErrorCode) -> int:
    """Return UTC epoch ms, rounded up, so that no message is early; refuse bad ones with `code`."""
    if not 0 <= stamp.nanos <= _NANOS_MAX:
        raise HorologError(
            code,
            f"{field}: {stamp.nanos} nanos; 0 to {_NANOS_MAX} are allowed",
            field=field,
            limit=f"0 to {_NANOS_MAX} nanos",
        )
    found = stamp.seconds * 1000 + -(-stamp.nanos // 1_000_000)
    if not 0 <= found < _MS_MAX:
        raise HorologError(
            code,
            f"{field}: {stamp.seconds} s is not between the years 1970 and 9999",
            field=field,
            limit=f"0 to {_MS_MAX // 1000 - 1} s",
        )
    return found


def duration_ms(duration: Duration, field: str, code: ErrorCode) -> int:
    """Return ms, rounded down, perhaps negative; refuse what protobuf forbids with `code`."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(nanos) > _NANOS_MAX or seconds * nanos < 0:
        raise HorologError(
            code,
            f"{field}: {seconds} s and {nanos} nanos; "
            f"at most {_NANOS_MAX} nanos, of the sign of the seconds, are allowed",
            field=field,
            limit=f"{_NANOS_MAX} nanos",
        )
    return max(-_MS_MAX, min(seconds * 1000 + nanos // 1_000_000, _MS_MAX))


def to_send(
    request: pb.SendMessageRequest, peer: Peer
) -> tuple[SendMessages, dict[int, HorologError]]:
    """Return the command for a send, and refusals of single messages by place in the request."""
    messages = request.messages[:]  # a list: protobuf's containers raise an exception at their end
    if not messages:
        raise HorologError(
            ErrorCode.MESSAGE_CORRUPTED, "messages: none; at least 1 is needed", field="messages"
        )
    named = messages[0].topic
    topic = name_of(named)
    names.check_topic(topic)
    encoded: list[NewMessage] = []
    refused: dict[int, HorologError] = {}
    for i, message in enumerate(messages):
        if i and message.topic != named and name_of(message.topic) != topic:
            raise HorologError(
                ErrorCode.MESSAGE_CORRUPTED,
                "messages: of different topics; one request sends to one topic",
                field="messages",
            )
        try:
            encoded.append(to_record(topic, message, peer))
        except HorologError as error:
            refused[i] = error.without_traceback()
    return SendMessages(topic, NewRecords.of(encoded)), refused


def _refuse_unsupported(system: pb.SystemProperties) -> None:
    """Refuse message types that are unknown or not supported, and fields that would be lost."""
    declared = system.message_type
    if declared in (pb.LITE, pb.PRIORITY):
        name = pb.MessageType.Name(declared)
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            f"message_type: {name} messages are not supported",
            field="message_type",
        )
    if declared not in _TYPES:
        raise HorologError(
            ErrorCode.BAD_REQUEST, f"message_type: unknown type {declared}", field="message_type"
        )
    if system.HasField("priority"):
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            "priority: messages with one are not supported",
            field="priority",
        )
    if system.lite_topic:
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            "lite_topic: messages of lite topics are not supported",
            field="lite_topic",
        )


def type_of(system: pb.SystemProperties) -> MessageType:
    """Return the type by the fields, as in RocketMQ; refuse a declared type that they rule out."""
    _refuse_unsupported(system)
    declared = system.message_type
    has_group = bool(system.message_group)
    if declared == pb.DELAY and not system.HasField("delivery_timestamp"):
        raise HorologError(
            ErrorCode.TYPE_CONFLICT,
            "message_type: DELAY, but there is no delivery_timestamp",
            field="message_type",
        )
    if declared == pb.FIFO and not has_group:
        raise HorologError(
            ErrorCode.TYPE_CONFLICT,
            "message_type: FIFO, but there is no message_group",
            field="message_type",
        )
    if declared == pb.TRANSACTION:
        return MessageType.TRANSACTION
    if has_group:
        return MessageType.FIFO
    return MessageType.DELAY if system.HasField("delivery_timestamp") else MessageType.NORMAL


def marks_in(system: pb.SystemProperties) -> tuple[str | None, list[str], str | None]:
    """Return tag, keys and message group; an empty text counts as none, as in RocketMQ.

    Some clients of RocketMQ always send some of these fields.
    """
    keys = system.keys[:]
    if "" in keys:
        keys = [key for key in keys if key]
    return system.tag or None, keys, system.message_group or None


def _without_echo(user: Mapping[str, str], group: str | None) -> dict[str, str]:
    """Return user properties without those that consumers see although they are the system's.

    Another message group than the message's own is kept, and refused later.
    """
    return {
        name: value
        for name, value in user.items()
        if name not in properties.ECHOED or (name == properties.SHARDING_KEY and value != group)
    }


def to_record(topic: str, message: pb.Message, peer: Peer) -> NewMessage:
    """Check and encode one message."""
    system = message.system_properties
    has = system.HasField
    due_ms = 0
    if has("delivery_timestamp"):
        due_ms = timestamp_ms(
            system.delivery_timestamp, "delivery_timestamp", ErrorCode.ILLEGAL_DELIVERY_TIME
        )
    if has("body_digest"):
        _check_digest(message.body, system.body_digest)
    born, born_host = system.born_timestamp, system.born_host
    if len(born_host) <= _HOST_CACHED_MAX:
        born_ms, stored = of_producer(topic, born.seconds, born.nanos, born_host)
    else:
        born_ms, stored = of_producer.__wrapped__(topic, born.seconds, born.nanos, born_host)
    if has("trace_context"):
        trace = plain(system.trace_context, "trace_context")
        stored += properties.encode({properties.TRACE_CONTEXT: trace})
    if system.message_type == pb.TRANSACTION:
        stored += half_properties(system)
    tag, keys, group = marks_in(system)
    user: Mapping[str, str] = message.user_properties
    if not properties.ECHOED.isdisjoint(user):
        user = _without_echo(user, group)
    return encode(
        topic=topic,
        body=message.body,
        message_id=system.message_id,
        type=type_of(system),
        due_ms=due_ms,
        tag=tag,
        keys=keys,
        user_properties=user,
        system_properties=stored,
        message_group=group,
        sys_flag=layout.COMPRESSED if system.body_encoding == pb.GZIP else 0,
        born_ms=born_ms,
        born_host=peer,
    )


@lru_cache(maxsize=1_024)
def of_producer(topic: str, seconds: int, nanos: int, host: str) -> tuple[int, bytes]:
    """Return when a message was made, and its producer's properties; batches mostly share both."""
    timestamp_ms(Timestamp(seconds=seconds, nanos=nanos), "born_timestamp", ErrorCode.BAD_REQUEST)
    born_ms = seconds * 1_000 + nanos // 1_000_000
    stored = {properties.PRODUCER_GROUP: topic, properties.BORN_TIMESTAMP: str(born_ms)}
    if host:
        stored[properties.BORN_HOST] = plain(host, "born_host")
    return born_ms, properties.encode(stored)


def _check_digest(body: bytes, digest: pb.Digest) -> None:
    """Raise MESSAGE_CORRUPTED if the digest of the client is not that of the body.

    Clients write hex in upper case.  Of a CRC32 the official clients know three forms: with and
    without leading zeros, and decimal.
    """
    expected = digest.checksum.upper()
    match digest.type:
        case pb.CRC32:
            found = crc32(body)
            right = expected.lstrip("0") in (f"{found:X}".lstrip("0"), str(found).lstrip("0"))
        case pb.MD5:
            right = expected == hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        case pb.SHA1:
            right = expected == hashlib.sha1(body, usedforsecurity=False).hexdigest().upper()
        case _:
            if digest.type == pb.DIGEST_TYPE_UNSPECIFIED and not expected:
                return
            raise HorologError(
                ErrorCode.MESSAGE_CORRUPTED,
                f"body_digest: unknown type {digest.type}; there are CRC32, MD5 and SHA1",
                field="body_digest",
            )
    if not right:
        raise HorologError(
            ErrorCode.MESSAGE_CORRUPTED,
            f"body_digest: {digest.checksum[:40]!r} is not the {pb.DigestType.Name(digest.type)} "
            "of the body",
            field="body_digest",
        )


def plain(text: str, field: str) -> str:
    """Return the text if it can be stored as the value of a property; else ILLEGAL_PROPERTY_KEY."""
    if "\x01" in text or "\x02" in text:
        raise HorologError(
            ErrorCode.ILLEGAL_PROPERTY_KEY, f"{field}: has a control character", field=field
        )
    return text
