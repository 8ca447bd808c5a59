"""Sends by delay level in a simulation: due from when they are stored, counted by lane."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from horolog.broker.shard import Shard
from horolog.protocol.commands import DescribeLanes, LaneView, NewMessage
from horolog.protocol.send_commands import HEAD_AS_SENT
from horolog.testing.sim_broker import SimBroker
from horolog.testing.sim_checks import PromiseBroken

DELAYS_MS = (1_000, 5_000, 60_000, 7_200_000)
_SHARE = 0.15  # of all messages


class Level(NamedTuple):
    """A drawn level, and the due time that it gives to a message that is stored now."""

    number: int
    delay_ms: int
    due_ms: int


class Levels:
    """Draws levels by random numbers of its own, and checks the lane counts at the end."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def draw(self, shard: Shard, wall_ms: int) -> Level | None:
        """Return a level for the next message; mostly None."""
        if self._random.random() >= _SHARE:
            return None
        number = self._random.randint(1, len(DELAYS_MS))
        delay_ms = DELAYS_MS[number - 1]
        return Level(number, delay_ms, shard.level_from_ms(wall_ms) + delay_ms)

    @staticmethod
    def check(broker: SimBroker) -> None:
        """Check that, with nothing pending, every lane has done all messages of its level."""
        lanes: Sequence[LaneView] = broker.ask(DescribeLanes())
        if left := [lane for lane in lanes if lane.scheduled != lane.done]:
            raise PromiseBroken(f"P10: nothing waits, but of lanes {left} something does")


def leveled(message: NewMessage, level: Level) -> NewMessage:
    """Return a copy of the message that is due by a level instead of at a time."""
    size, kind, flags, _, _, _, code, key = HEAD_AS_SENT.unpack_from(message.record)
    head = HEAD_AS_SENT.pack(size, kind, flags, level.number, -level.delay_ms, 0, code, key)
    return message._replace(
        record=head + message.record[HEAD_AS_SENT.size :], due_ms=-level.delay_ms
    )
