"""Sends of 4.x clients: frames with the codes 10, 310 and 320 to records.

`gather` makes one command of all sends to a topic that came in one piece, so what a command costs is shared by them;
`Gathered` gives each frame its answer.  Sends whose headers are alike come as runs (`header_shapes`).  Properties are stored as they came: only those that the broker goes
by are looked for, in their stored form: by their shape (`shapes`), or the full way (`wanted`).

A batch (code 320, or the field `batch`) has its messages in the body (`batch`).  Each has its own due time; they are
taken together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh64_intdigest
from zlib_ng.zlib_ng import crc32

from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.protocol.remoting.batch import Items, broken_batch, cut
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Gathered, Request, Run, Site
from horolog.protocol.remoting.header_shapes import Alike
from horolog.protocol.remoting.request import flag, integer, text
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.wanted import Wanted, Ways, half_message
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import KEY_HASH_SEED, check_body
from horolog.protocol.rocketmq.message_group import NO_GROUP, group_code
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.tags import tags_code
from horolog.protocol.send_commands import (
    ANY_QUEUE,
    HEAD_AS_SENT,
    MessageType,
    NewRecords,
    SendMessages,
)

_V1 = (
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch",
)  # fmt: skip
_V2 = ("b", "e", "f", "g", "h", "i", "j", "m")  # the same, in the short header

_HEAD_BYTES = HEAD_AS_SENT.size
_NORMAL, _FIFO, _DELAY = map(int, (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY))
_GATHERED_MAX = 1_024  # messages of a command, unless one batch has more
_FIXED = (
    HEAD_AS_SENT.size + layout.HEAD.size + 1 + 2
)  # of a record, without body, topic, properties
_TAG_CACHED_MAX = 256  # bytes; longer ones are rare, and are not kept
_STORED_FLAGS = 0x703  # of the sender's flags: compressed and how, several tags
_TRANSACTION, _PREPARED = 0xC, 0x4
_I32 = 1 << 31


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
    tail: bytes  # what stands after the body, before the properties


class _Messages(NamedTuple):
    """Messages to one topic, as columns."""

    bodies: Sequence[bytes]
    flags: Sequence[int]
    queue_ids: Sequence[int]
    born_ms: Sequence[int]


class _Building:
    """A command while its records are gathered."""

    def __init__(self, topic: str, born_host: tuple[bytes, int]) -> None:
        self.sizes: list[int] = []
        self._topic = topic
        self._born_host = born_host
        self._pieces: list[bytes] = []
        self._ids: list[bytes] = []
        self._taken: list[Request | Run] = []
        self._parts: list[int] = []

    def add(self, frame: Frame, messages: _Messages, wanted: Wanted, shared: _Shared) -> None:
        """Take up the messages of a frame, and what their properties want."""
        self._taken.append(Request(frame, self._add(messages, wanted, shared)))
        self._parts.append(len(wanted.ids))

    def add_run(self, run: Alike, messages: _Messages, wanted: Wanted, shared: _Shared) -> None:
        """Take up frames of one message each; `shared` is what they share but for the queue."""
        self._taken.append(Run(run, self._add(messages, wanted, shared)))
        self._parts += [1] * len(run)

    def _add(self, messages: _Messages, wanted: Wanted, shared: _Shared) -> range:
        pack_head, pack_layout, name_bytes = HEAD_AS_SENT.pack, layout.HEAD.pack, len(shared.name)
        fixed, key, tail, sys_flag = _FIXED + name_bytes, shared.key, shared.tail, shared.sys_flag
        middle = (*self._born_host, 0, bytes(4), 0, shared.attempts, 0)
        pieces, sizes = self._pieces, self.sizes
        first = len(sizes)
        texts, ids, keyed, tags, named, dues, lanes = wanted
        codes, groups = map(_tags_code, tags), map(_group_code, named)
        columns = (*messages, texts, ids, keyed, codes, groups, dues, lanes)
        for row in zip(*columns, strict=True):
            body, own_flag, queue_id, born, stored, name, has_keys, code, group, due_ms, lane = row
            body_size, stored_size = len(body), len(stored)
            size = fixed + body_size + stored_size
            kind = _FIFO if group else _DELAY if due_ms else _NORMAL
            name_hash = xxh64_intdigest(key + name, KEY_HASH_SEED)
            crc = crc32(body) & 0x7FFFFFFF
            pieces += (
                pack_head(size, kind, has_keys, lane, due_ms, group, code, name_hash),
                pack_layout(
                    size - _HEAD_BYTES,
                    layout.MAGIC,
                    crc,
                    queue_id,
                    own_flag,
                    0,
                    0,
                    sys_flag,
                    born,
                    *middle,
                    body_size,
                ),
                body,
                tail,
                stored_size.to_bytes(2, "big"),
                stored,
            )
            sizes.append(size)
        self._ids += ids
        return range(first, len(sizes))

    def gathered(self) -> Gathered:
        """The command."""
        parts = () if len(self._parts) == len(self.sizes) else self._parts
        records = NewRecords(b"".join(self._pieces), self.sizes)
        command = SendMessages(self._topic, records, parts, reuses_ids=True)
        return Gathered(command, self._ids, self._taken)


class _Gathering:
    """The commands of one chunk while they are built; arguments as of `gather`."""

    def __init__(
        self,
        born_host: tuple[bytes, int],
        site: Site,
        new_id: Callable[[], str],
        shapes: Shapes,
    ) -> None:
        self.full: list[_Building] = []
        self.building: dict[str, _Building] = {}
        self._born_host = born_host
        self._levels = site.levels
        self._new_id = new_id
        self._shapes = shapes

    def _room(self, topic: str, most: int) -> _Building:
        """Where so many messages go, at most."""
        taken = self.building.get(topic)
        if taken is not None and len(taken.sizes) + most > _GATHERED_MAX:
            self.full.append(self.building.pop(topic))
            taken = None
        if taken is None:
            taken = self.building[topic] = _Building(topic, self._born_host)
        return taken

    def take_run(self, run: Alike) -> bool:
        """Take up a run; False if something is wrong with one of its frames: then each is for itself."""
        _, queues, born_ms, texts = zip(*run.rows, strict=True)
        code, get = run.sample.code, run.sample.fields.get
        topic, _, sys_flag, _, flags, _, attempts, batch = _names(code)
        same = [get(name) for name in (sys_flag, flags, attempts, batch)]
        sizes = list(map(len, run.bodies))
        if min(sizes) == 0 or max(sizes) > BODY_MAX:
            return False
        try:
            of = {each: _shared(code, get(topic), each.decode(), *same) for each in set(queues)}
            ways = Ways(self._levels, [of[queue].real for queue in queues], self._new_id)
            wanted = self._shapes.read(texts, ways)
            if wanted is None:
                wanted = Wanted.of(texts, ways)
                self._shapes.missed(texts)
        except HorologError:
            return False
        shared = of[queues[0]]
        queue_ids = [of[queue].queue_id for queue in queues]
        messages = _Messages(
            run.bodies, [shared.flag] * len(run), queue_ids, list(map(int, born_ms))
        )
        self._room(shared.topic, len(run)).add_run(run, messages, wanted, shared)
        return True

    def take(self, frame: Frame) -> None:
        """Take up a frame, or refuse it and be as before."""
        get = frame.fields.get
        topic, queue, sys_flag, born, flags, properties, attempts, batch = _names(frame.code)
        texts = map(get, (topic, queue, sys_flag, flags, attempts, batch))
        shared = _shared(frame.code, *texts)
        born_ms = integer(frame, born, 0)
        if shared.is_batch:
            items = cut(frame.body)
            wanted = self._read_batch(items, shared)
        else:
            check_body(frame.body)
            items = Items((shared.flag,), (frame.body,), (get(properties, "").encode(),))
            wanted = Wanted.of(items.texts, Ways(self._levels, (shared.real,), self._new_id))
        count = len(items.bodies)
        messages = _Messages(
            items.bodies, items.flags, [shared.queue_id] * count, [born_ms] * count
        )
        self._room(shared.topic, count).add(frame, messages, wanted, shared)

    def _read_batch(self, items: Items, shared: _Shared) -> Wanted:
        """What the messages of a batch want; the first that is wrong refuses it, with its own reason."""
        ways = Ways(self._levels, [shared.real] * len(items.texts), self._new_id)
        if items.fault is None and items.are_usual:
            wanted = self._shapes.read(items.texts, ways)
            if wanted is not None:
                return wanted
        one = Ways(self._levels, (shared.real,), self._new_id)
        found = []
        for number, (body, stored) in enumerate(zip(items.bodies, items.texts, strict=True), 1):
            if not stored.isascii():
                try:
                    stored.decode()
                except UnicodeDecodeError:
                    raise broken_batch(number, "has properties that are no UTF-8") from None
            check_body(body)
            found.append(Wanted.of((stored,), one))
        if items.fault is not None:
            raise items.fault
        self._shapes.missed(items.texts)
        return Wanted(*[[value for (value,) in column] for column in zip(*found, strict=True)])


def gather(
    frames: Iterable[Frame | Alike],
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
    gathering = _Gathering(born_host, site, new_id, shapes)
    refused = []
    for each in frames:
        singles: Sequence[Frame]
        if isinstance(each, Alike):
            if gathering.take_run(each):
                continue
            singles = each.frames()
        else:
            singles = (each,)
        for frame in singles:
            try:
                gathering.take(frame)
            except HorologError as error:
                refused.append((frame, error))
    return [each.gathered() for each in (*gathering.full, *gathering.building.values())], refused


def _names(code: int) -> tuple[str, ...]:
    """Fields of a send: topic, queueId, sysFlag, bornTimestamp, flag, properties, reconsumeTimes, batch."""
    return _V1 if code == Code.SEND_MESSAGE else _V2


@lru_cache(maxsize=4_096)
def _shared(code: int, *given: str | None) -> _Shared:
    """From the fields in the order of topic, queue, sysFlag, flag, reconsumeTimes, batch; a bad one is refused."""
    topic, queue, sys_flags, _, flags, _, attempts, batch = _names(code)
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


def _group_code(group: bytes) -> int:
    if not group:
        return NO_GROUP
    return _known_group(group) if len(group) <= _TAG_CACHED_MAX else group_code(group.decode())


@lru_cache(maxsize=4_096)
def _known_group(group: bytes) -> int:
    return group_code(group.decode())


@lru_cache(maxsize=4_096)
def _known_tag(tag: bytes) -> int:
    return tags_code(tag.decode())
