"""What tests do with a world: take everything from a topic, and make a checkpoint."""

from __future__ import annotations

from horolog.protocol.commands import (
    Ack,
    Receive,
)
from horolog.protocol.rocketmq import layout, properties


def take_all(world, group: str = "g") -> list[str]:
    got = []
    command = Receive(group, "t", -1, "*", 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        for message in messages:
            stored = layout.decode(message.layout)
            due_ms = int(properties.decode(stored.properties)["TIMER_DELIVER_MS"])
            assert due_ms <= stored.store_ms, "P1"
            got.append(properties.decode(stored.properties)["UNIQ_KEY"])
        world.broker.ask(Ack(group, "t", [message.receipt_handle for message in messages]))
    return got


def checkpoint(world) -> None:
    world.broker.want_checkpoint()
    world.broker.settle()
