"""What tests do with a world: take everything from a topic, make a checkpoint, kill it at a change of its disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from horolog.protocol.commands import (
    Ack,
    Receive,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.testing.disk import FaultyDisk, Killed


def take_all(world, group: str = "g") -> list[str]:
    got = []
    command = Receive(group, "t", -1, "*", 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        for message in messages:
            stored = layout.decode(message.layout)
            decoded = properties.decode(stored.properties)
            assert int(decoded.get("TIMER_DELIVER_MS", "0")) <= stored.store_ms, "P1"
            got.append(decoded["UNIQ_KEY"])
        world.broker.ask(Ack(group, "t", [message.receipt_handle for message in messages]))
    return got


def checkpoint(world) -> None:
    world.broker.want_checkpoint()
    world.broker.settle()


@dataclass
class Life:
    """Whether what was done `killed_at` a change came to it."""

    killed: bool = False


@contextmanager
def killed_at(disk: FaultyDisk, nth: int, part: str = "") -> Iterator[Life]:
    """End what is done inside before the nth change of the disk, counted from 0, that has `part` in its name."""
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
    """The changes of the disk that are made inside."""
    seen: list[str] = []
    disk.on_effect = seen.append
    try:
        yield seen
    finally:
        disk.on_effect = None
