"""Steps of an offload on a simulated broker, for the tests of offloads and promotion."""

from __future__ import annotations

from horolog.delay.far.compaction import FarSettings
from horolog.limits import DAY_MS, HOUR_MS, MAX_DELAY_MS
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.tier_commands import (
    BeginOffload,
    DescribeOffload,
    FreezeOffload,
    OffloadView,
)
from horolog.testing.sim_lake_rows import frozen_messages

SMALL = FarSettings(buffer_bytes=4_096, runs_max=2, part_runs_max=1)
DELAYS = [26 * HOUR_MS, 3 * DAY_MS, 3 * DAY_MS + 1, 33 * DAY_MS, 90 * DAY_MS, 400 * DAY_MS]


def open_world(make_world, far: FarSettings = SMALL):
    world = make_world(segment_bytes=262_144)
    world.broker.settings = world.broker.settings._replace(far=far, retention_ms=MAX_DELAY_MS)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.ask(CreateTopic("u", TopicType.MIXED, 1))
    return world


def hour_after(world, ms: int) -> int:
    return (world.clock.wall_ms() + ms) // HOUR_MS * HOUR_MS + HOUR_MS


def begin(world, from_ms: int, app: str = "a") -> OffloadView:
    view = world.broker.ask(BeginOffload(app, from_ms))
    world.broker.ask(FreezeOffload(view.offload_id))
    return world.broker.ask(DescribeOffload(view.offload_id))


def exported(world, view: OffloadView) -> list[tuple[int, int, int, int]]:
    """Return the rows that a job would write: (due ms, origin, row, key)."""
    found = frozen_messages(world.broker.place, view)
    return [(each.due_ms, each.position, each.row, each.key) for each in found]


def pending(world) -> int:
    return world.broker.ask(DescribeBroker()).pending


def schedule(world, count: int, start: int = 0) -> dict[str, tuple[str, int]]:
    """Schedule messages in two topics; return id → (topic, due ms)."""
    now = world.clock.wall_ms()
    made: dict[str, tuple[str, int]] = {}
    for i in range(start, start + count):
        made[f"m{i}"] = ("tu"[i % 2], now + DELAYS[i % len(DELAYS)] + i)
    for topic in "tu":
        batch = [
            encode(topic=topic, body=b"x" * 40, message_id=name, type=MessageType.DELAY, due_ms=due)
            for name, (of, due) in made.items()
            if of == topic
        ]
        assert not world.broker.ask(SendMessages(topic, batch)).refused
    return made


def expected_counts(world) -> dict[int, int]:
    return dict(world.broker.ask(CountPending()).rows)
