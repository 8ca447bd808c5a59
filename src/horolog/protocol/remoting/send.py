"""Sends of 4.x clients: frames with the codes 10, 310 and 320 to records, and what became of them to answers.

`gather` makes one command of all sends to a topic that came in one piece, so what a command costs is shared by them;
`Gathered.answers` gives each frame its answer.  Properties are stored as they came: only those that the broker goes
by are looked for, in their stored form.

A batch (code 320, or the field `batch`) has its items back to back in the body: total size i32, magic i32, CRC i32,
flag i32, body (i32 length), properties (i16 length).  Each becomes a message, with its own due time; they are taken
together or not at all.  The answer to a batch has the ids of all messages, and no recall handles: who wants to recall
one makes its handle of id and due time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX, MESSAGES_PER_SEND_MAX, STORED_PROPERTIES_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer, flag, integer, text
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.delays import Levels, due_of, ended, without
from horolog.protocol.rocketmq.message import (
    KEY_HASH_SEED,
    check_body,
    check_id,
    check_stored_size,
)
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.protocol.rocketmq.tags import tags_code
from horolog.protocol.send_commands import (
    ANY_QUEUE,
    HEAD_AS_SENT,
    MessageType,
    NewRecords,
    SendMessages,
    Sent,
)

SEND_CODES = frozenset({Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
_V1 = (
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch",
)  # fmt: skip
_V2 = ("b", "e", "f", "g", "h", "i", "j", "m")  # the same, in the short header
_REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

_FRONT = struct.Struct(">IIIii")  # of the layout: size, magic, CRC, queue id, flag
_MIDDLE = struct.Struct(">qqIq4sIq4sIIq")  # queue offset to prepared transaction
_ITEM = struct.Struct(">iiiii")
_ITEM_TAIL = struct.Struct(">H")
_HEAD_BYTES = HEAD_AS_SENT.size
_NORMAL, _DELAY = int(MessageType.NORMAL), int(MessageType.DELAY)
_ITEM_MIN = _ITEM.size + 1 + _ITEM_TAIL.size
_GATHERED_MAX = 1_024  # messages of a command, unless one batch has more
_FIXED = (
    HEAD_AS_SENT.size + layout.HEAD.size + 1 + 2
)  # of a record, without body, topic, properties
_TAG_CACHED_MAX = 256  # bytes; longer ones are rare, and are not kept
_STORED_FLAGS = 0x703  # of the sender's flags: compressed and how, several tags
_TRANSACTION, _PREPARED = 0xC, 0x4
_I32 = 1 << 31

_ID, _KEYS, _TAGS = b"\x02UNIQ_KEY\x01", b"\x02KEYS\x01", b"\x02TAGS\x01"
assert (len(_ID), len(_TAGS)) == (10, 6)
_POP, _HALF = b"\x02POP_CK\x01", b"\x02TRAN_MSG\x01true"


class Site(NamedTuple):
    """What the doors say of their broker."""

    broker_name: str
    store_host: bytes  # 4 bytes of IPv4 and 4 of port, as advertised
    levels: Levels


class _Request(NamedTuple):
    frame: Frame
    rows: range  # of the command


class Gathered(NamedTuple):
    """Sends of one topic: a command, and whose messages it has."""

    command: SendMessages
    ids: list[bytes]  # of each message
    requests: list[_Request]

    def answers(self, sent: Sent, site: Site) -> list[tuple[Frame, Answer | HorologError]]:
        """What each frame is answered; a refusal is for the door to put into words."""
        if len(self.requests) == len(self.ids) and not sent.refused:
            return self._single(sent, site)
        found: list[tuple[Frame, Answer | HorologError]] = []
        for frame, rows in self.requests:
            refusal = sent.refused.get(rows.start) if sent.refused else None
            found.append((frame, refusal or Answer(fields=self._told(rows, sent, site))))
        return found

    def _single(self, sent: Sent, site: Site) -> list[tuple[Frame, Answer | HorologError]]:
        """The usual case, which comes often: a message each, and none refused."""
        found: list[tuple[Frame, Answer | HorologError]] = []
        topic, broker, place = self.command.topic, site.broker_name, _place(site.store_host)
        for (frame, _), name, origin, queue, offset, due_ms in zip(
            self.requests,
            self.ids,
            sent.origins,
            sent.queue_ids,
            sent.queue_offsets,
            sent.due_ms,
            strict=True,
        ):
            message_id = name.decode()
            fields = {
                "msgId": place % origin,
                "queueId": str(queue),
                "queueOffset": str(offset) if offset > 0 else "0",
                "transactionId": message_id,
                **_REGION,
            }
            if offset < 0:
                handle = RecallHandle(topic, broker, due_ms, message_id, origin)
                fields["recallHandle"] = encode_recall_handle(handle)
            found.append((frame, Answer(0, fields)))
        return found

    def alone(self) -> list[Gathered]:
        """The same sends, each frame with a command of its own."""
        records, sizes = self.command.columns()
        found = []
        at = 0
        for frame, rows in self.requests:
            chosen = sizes[rows.start : rows.stop]
            end = at + sum(chosen)
            command = SendMessages(
                self.command.topic, NewRecords(records[at:end], chosen), reuses_ids=True
            )
            ids = self.ids[rows.start : rows.stop]
            found.append(Gathered(command, ids, [_Request(frame, range(len(rows)))]))
            at = end
        return found

    def _told(self, rows: range, sent: Sent, site: Site) -> dict[str, str]:
        first, place = rows.start, _place(site.store_host)
        fields = {
            "msgId": ",".join([place % at for at in sent.origins[first : rows.stop]]),
            "queueId": str(sent.queue_ids[first]),
            "queueOffset": str(max(0, sent.queue_offsets[first])),
            "transactionId": self.ids[first].decode(),
            **_REGION,
        }
        if sent.queue_offsets[first] < 0 and len(rows) == 1:
            handle = RecallHandle(
                self.command.topic,
                site.broker_name,
                sent.due_ms[first],
                fields["transactionId"],
                sent.origins[first],
            )
            fields["recallHandle"] = encode_recall_handle(handle)
        return fields


def _place(host: bytes) -> str:
    """Ids that name the place of messages, but for the log position that they end with."""
    return host.hex().upper() + "%016X"


class _Shared(NamedTuple):
    """What the sends of a producer have in common, but for the time and the properties."""

    topic: str
    name: bytes  # the topic, in UTF-8
    queue_id: int
    sys_flag: int
    flag: int
    attempts: int
    is_batch: bool
    real: bytes  # what is stored with a delayed message
    key: bytes  # what is hashed before the id
    tail: bytes  # what stands behind the body, before the properties


class _Sender(NamedTuple):
    """Whose messages are taken up."""

    shared: _Shared
    middle: bytes  # of the layout
    levels: Levels
    new_id: Callable[[], str]


class _Building:
    """A command while its records are gathered."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.pieces: list[bytes] = []
        self.sizes: list[int] = []
        self.ids: list[bytes] = []
        self.requests: list[_Request] = []

    def add(self, frame: Frame, properties: str, sender: _Sender) -> None:
        """Take up the messages of a frame, or refuse it and be as before."""
        first, pieces = len(self.sizes), len(self.pieces)
        try:
            if sender.shared.is_batch:
                self._add_batch(frame.body, sender)
            else:
                body = frame.body
                size = len(body).to_bytes(4, "big")
                self._add_message(size, body, properties.encode(), sender.shared.flag, sender)
        except HorologError:
            del self.sizes[first:], self.ids[first:], self.pieces[pieces:]
            raise
        self.requests.append(_Request(frame, range(first, len(self.sizes))))

    def _add_batch(self, body: bytes, sender: _Sender) -> None:
        at, count = 0, 0
        while at < len(body):
            count += 1
            if count > MESSAGES_PER_SEND_MAX:
                raise _wrong_count(f"more than {MESSAGES_PER_SEND_MAX}")
            at = self._add_item(body, at, count, sender)
        if not count:
            raise _wrong_count("none")

    def _add_item(self, body: bytes, at: int, number: int, sender: _Sender) -> int:
        """Take up the item there; gives where the next one begins."""
        try:
            size, _, _, flag, body_size = _ITEM.unpack_from(body, at)
            body_at = at + _ITEM.size
            tail = body_at + max(0, body_size)
            stored_size: int = _ITEM_TAIL.unpack_from(body, tail)[0]
        except struct.error:
            raise _broken_batch(number, "is cut short") from None
        end: int = tail + _ITEM_TAIL.size + stored_size
        if body_size < 0 or size != end - at or end > len(body):
            raise _broken_batch(number, "has lengths that do not add up")
        stored = body[tail + _ITEM_TAIL.size : end]
        if not stored.isascii():
            try:
                stored.decode()
            except UnicodeDecodeError:
                raise _broken_batch(number, "has properties that are no UTF-8") from None
        self._add_message(body[body_at - 4 : body_at], body[body_at:tail], stored, flag, sender)
        return end

    def _add_message(
        self, body_size: bytes, body: bytes, stored: bytes, flag: int, sender: _Sender
    ) -> None:
        """One message; `body_size` is what stands before a body."""
        shared, middle, levels, new_id = sender
        if not 0 < len(body) <= BODY_MAX:
            check_body(body)
        if len(stored) > 2 * STORED_PROPERTIES_MAX:  # what may be dropped of them is less
            check_stored_size(len(stored))
        marked = b"\x02" + stored
        if _POP in marked:  # of a message that was received: it is not leased any more
            marked = without(marked, _POP)
        at = marked.rfind(_ID)
        if at >= 0:
            end = marked.find(b"\x02", at + 1)
            message_id = marked[at + 10 : end] if end >= 0 else marked[at + 10 :]
        else:
            message_id = new_id().encode()
            marked = ended(marked) + b"UNIQ_KEY\x01" + message_id + b"\x02"
        if not message_id.isalnum() or len(message_id) > 40:
            check_id(message_id.decode())
        if _HALF in marked:
            raise _half()
        due_ms = lane = 0
        if b"DEL" in marked:  # every property that delays has these letters
            due_ms, lane, marked = due_of(marked, levels, shared.real)
        stored_size = len(marked) - 1
        if stored_size > STORED_PROPERTIES_MAX:
            check_stored_size(stored_size)
        at = marked.rfind(_TAGS)
        if at >= 0:
            end = marked.find(b"\x02", at + 1)
            code = _tags_code(marked[at + 6 : end] if end >= 0 else marked[at + 6 :])
        else:
            code = 0
        size = _FIXED + len(body) + len(shared.name) + stored_size
        self.pieces += (
            HEAD_AS_SENT.pack(
                size,
                _DELAY if due_ms else _NORMAL,
                _KEYS in marked,
                lane,
                due_ms,
                0,
                code,
                xxh64_intdigest(shared.key + message_id, KEY_HASH_SEED),
            ),
            _FRONT.pack(
                size - _HEAD_BYTES, layout.MAGIC, crc32(body) & 0x7FFFFFFF, shared.queue_id, flag
            ),
            middle,
            body_size,
            body,
            shared.tail,
            stored_size.to_bytes(2, "big"),
            marked[1:],
        )
        self.sizes.append(size)
        self.ids.append(message_id)

    def gathered(self) -> Gathered:
        """The command."""
        parts = (
            () if len(self.requests) == len(self.sizes) else [len(r.rows) for r in self.requests]
        )
        records = NewRecords(b"".join(self.pieces), self.sizes)
        command = SendMessages(self.topic, records, parts, reuses_ids=True)
        return Gathered(command, self.ids, self.requests)


