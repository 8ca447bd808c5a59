"""A data directory with a thousand messages in frames of their own, and ways to damage its log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

SEGMENT = 1 << 18
MESSAGES = 1_000
START_MS = 1_772_964_000_000
PAGE = 4_096
KINDS = ("body", "header", "page")


async def open_directory(data_dir: Path) -> Engine:
    """Open an engine on the simulated clock."""
    return await open_engine(
        data_dir, clock="simulated", flush="sync", segment_bytes=SEGMENT, start_ms=START_MS
    )


async def fill_directory(data_dir: Path) -> None:
    """Make a directory with topic `t` of two queues and tag A; every fourth message is scheduled and handed over."""
    engine = await open_directory(data_dir)
    await engine.submit(CreateTopic("t", TopicType.MIXED, 2))
    for number in range(MESSAGES):
        due = engine.clock.wall_ms() + 1_000 if number % 4 == 3 else 0
        kind = MessageType.DELAY if due else MessageType.NORMAL
        body = b"m%d " % number * 20
        message = encode(
            topic="t", body=body, message_id=f"m{number}", tag="A", type=kind, due_ms=due
        )
        await engine.submit(SendMessages("t", [message]))
    await engine.advance(5_000)
    await engine.stop()


class DamagedFrames(NamedTuple):
    """Damaged frames, as they were before."""

    frames: list[FrameHeader]

    @property
    def first(self) -> int:
        """Log position of the first damaged frame."""
        return self.frames[0].base

    @property
    def bytes(self) -> int:
        """Size of all damaged frames."""
        return self.frames[-1].end - self.first

    @property
    def messages(self) -> int:
        """Count of messages that were sent in the damaged frames."""
        return sum(is_sent(frame) for frame in self.frames)


def is_sent(frame: FrameHeader) -> bool:
    """Return whether a frame holds one of the messages."""
    return frame.count == 1 and frame.length > 150


def frames_of(data_dir: Path) -> list[tuple[Path, FrameHeader]]:
    """Return all frames of an undamaged log."""
    found = []
    for path in sorted((data_dir / "shard-00" / "log").glob("*.log")):
        content, at = path.read_bytes(), 0
        while (header := parse(content, at)) is not None:
            found.append((path, header))
            at += HEADER_BYTES + header.length
    return found


def damage_log(data_dir: Path, what: str, share: float) -> DamagedFrames:
    """Damage the log at the frame of one of the messages that were sent; return what it touches.

    what   "body" or "header": two bits of a byte in the frame's own; "page": its first page
    share  of the messages that were sent before that one, from 0 to below 1
    """
    frames = frames_of(data_dir)
    sent = [each for each in frames if is_sent(each[1])]
    path, header = sent[int(len(sent) * share)]
    content = bytearray(path.read_bytes())
    at = header.base % SEGMENT
    first, size = {
        "body": (at + HEADER_BYTES + header.length // 2, 1),
        "header": (at + 30, 1),
        "page": (at - at % PAGE, PAGE),
    }[what]
    stop = first + size
    if what == "page":
        content[first:stop] = bytes(PAGE)
    else:
        content[first] ^= 5
    path.write_bytes(content)
    base = header.base - at
    touched = [
        each
        for where, each in frames
        if where == path and each.base < base + stop and each.end > base + first
    ]
    return DamagedFrames(touched)
