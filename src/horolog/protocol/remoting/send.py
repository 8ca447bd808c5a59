"""Sends of 4.x clients: frames with the codes 10, 310 and 320 to records, and what became of them to answers.

`gather` makes one command of all sends to a topic that came in one piece, so what a command costs is shared by them;
`Gathered.answers` gives each frame its answer.  Properties are stored as they came: only those that the broker goes
by are looked for, in their stored form.

A batch (code 320, or the field `batch`) has its items back to back in the body: total size i32, magic i32, CRC i32,
flag i32, body (i32 length), properties (i16 length).  Each becomes a message, with its own due time; they are taken
together or not at all.
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
from horolog.protocol.rocketmq.delays import Due, Levels, due_of, without
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
_ITEM_MIN = _ITEM.size + 1 + _ITEM_TAIL.size
_GATHERED_MAX = 1_024  # messages of a command, unless one batch has more
_FIXED = (
    HEAD_AS_SENT.size + layout.HEAD.size + 1 + 2
)  # of a record, without body, topic, properties
_STORED_FLAGS = 0x703  # of the sender's flags: compressed and how, several tags
_TRANSACTION, _PREPARED = 0xC, 0x4
_I32 = 1 << 31

_ID, _KEYS, _TAGS = b"\x02UNIQ_KEY\x01", b"\x02KEYS\x01", b"\x02TAGS\x01"
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
        found: list[tuple[Frame, Answer | HorologError]] = []
        for frame, rows in self.requests:
            refusal = sent.refused.get(rows.start) if sent.refused else None
            found.append((frame, refusal or Answer(fields=self._told(rows, sent, site))))
        return found

    def _told(self, rows: range, sent: Sent, site: Site) -> dict[str, str]:
        host = site.store_host.hex().upper()
        first = rows.start
        message_ids = [f"{host}{sent.origins[row]:016X}" for row in rows]
        fields = {
            "msgId": ",".join(message_ids),
            "queueId": str(sent.queue_ids[first]),
            "queueOffset": str(max(0, sent.queue_offsets[first])),
            "transactionId": self.ids[first].decode(),
            **_REGION,
        }
        handles = [self._handle(row, sent, site) for row in rows]
        if any(handles):
            fields["recallHandle"] = ",".join(handles)
        return fields

    def _handle(self, row: int, sent: Sent, site: Site) -> str:
        if sent.queue_offsets[row] >= 0:
            return ""
        handle = RecallHandle(
            self.command.topic,
            site.broker_name,
            sent.due_ms[row],
            self.ids[row].decode(),
            sent.origins[row],
        )
        return encode_recall_handle(handle)


class _Sender(NamedTuple):
    """What all messages of a frame share."""

    topic: str
    queue_id: int
    flag: int
    is_batch: bool
    properties: str
    middle: bytes  # of the layout
    site: Site
    new_id: Callable[[], str]


class _Building:
    """A command while its records are gathered."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.name = topic.encode()
        self.pieces: list[bytes] = []
        self.sizes: list[int] = []
        self.ids: list[bytes] = []
        self.requests: list[_Request] = []

    def add(self, frame: Frame, sender: _Sender) -> None:
        """Take up the messages of a frame, or refuse it and be as before."""
        first, pieces = len(self.sizes), len(self.pieces)
        try:
            if sender.is_batch:
                self._add_batch(frame.body, sender)
            else:
                body = frame.body
                stored = sender.properties.encode()
                self._add_message(
                    len(body).to_bytes(4, "big") + body, body, stored, sender.flag, sender
                )
        except HorologError:
            del self.sizes[first:], self.ids[first:], self.pieces[pieces:]
            raise
        self.requests.append(_Request(frame, range(first, len(self.sizes))))

    def _add_batch(self, body: bytes, sender: _Sender) -> None:
        at, count = 0, 0
        while at < len(body):
            count += 1
            at = self._add_item(body, at, count, sender)
        if not count or count > MESSAGES_PER_SEND_MAX:
            raise HorologError(
                ErrorCode.MESSAGE_CORRUPTED,
                f"messages: {count} in one batch; 1 to {MESSAGES_PER_SEND_MAX} are allowed",
                field="messages",
                limit=f"1 to {MESSAGES_PER_SEND_MAX}",
            )

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
        self._add_message(body[body_at - 4 : tail], body[body_at:tail], stored, flag, sender)
        return end

    def _add_message(
        self, sized_body: bytes, body: bytes, stored: bytes, flag: int, sender: _Sender
    ) -> None:
        """`sized_body` is the body behind its length."""
        if not 0 < len(body) <= BODY_MAX:
            check_body(body)
        marked = b"\x02" + stored
        if _POP in marked:  # of a message that was received: it is not leased any more
            marked = without(marked, _POP)
            stored = marked[1:]
        at = marked.rfind(_ID)
        if at >= 0:
            message_id = _value(marked, at + len(_ID))
        else:
            message_id = sender.new_id().encode()
            end = b"" if marked.endswith(b"\x02") else b"\x02"
            stored += end + b"UNIQ_KEY\x01" + message_id + b"\x02"
        if not message_id.isalnum() or len(message_id) > 40:
            check_id(message_id.decode())
        if _HALF in marked:
            raise _half()
        due = _NOW
        if b"DEL" in marked:  # every property that delays has these letters
            real = b"REAL_TOPIC\x01%b\x02" % self.name
            if sender.queue_id >= 0:
                real += b"REAL_QID\x01%d\x02" % sender.queue_id
            due = due_of(stored, sender.site.levels, real)
            if due.due_ms:
                stored = due.stored
        if len(stored) > STORED_PROPERTIES_MAX:
            check_stored_size(len(stored))
        at = marked.rfind(_TAGS)
        code = _tags_code(_value(marked, at + len(_TAGS))) if at >= 0 else 0
        name = self.name
        size = _FIXED + len(body) + len(name) + len(stored)
        head = HEAD_AS_SENT.pack(
            size,
            MessageType.DELAY if due.due_ms else MessageType.NORMAL,
            _KEYS in marked,
            due.lane,
            due.due_ms,
            0,
            code,
            xxh64_intdigest(name + b"\0" + message_id, KEY_HASH_SEED),
        )
        front = _FRONT.pack(
            size - HEAD_AS_SENT.size,
            layout.MAGIC,
            crc32(body) & 0x7FFFFFFF,
            sender.queue_id,
            flag,
        )
        tail = b"%c%b%b" % (len(name), name, len(stored).to_bytes(2, "big"))
        self.pieces += (head, front, sender.middle, sized_body, tail, stored)
        self.sizes.append(size)
        self.ids.append(message_id)

    def gathered(self) -> Gathered:
        """The command."""
        parts = (
            () if len(self.requests) == len(self.sizes) else [len(r.rows) for r in self.requests]
        )
        records = NewRecords(b"".join(self.pieces), self.sizes)
        return Gathered(SendMessages(self.topic, records, parts), self.ids, self.requests)


