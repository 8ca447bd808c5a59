"""Data directories for the jobs that read them, and copies of logs with rewritten frames as faults.

made = await make_directory(path, messages=300)
with Surgery(path, copy) as log:
    log.blank(log.nth(Kind.HANDED, 7))        # as if it had never been written
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import orjson

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS
from horolog.log.control_records import decode_hand_over, encode_hand_over, origins_of
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse, seal
from horolog.log.record import ENVELOPE, HEAD_BYTES, Kind, offsets_of
from horolog.log.segment import segment_name
from horolog.protocol.commands import (
    Ack,
    CountPending,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    MessageType,
    Recall,
    RecallMany,
    Receive,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    GroupSettings,
    PutGroup,
)
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

START_MS = 1_772_964_000_000
SEGMENT_BYTES = 1 << 20
TOPICS = ("calls", "mails")


@dataclass
class Made:
    """The contents that a directory was made with."""

    pending: int = 0
    by_second: dict[int, int] = field(default_factory=dict)  # ms of the second → messages
    by_topic: dict[str, int] = field(default_factory=dict)
    handed_over: int = 0
    recalled: int = 0
    moved: int = 0


def message(topic: str, number: int, due_ms: int, body: bytes = b"please come"):
    """Build a message whose id contains its number."""
    return encode(
        topic=topic,
        body=body,
        message_id=f"01AA{number:028X}",
        type=MessageType.DELAY,
        due_ms=due_ms,
        born_ms=START_MS,
    )


def message_id(number: int) -> str:
    """Return the id that `message` gives a number."""
    return f"01AA{number:028X}"


def due_of(number: int) -> int:
    """Return a due time within two hours, at even minutes; for a third of the numbers, months later."""
    if number % 3 == 2:
        return START_MS + 40 * 24 * HOUR_MS + number * 60_000
    return START_MS + 1_000 + number * 7_919 % 60 * 120_000


async def open_directory(path: Path, segment_bytes: int = SEGMENT_BYTES) -> Engine:
    """Open an engine on the simulated clock."""
    return await open_engine(
        path, clock="simulated", flush="os", segment_bytes=segment_bytes, start_ms=START_MS
    )


async def send(engine: Engine, topic: str, numbers: range) -> None:
    """Send `message` for each number, due at `due_of`."""
    for first in range(numbers.start, numbers.stop, 500):
        part = range(first, min(numbers.stop, first + 500))
        await engine.submit(SendMessages(topic, [message(topic, n, due_of(n)) for n in part]))


async def make_directory(
    path: Path,
    messages: int = 300,
    *,
    advance_ms: int = HOUR_MS,
    segment_bytes: int = SEGMENT_BYTES,
) -> Made:
    """Make a directory of two topics with messages in many states.

    Some are recalled, moved, recalled in bulk, handed over, received, acknowledged.
    """
    engine = await open_directory(path, segment_bytes)
    made = Made()
    for topic in TOPICS:
        await engine.submit(CreateTopic(topic, TopicType.DELAY, 2))
    half = messages // 2
    await send(engine, TOPICS[0], range(half))
    await send(engine, TOPICS[1], range(half, messages))
    for n in range(0, 30, 3):
        await engine.submit(Recall(TOPICS[0], message_id(n), due_of(n)))
        made.recalled += 1
    for n in range(1, 31, 3):
        later = due_of(n) + 11 * 60_000
        await engine.submit(Reschedule(TOPICS[0], message_id(n), due_of(n), later))
        made.moved += 1
    bulk = await engine.submit(RecallMany(TOPICS[1], START_MS, START_MS + 5 * 60_000))
    made.recalled += bulk.cancelled
    await engine.advance(advance_ms)
    for _ in range(3):
        received = await engine.submit(
            Receive("gates", TOPICS[0], -1, "*", 8, 10_000, False, 0, "me")
        )
        handles = [each.receipt_handle for each in received.messages[:5]]
        await engine.submit(Ack("gates", TOPICS[0], handles))
    await readers(engine)
    await engine.advance(11_000)  # leases without an ack are over
    await engine.submit(Receive("gates", TOPICS[0], -1, "*", 8, 10_000, False, 0, "me"))
    await note(engine, made)
    await engine.stop()
    return made


async def readers(engine: Engine) -> None:
    """Commit offsets of groups, forwards and back; one group has settings, and one is deleted."""
    for group in ("gone", "readers"):
        await engine.submit(PutGroup(group, GroupSettings(orderly=True, retry_max=3)))
        for topic in TOPICS:
            view = await engine.submit(DescribeTopic(topic))
            most = dict(enumerate(view.queue_offsets))
            half = {queue: offset // 2 for queue, offset in most.items()}
            for offsets in (most, half):
                await engine.submit(CommitOffsets(group, topic, offsets))
        command = Receive(group, TOPICS[0], -1, "*", 8, 10_000, False, 0, "me")
        received = await engine.submit(command)
        handles = [each.receipt_handle for each in received.messages[4:]]
        await engine.submit(Ack(group, TOPICS[0], handles))
        view = await engine.submit(DescribeTopic(TOPICS[0]))
        await engine.submit(CommitOffsets(group, TOPICS[0], {0: view.queue_offsets[0] // 3}))
    await engine.submit(DeleteGroup("gone"))
    for name in ("passing", "passing"):  # twice: the second time it is another topic
        await engine.submit(CreateTopic(name, TopicType.NORMAL, 2))
        view = await engine.submit(DescribeTopic(name))
        assert view.queue_offsets == [0, 0]
        messages = [encode(topic=name, body=b"x", message_id=f"p{i}") for i in range(5)]
        await engine.submit(SendMessages(name, messages))
        await engine.submit(CommitOffsets("readers", name, {0: 1}))
        await engine.submit(DeleteTopic(name))


async def note(engine: Engine, made: Made) -> None:
    """Note the broker's own counts."""
    counts = await engine.submit(CountPending())
    made.pending = counts.total
    for hour_ms, n in counts.rows:
        try:
            seconds = await engine.submit(CountPending(hour=hour_ms // HOUR_MS))
        except HorologError as error:
            if error.code is not ErrorCode.IN_TIER:
                raise
            made.by_second[hour_ms] = n  # more is not known of messages in the lake
            continue
        made.by_second.update(seconds.rows)
    for topic in TOPICS:
        made.by_topic[topic] = (await engine.submit(CountPending(topic=topic))).total
    made.handed_over = engine.broker.shard.handed_over


@dataclass
class Found:
    """A record of the log: its position and its bytes."""

    position: int
    content: bytes

    @property
    def kind(self) -> int:
        """The kind of the record."""
        return self.content[4]

    @property
    def due_ms(self) -> int:
        """The due time of the record."""
        return ENVELOPE.unpack_from(self.content)[4]

    @property
    def key(self) -> bytes:
        """The key hash of the record."""
        return self.content[24:32]


class Surgery:
    """Changes the log of a copy; changed frames are sealed again, so that all checksums are right."""

    def __init__(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        meta = orjson.loads((target / "meta").read_bytes())
        self.target = target
        self._log_id, self._size = int(meta["log_id"], 16), meta["segment_bytes"]
        place = target / "shard-00" / "log"
        names = sorted(path.name for path in place.glob("*.log"))
        self._log = bytearray(b"".join((place / name).read_bytes() for name in names))
        self._frames = self._walk()

    def __enter__(self) -> Surgery:
        """Return the log to be changed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the log."""
        place = self.target / "shard-00" / "log"
        for base in range(0, len(self._log), self._size):
            (place / segment_name(base)).write_bytes(self._log[base : base + self._size])

    def _walk(self) -> list[FrameHeader]:
        frames, at = [], 0
        while at + HEADER_BYTES <= len(self._log):
            if self._size - at % self._size < HEADER_BYTES:
                at += self._size - at % self._size
                continue
            header = parse(self._log, at)
            if header is None:
                break
            frames.append(header)
            at = header.end
        return frames

    @property
    def newest_ms(self) -> int:
        """Append time of the last frame."""
        return self._frames[-1].append_ms

    def records(self, kind: Kind) -> list[Found]:
        """Return all records of a kind."""
        found = []
        for header in self._frames:
            if header.padding or not header.count:
                continue
            first = header.base + HEADER_BYTES
            offsets = offsets_of(self._log[first : header.end], header.count).tolist()
            for a, b in zip(offsets, [*offsets[1:], header.length], strict=True):
                if self._log[first + a + 4] == kind:
                    found.append(Found(first + a, bytes(self._log[first + a : first + b])))
        return found

    def hand_over_of(self, handed: Found) -> tuple[int, int]:
        """Return (log position of the scheduled message, its row) of a HANDED record."""
        before = [each for each in self.records(Kind.HAND_OVER) if each.position < handed.position]
        origins = decode_hand_over(before[-1].content[16:]).origins
        after = [
            each
            for each in self.records(Kind.HANDED)
            if before[-1].position < each.position <= handed.position
        ]
        origin = origins[len(after) - 1]
        return int(origin["position"]), int(origin["row"])

    def put(self, position: int, content: bytes) -> None:
        """Overwrite bytes at a log position."""
        self._log[position : position + len(content)] = content
        (header,) = [h for h in self._frames if h.base <= position < h.end]
        body = self._log[header.base + HEADER_BYTES : header.end]
        self._log[header.base : header.base + HEADER_BYTES] = seal(
            log_id=header.log_id,
            shard=header.shard,
            base=header.base,
            durable=header.durable,
            append_ms=header.append_ms,
            epoch=header.epoch,
            count=header.count,
            body=body,
        )

    def blank(self, found: Found) -> None:
        """Replace a record by one without meaning."""
        size = len(found.content)
        self.put(found.position, ENVELOPE.pack(size, Kind.EPOCH, 0, 0, 0) + bytes(size - 16))

    def store_at(self, found: Found, store_ms: int) -> None:
        """Change the store time of a record."""
        self.put(found.position + HEAD_BYTES + layout.STORE_MS_AT, store_ms.to_bytes(8, "big"))

    def append(self, body: bytes, count: int, append_ms: int) -> None:
        """Append one more frame."""
        last = self._frames[-1]
        header = seal(
            log_id=self._log_id,
            shard=0,
            base=last.end,
            durable=last.durable,
            append_ms=append_ms,
            epoch=last.epoch,
            count=count,
            body=body,
        )
        assert last.end % self._size + len(header) + len(body) < self._size
        self._log[last.end : last.end + len(header) + len(body)] = header + body
        self._frames = self._walk()

    def hand_over(self, message: Found, origin: int, append_ms: int, row: int = 0) -> None:
        """Append a hand-over of a message, as it is in the log, to the end of the log."""
        record = bytearray(message.content)
        record[4] = Kind.HANDED
        at = HEAD_BYTES + layout.STORE_MS_AT
        record[at : at + 8] = append_ms.to_bytes(8, "big")
        control = encode_hand_over(message.due_ms // HOUR_MS, origins_of(np.array([origin]), row))
        self.append(control + bytes(record), 2, append_ms)

    def flip(self, position: int) -> None:
        """Change one byte of the log, without sealing its frame."""
        self._log[position] ^= 0x41
