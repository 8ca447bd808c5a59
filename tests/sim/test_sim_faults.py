"""That floods of polls and bit rot are drawn as they should be, and that their checkers can fail."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, MessageType, Receive, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import DIRECTORY, Answer
from horolog.testing.sim_checks import History, PromiseBroken
from horolog.testing.sim_polls import QUIET, Polls
from horolog.testing.sim_rot import Rot
from horolog.testing.simulation import Simulation

LOG = f"{DIRECTORY}/log/00000000000000000000.log"


@pytest.fixture
def polls(world) -> Polls:
    world.broker.ask(CreateTopic(QUIET, TopicType.MIXED, 2))
    made = Polls(1, world.broker)
    asked: list[Answer] = []
    while not any(isinstance(each.command, Receive) for each in asked):
        asked, _ = made.turn((), world.clock.wall_ms(), world.clock.monotonic_ms())
    world.broker.step(asked)
    return made


def test_polls_are_answered_when_their_time_is_over(world, polls) -> None:
    polls.looked(world.clock.monotonic_ms())
    world.clock.advance(20_001)
    world.broker.step([])
    polls.looked(world.clock.monotonic_ms())
    polls.finish()


def test_a_late_poll_is_noticed(world, polls) -> None:
    with pytest.raises(PromiseBroken, match="a poll is not answered"):
        polls.looked(world.clock.monotonic_ms() + 20_000)


def test_a_poll_that_waits_at_the_end_is_noticed(polls) -> None:
    with pytest.raises(PromiseBroken, match="are not answered"):
        polls.finish()


@pytest.fixture
def rot(world) -> Rot:
    """Two frames of messages, and a history that knows them."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    history = History()
    for frame in ("ab", "cd"):
        batch = [
            encode(topic="t", body=bytes(9), message_id=name, type=MessageType.NORMAL)
            for name in frame
        ]
        for name in frame:
            history.sent(name, "t", 0, 0)
        world.broker.ask(SendMessages("t", batch))
    world.broker.want_checkpoint()
    world.broker.settle()
    return Rot(1, world.broker, history, world.disk)


def test_rot_of_a_frame_excuses_its_messages(world, rot) -> None:
    content = rot._content(LOG)
    frames = [frame for frame in world.broker.watch.frames if frame.keys]
    assert [rot._hurt(LOG, "/log/", content, frame.base) for frame in frames] == [
        {"a", "b"},
        {"c", "d"},
    ]
    assert rot._hurt(LOG, "/log/", content, frames[0].end - 1) == {"a", "b"}


def test_rot_of_a_unit_excuses_its_message(world, rot) -> None:
    path = next(path for path in world.disk.names() if path.endswith(".cq"))
    assert rot._hurt(path, ".cq", rot._content(path), 41) == {"c"}


def test_what_a_start_would_take_for_a_torn_tail_does_not_rot(world, rot) -> None:
    assert rot._written(LOG, rot._content(LOG))[1] == world.broker.shard.named.position
    world.broker.ask(CreateTopic("u", TopicType.MIXED, 1))
    last = world.broker.watch.frames[-1]  # nothing says yet that it is durable
    assert rot._written(LOG, rot._content(LOG))[1] == last.base


def test_a_refused_start_is_excused_while_something_rots(world, rot) -> None:
    damaged = HorologError(ErrorCode.DAMAGED, "refused")
    assert not rot.restored(damaged)
    before = rot._content(LOG)
    while not any("/log/" in flip for flip in rot.flips):
        rot.turn()
    assert rot._content(LOG) != before
    assert not rot.restored(HorologError(ErrorCode.INTERNAL, "a mistake"))
    assert rot.restored(damaged)
    assert rot._content(LOG) == before


def test_a_garbled_body_is_noticed() -> None:
    History().intact("a", bytes(9))
    with pytest.raises(PromiseBroken, match="P2"):
        History().intact("a", b"\0\0\1")


def test_a_simulation_with_rot_flips_bits() -> None:
    flips = []
    for seed in range(3):  # some stories leave nothing that may rot
        found = Simulation(seed, rot=True)
        found.run()
        assert found.rot is not None
        flips += found.rot.flips
    assert flips