def gather(
    frames: Iterable[Frame],
    born_host: tuple[bytes, int],
    site: Site,
    new_id: Callable[[], str],
) -> tuple[list[Gathered], list[tuple[Frame, HorologError]]]:
    """Commands for sends that came together, one for each topic, and the frames that are refused.

    frames     with a code of SEND_CODES
    born_host  4 bytes of IPv4 (zeros if it is not known) and port of the client
    new_id     gives the id of a message whose client gave it none; never the same twice
    """
    building: dict[str, _Building] = {}
    full: list[_Building] = []
    refused = []
    for frame in frames:
        get = frame.fields.get
        topic, queue, sys_flag, born, flags, properties, attempts, batch = (
            _V1 if frame.code == Code.SEND_MESSAGE else _V2
        )
        try:
            shared = _shared(
                frame.code,
                get(topic),
                get(queue),
                get(sys_flag),
                get(flags),
                get(attempts),
                get(batch),
            )
            born_ms = get(born, "0")
            if not born_ms.isdecimal() or len(born_ms) > 18:
                born_ms = str(integer(frame, born, 0))
            middle = _middle(shared.sys_flag, born_ms, *born_host, shared.attempts)
            sender = _Sender(shared, middle, site.levels, new_id)
            taken = building.get(shared.topic)
            if taken is not None:
                most = len(frame.body) // _ITEM_MIN if shared.is_batch else 1
                if len(taken.sizes) + most > _GATHERED_MAX:
                    full.append(building.pop(shared.topic))
                    taken = None
            if taken is None:
                taken = building[shared.topic] = _Building(shared.topic)
            taken.add(frame, get(properties, ""), sender)
        except HorologError as error:
            refused.append((frame, error))
    every = [*full, *building.values()]
    return [each.gathered() for each in every if each.sizes], refused


