"""Sends of 4.x clients: frames with the codes 10, 310 and 320 to records, and what became of them to answers.

`gather` makes one command of all sends to a topic that came in one piece, so what a command costs is shared by them;
`Gathered.answers` gives each frame its answer.  Properties are stored as they came: only those that the broker goes
by are looked for, in their stored form: by their shape (`shapes`), or the full way (`wanted`).

A batch (code 320, or the field `batch`) has its messages in the body (`batch`).  Each has its own due time; they are
taken together or not at all.  The answer to a batch has the ids of all messages, and no recall handles: who wants to recall
one makes its handle of id and due time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog.errors import HorologError
from horolog.protocol.remoting.batch import ITEM_MIN, Items, broken_batch, cut
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer, flag, integer, text
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.wanted import Wanted, Ways, half_message
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.delays import Levels
from horolog.protocol.rocketmq.message import KEY_HASH_SEED, check_body
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

_HEAD_BYTES = HEAD_AS_SENT.size
_NORMAL, _DELAY = int(MessageType.NORMAL), int(MessageType.DELAY)
_GATHERED_MAX = 1_024  # messages of a command, unless one batch has more
_FIXED = (
    HEAD_AS_SENT.size + layout.HEAD.size + 1 + 2
)  # of a record, without body, topic, properties
_TAG_CACHED_MAX = 256  # bytes; longer ones are rare, and are not kept
_STORED_FLAGS = 0x703  # of the sender's flags: compressed and how, several tags
_TRANSACTION, _PREPARED = 0xC, 0x4
_I32 = 1 << 31


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
    born: tuple[int, bytes, int]  # milliseconds, IPv4, port
    ways: Ways


class _Building:
    """A command while its records are gathered."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.pieces: list[bytes] = []
        self.sizes: list[int] = []
        self.ids: list[bytes] = []
        self.requests: list[_Request] = []

    def add(self, frame: Frame, properties: str, sender: _Sender, shapes: Shapes) -> None:
        """Take up the messages of a frame, or refuse it and be as before."""
        first, pieces = len(self.sizes), len(self.pieces)
        try:
            if sender.shared.is_batch:
                self._add_batch(frame.body, sender, shapes)
            else:
                check_body(frame.body)
                text = properties.encode()
                items = Items((sender.shared.flag,), (frame.body,), (text,))
                self._add_columns(items, Wanted.of(items.texts, sender.ways), sender)
        except HorologError:
            del self.sizes[first:], self.ids[first:], self.pieces[pieces:]
            raise
        self.requests.append(_Request(frame, range(first, len(self.sizes))))

    def _add_batch(self, body: bytes, sender: _Sender, shapes: Shapes) -> None:
        items = cut(body)
        is_whole = items.fault is None
        wanted = shapes.read(items.texts, sender.ways) if is_whole and items.are_usual else None
        if wanted is None:
            wanted = _read_items(items, sender.ways)
            shapes.missed(items.texts)
        self._add_columns(items, wanted, sender)

    def _add_columns(self, items: Items, wanted: Wanted, sender: _Sender) -> None:
        """Messages, and what their properties want."""
        shared, born, _ = sender
        pack_head, pack_layout, name_bytes = HEAD_AS_SENT.pack, layout.HEAD.pack, len(shared.name)
        fixed, queue_id, key, tail = _FIXED + name_bytes, shared.queue_id, shared.key, shared.tail
        middle = (0, 0, shared.sys_flag, *born, 0, bytes(4), 0, shared.attempts, 0)
        pieces, sizes = self.pieces, self.sizes
        texts, ids, keyed, tags, dues, lanes = wanted
        codes = map(_tags_code, tags)
        for own_flag, body, stored, message_id, has_keys, code, due_ms, lane in zip(
            items.flags, items.bodies, texts, ids, keyed, codes, dues, lanes, strict=True
        ):
            body_size, stored_size = len(body), len(stored)
            size = fixed + body_size + stored_size
            kind = _DELAY if due_ms else _NORMAL
            name_hash = xxh64_intdigest(key + message_id, KEY_HASH_SEED)
            crc = crc32(body) & 0x7FFFFFFF
            pieces += (
                pack_head(size, kind, has_keys, lane, due_ms, 0, code, name_hash),
                pack_layout(
                    size - _HEAD_BYTES, layout.MAGIC, crc, queue_id, own_flag, *middle, body_size
                ),
                body,
                tail,
                stored_size.to_bytes(2, "big"),
                stored,
            )
            sizes.append(size)
        self.ids += ids

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
    shapes: Shapes,
) -> tuple[list[Gathered], list[tuple[Frame, HorologError]]]:
    """Commands for sends that came together, one for each topic, and the frames that are refused.

    frames     with a code of SEND_CODES
    born_host  4 bytes of IPv4 (zeros if it is not known) and port of the client
    new_id     gives the id of a message whose client gave it none; never the same twice
    shapes     what was learned of the connection's messages
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
            born_ms = integer(frame, born, 0)
            sender = _Sender(shared, (born_ms, *born_host), Ways(site.levels, shared.real, new_id))
            taken = building.get(shared.topic)
            if taken is not None:
                most = len(frame.body) // ITEM_MIN if shared.is_batch else 1
                if len(taken.sizes) + most > _GATHERED_MAX:
                    full.append(building.pop(shared.topic))
                    taken = None
            if taken is None:
                taken = building[shared.topic] = _Building(shared.topic)
            taken.add(frame, get(properties, ""), sender, shapes)
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
        raise half_message()
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


def _tags_code(tag: bytes) -> int:
    return _known_tag(tag) if len(tag) <= _TAG_CACHED_MAX else tags_code(tag.decode())


@lru_cache(maxsize=4_096)
def _known_tag(tag: bytes) -> int:
    return tags_code(tag.decode())


def _read_items(items: Items, ways: Ways) -> Wanted:
    """What the messages of a batch want, read one by one; the first that is wrong refuses it, with its own reason."""
    found = []
    for number, (body, stored) in enumerate(zip(items.bodies, items.texts, strict=True), 1):
        if not stored.isascii():
            try:
                stored.decode()
            except UnicodeDecodeError:
                raise broken_batch(number, "has properties that are no UTF-8") from None
        check_body(body)
        found.append(Wanted.of((stored,), ways))
    if items.fault is not None:
        raise items.fault
    return Wanted(*[[value for (value,) in column] for column in zip(*found, strict=True)])