_NOW = Due(0, 0, b"")


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
        try:
            sender = _sender(frame, born_host, site, new_id)
            topic = building.get(sender.topic)
            most = len(frame.body) // _ITEM_MIN if sender.is_batch else 1
            if topic is not None and len(topic.sizes) + most > _GATHERED_MAX:
                full.append(building.pop(sender.topic))
                topic = None
            if topic is None:
                topic = building[sender.topic] = _Building(check_topic(sender.topic))
            topic.add(frame, sender)
        except HorologError as error:
            refused.append((frame, error))
    every = [*full, *building.values()]
    return [each.gathered() for each in every if each.sizes], refused


def _sender(
    frame: Frame, born_host: tuple[bytes, int], site: Site, new_id: Callable[[], str]
) -> _Sender:
    names = _V1 if frame.code == Code.SEND_MESSAGE else _V2
    topic, queue, sys_flags, born, flags, properties, attempts, batch = names
    sys_flag = integer(frame, sys_flags, 0, low=-_I32, high=_I32 - 1)
    if sys_flag & _TRANSACTION == _PREPARED:
        raise _half()
    middle = _MIDDLE.pack(
        0,
        0,
        sys_flag & _STORED_FLAGS,
        integer(frame, born, 0),
        *born_host,
        0,
        b"\0\0\0\0",
        0,
        integer(frame, attempts, 0, low=0, high=_I32 - 1),
        0,
    )
    return _Sender(
        text(frame, topic),
        max(ANY_QUEUE, integer(frame, queue, ANY_QUEUE, low=-_I32, high=_I32 - 1)),
        integer(frame, flags, 0, low=-_I32, high=_I32 - 1),
        frame.code == Code.SEND_BATCH_MESSAGE or flag(frame, batch),
        text(frame, properties, ""),
        middle,
        site,
        new_id,
    )


def _value(marked: bytes, at: int) -> bytes:
    end = marked.find(b"\x02", at)
    return marked[at:end] if end >= 0 else marked[at:]


@lru_cache(maxsize=4096)
def _tags_code(tag: bytes) -> int:
    return tags_code(tag.decode())


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
