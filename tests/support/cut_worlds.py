"""Worlds whose log begins after 0: the log of old messages is gone, that of young ones is kept."""

from __future__ import annotations

from worlds import checkpoint, send, view

from horolog.delay.far.compaction import FarSettings
from horolog.protocol.commands import CreateTopic, Recall, TopicType

HOUR = 3_600_000
SEGMENT = 65_536


def cut_world(make_world, *, buffer_bytes: int = 65_536):
    """Build a world with old messages, whose log is gone, and young ones, whose log is kept.

    Messages of both kinds are due in two near hours and in the far future.
    """
    world = make_world()
    world.broker.settings = world.broker.settings._replace(
        retention_bytes=2 * SEGMENT, dedup_ms=0, far=FarSettings(buffer_bytes=buffer_bytes)
    )
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    world.due = now + 5 * HOUR
    world.later = now + 10 * HOUR
    world.far = now + 50 * HOUR
    for name in ("due", "later", "far"):
        send(world, f"old-{name}", 10, due_ms=getattr(world, name))
    for i in range(5):
        send(world, f"filler{i}-", 60)
        checkpoint(world)
    for name in ("due", "later", "far"):
        send(world, f"young-{name}", 5, due_ms=getattr(world, name))
    world.broker.ask(Recall("t", "young-due0", world.due))
    for _ in range(2):
        send(world, "tail", 1)
        checkpoint(world)
    assert view(world).log_start > SEGMENT
    assert view(world).pending == 44
    return world


def hour_dir(world, due_ms: int) -> str:
    return f"shard-00/hours/{due_ms // HOUR:010d}"


def states_of_hour(world, due_ms: int) -> list[str]:
    """Return the paths of the state files of a due time's hour, the oldest version first."""
    place = hour_dir(world, due_ms)
    return [f"{place}/{name}" for name in world.disk.list(place) if name.startswith("state.")]


def damage_state(world, due_ms: int, versions: slice = slice(None)) -> None:
    """Flip two bits in each state file, because the checksum corrects one."""
    for path in states_of_hour(world, due_ms)[versions]:
        world.disk.flip(path, 100, 1)
        world.disk.flip(path, 200, 1)
