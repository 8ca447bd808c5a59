"""Steps of tests in a simulated world: consume a topic, make a checkpoint, kill at a disk change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    BrokerView,
    DescribeBroker,
    MessageType,
    NewMessage,
    Receive,
    SendMessages,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk, Killed


def made(
    message_id: str, due_ms: int = 0, *, topic: str = "t", body: bytes = b"x", **more: Any
) -> NewMessage:
    """Build a message that is visible at once, or one with a due time."""
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(topic=topic, body=body, message_id=message_id, type=kind, due_ms=due_ms, **more)


def send(world, prefix: str, n: int, *, due_ms: int = 0, size: int = 1_000) -> None:
    """Send `n` messages of one size, with numbered ids, twenty in a request."""
    for first in range(0, n, 20):
        ids = [f"{prefix}{i}" for i in range(first, min(n, first + 20))]
        batch = [made(each, due_ms, body=bytes(size)) for each in ids]
        world.broker.ask(SendMessages("t", batch))


def consume(
    world, group: str = "g", *, topic: str = "t", tags: str = "*"
) -> Iterator[tuple[layout.Stored, dict[str, str]]]:
    """Yield every message that a group can get of a topic, with its properties, and acknowledge it."""
    command = Receive(group, topic, -1, tags, 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        for message in messages:
            stored = layout.decode(message.layout)
            decoded = properties.decode(stored.properties)
            assert int(decoded.get("TIMER_DELIVER_MS", "0")) <= stored.store_ms, "P1"
            yield stored, decoded
        handles = [message.receipt_handle for message in messages]
        assert world.broker.ask(Ack(group, topic, handles)).refused == [None] * len(handles)


def take_all(world, group: str = "g", *, topic: str = "t", tags: str = "*") -> list[str]:
    """Consume a topic as a group; return the message ids."""
    found = consume(world, group, topic=topic, tags=tags)
    return [decoded["UNIQ_KEY"] for _, decoded in found]


def refused(broker, command) -> HorologError:
    """Ask for something that must be refused; return the error."""
    with pytest.raises(HorologError) as caught:
        broker.ask(command)
    return caught.value


def refused_start(world) -> HorologError:
    """Crash and start again, which must be refused; return the error."""
    with pytest.raises(HorologError) as caught:
        world.reopen()
    return caught.value


def over_quota(effect: str) -> None:
    """Refuse a further segment of the log, as `disk.on_effect`: a quota that no free bytes show."""
    if effect.startswith("allocate shard-00/log"):
        raise HorologError(ErrorCode.DISK_FULL, f"{effect}: Disk quota exceeded")


def checkpoint(world) -> None:
    """Make a checkpoint now."""
    world.broker.request_checkpoint()
    world.broker.settle()


def view(world) -> BrokerView:
    """Return the operators' view of the broker."""
    return world.broker.ask(DescribeBroker())


def names(world, part: str) -> list[str]:
    """Return the files and directories in a part of the shard."""
    return world.disk.list(f"shard-00/{part}")


def adopted_files(world) -> list[str]:
    """Return the names of the adopted runs."""
    return [name for name in names(world, "runs") if name.startswith("adopted.")]


@dataclass
class Life:
    """Whether the work inside `killed_at` was killed."""

    killed: bool = False


@contextmanager
def killed_at(disk: FaultyDisk, nth: int, part: str = "") -> Iterator[Life]:
    """Kill the work inside before the nth change of the disk (from 0) that has `part` in its name."""
    life, left = Life(), nth

    def count(what: str) -> None:
        nonlocal left
        if part in what:
            left -= 1
            if left < 0:
                raise Killed(what)

    disk.on_effect = count
    try:
        yield life
    except Killed:
        life.killed = True
    finally:
        disk.on_effect = None


@contextmanager
def changes_of(disk: FaultyDisk) -> Iterator[list[str]]:
    """Yield a list of the disk changes that are made inside."""
    seen: list[str] = []
    disk.on_effect = seen.append
    try:
        yield seen
    finally:
        disk.on_effect = None