@lru_cache(maxsize=4_096)
def _shared(code: int, *given: str | None) -> _Shared:
    """From the fields in the order of topic, queue, sysFlag, flag, reconsumeTimes, batch; a bad one is refused."""
    names = _V1 if code == Code.SEND_MESSAGE else _V2
    topic, queue, sys_flags, _, flags, _, attempts, batch = names
    named = (topic, queue, sys_flags, flags, attempts, batch)
    fields = {name: value for name, value in zip(named, given, strict=True) if value is not None}
    frame = Frame(code, fields=fields)
    sys_flag = integer(frame, sys_flags, 0, low=-_I32, high=_I32 - 1)
    if sys_flag & _TRANSACTION == _PREPARED:
        raise _half()
    queue_id = max(ANY_QUEUE, integer(frame, queue, ANY_QUEUE, low=-_I32, high=_I32 - 1))
    name = check_topic(text(frame, topic)).encode()
    real = b"REAL_TOPIC\x01%b\x02" % name
    if queue_id >= 0:
        real += b"REAL_QID\x01%d\x02" % queue_id
    return _Shared(
        name.decode(),
        name,
        queue_id,
        sys_flag & _STORED_FLAGS,
        integer(frame, flags, 0, low=-_I32, high=_I32 - 1),
        integer(frame, attempts, 0, low=0, high=_I32 - 1),
        flag(frame, batch) or code == Code.SEND_BATCH_MESSAGE,  # what is kept was looked at
        real,
        name + b"\0",
        bytes((len(name),)) + name,
    )


@lru_cache(maxsize=256)
def _middle(sys_flag: int, born_ms: str, host: bytes, port: int, attempts: int) -> bytes:
    return _MIDDLE.pack(0, 0, sys_flag, int(born_ms), host, port, 0, bytes(4), 0, attempts, 0)


def _tags_code(tag: bytes) -> int:
    return _known_tag(tag) if len(tag) <= _TAG_CACHED_MAX else tags_code(tag.decode())


@lru_cache(maxsize=4_096)
def _known_tag(tag: bytes) -> int:
    return tags_code(tag.decode())


def _wrong_count(count: str) -> HorologError:
    limit = f"1 to {MESSAGES_PER_SEND_MAX}"
    return HorologError(
        ErrorCode.MESSAGE_CORRUPTED,
        f"messages: {count} in one batch; {limit} are allowed",
        field="messages",
        limit=limit,
    )


def _half() -> HorologError:
    return HorologError(
        ErrorCode.NOT_IMPLEMENTED,
        "sysFlag: transactional messages are not supported yet",
        field="sysFlag",
    )


def _broken_batch(number: int, why: str) -> HorologError:
    return HorologError(
        ErrorCode.MESSAGE_CORRUPTED, f"body: message {number} of the batch {why}", field="body"
    )
