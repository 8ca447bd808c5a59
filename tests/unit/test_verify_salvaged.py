"""`horolog verify` of a log of which a salvage has given up a part: nothing is too many or missing in its hours."""

from __future__ import annotations

import pytest
from worlds import checkpoint, send, view

from horolog.broker.life.salvage import salvage, survey
from horolog.limits import HOUR_MS
from horolog.log.frame import HEADER_BYTES
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.storage.api import replace_file
from horolog.storage.meta import FORMAT, Meta, encode_meta
from horolog.verify.directory import verify_directory

SHARD = "shard-00"


def give_up(world, position: int) -> None:
    """Damage the frame at a log position, salvage, and start."""
    path = f"{SHARD}/log/{0:020d}.log"
    world.disk.flip(path, position + HEADER_BYTES + 20, 1, 4)
    found = survey(world.disk, SHARD, world.broker.meta)
    assert [each.first for each in found.lost] == [position]
    salvage(world.disk, SHARD, world.broker.meta, found)
    world.reopen()
    world.broker.settle()
    checkpoint(world)


@pytest.mark.parametrize("below", [False, True], ids=["after the checkpoint", "below it"])
@pytest.mark.parametrize("lost", ["pending", "handed over", "a hand-over"])
def test_hours_are_compared_without_what_was_given_up(world, lost: str, below: bool) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = world.clock.wall_ms() + (HOUR_MS if lost == "pending" else 1_000)
    send(world, "before", 2, due_ms=due_ms)
    position = view(world).log_end
    send(world, "lost", 2, due_ms=due_ms)
    send(world, "after", 2, due_ms=due_ms)
    world.clock.advance(200)
    world.broker.settle()
    if lost != "pending":
        if lost == "a hand-over":
            position = view(world).log_end
        world.clock.advance(1_000)
        world.broker.settle()
    send(world, "last", 1)
    for _ in range(2 if below else 0):
        checkpoint(world)
        send(world, "more", 1)
    world.clock.advance(200)
    world.broker.settle()
    give_up(world, position)
    meta = world.broker.meta
    content = encode_meta(Meta(FORMAT, meta.log_id, 1, "simulated", meta.segment_bytes))
    replace_file(world.disk, "", "meta", content)
    found = verify_directory(world.disk).findings
    assert [f.file for f in found.kept] == [f"{SHARD}/salvaged/{position:020d}.bytes"], found.kept
    assert any("were given up by a salvage" in note for note in found.notes)
