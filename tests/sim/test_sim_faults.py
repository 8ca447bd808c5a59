"""That floods of polls and bit rot are drawn as they should be, and that their checkers can fail."""

from __future__ import annotations

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, MessageType, Receive, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.testing.disk import Killed
from horolog.testing.sim_backoff import BY_LIST, BY_POWER, LEASE_MS, receive_of
from horolog.testing.sim_broker import DIRECTORY, Answer
from horolog.testing.sim_checks import History, PromiseBroken
from horolog.testing.sim_clients import TOPICS
from horolog.testing.sim_moves import TOPIC as MOVED
from horolog.testing.sim_moves import Movers
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
    checkpoint(world)
    return Rot(1, world.broker, history, world.disk)


def test_rot_of_a_frame_excuses_its_messages(world, rot) -> None:
    content = rot._content(LOG)
    frames = [frame for frame in world.broker.watch.frames if frame.keys]
    assert [rot._ids_at(LOG, "/log/", content, frame.base) for frame in frames] == [
        {"a", "b"},
        {"c", "d"},
    ]
    assert rot._ids_at(LOG, "/log/", content, frames[0].end - 1) == {"a", "b"}


def test_rot_of_a_unit_excuses_its_message(world, rot) -> None:
    path = next(path for path in world.disk.names() if path.endswith(".cq"))
    assert rot._ids_at(path, ".cq", rot._content(path), 41) == {"c"}
    assert rot.keys == {key_hash("t", "c")}


def test_what_a_start_would_take_for_a_torn_tail_does_not_rot(world, rot) -> None:
    assert rot._written(LOG, rot._content(LOG))[1] == world.broker.shard.last_checkpoint.position
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


def test_a_refused_start_is_salvaged_on_a_copy() -> None:
    """Found by looking; any seed whose start is refused will do."""
    salvages = 0
    for seed in (4000, 4012, 4015, 4024):
        found = Simulation(seed, rot=True)
        found.run()
        assert found.rot is not None
        salvages += found.rot.salvages
    assert salvages


@pytest.fixture
def committed() -> Simulation:
    """The commit of a load and a lease of a group with pauses are answered, and nobody has heard of either."""
    sim = Simulation(1)
    sim.disk.on_effect = sim._effect
    sim.open()
    for topic in TOPICS:
        sim.broker.ask(CreateTopic(topic, TopicType.MIXED, 1))
    while (commit := sim.loads.next(TOPICS, sim.clock.wall_ms())) is None or not _messages(commit):
        pass
    while not sim.back_offs.certain:
        sim._ask(*sim.back_offs.turn(TOPICS, sim.clock.wall_ms(), sim.clock.monotonic_ms())[0])
        sim.broker.settle()
        sim._collect()
    sim._ask(commit, Answer(receive_of(BY_LIST)))
    sim.broker.settle()
    assert all(answer.done for answer in sim.answers)
    return sim


def _messages(commit: Answer) -> list[str]:
    return [message.message_id for message in commit.notes["load"].messages]


def test_a_lease_that_a_kill_kept_from_its_consumer_is_an_attempt(committed) -> None:
    committed._countdown = 0  # the removal of what the load has staged
    with pytest.raises(Killed):
        committed._collect()
    committed._crash()
    committed.clock.advance(LEASE_MS)
    committed._ask(Answer(receive_of(BY_LIST)))
    committed.broker.settle()
    (received,) = committed.answers
    assert {each.attempt for each in received.result.messages} == {2}
    committed._collect()


def test_a_load_that_was_killed_after_its_answer_is_still_promised(committed) -> None:
    names = _messages(committed.answers[0])
    committed._countdown = 0
    with pytest.raises(Killed):
        committed._collect()
    assert all(committed.history.messages[name]["stored"] for name in names)


def test_a_lease_that_lasts_longer_after_a_start_is_noticed(committed) -> None:
    committed._ask(Answer(receive_of(BY_POWER)))
    committed.broker.settle()
    committed._collect()
    rows = committed.back_offs._rows.values()
    assert rows
    for row in rows:
        (lease,) = row.current
        row.known = [lease._replace(duration_ms=LEASE_MS // 2)]  # the broker knows of twice as much
        row.current = list(row.known)
    with pytest.raises(PromiseBroken, match="does not come"):
        committed.back_offs.finish(committed._crash, lost_allowed=False)


@pytest.mark.parametrize("rots", [False, True])
def test_a_message_that_was_not_moved_is_noticed_unless_its_bytes_rot(world, rots) -> None:
    movers = Movers(1, world.broker)
    made = movers._message(world.clock.wall_ms())
    world.broker.ask(CreateTopic(MOVED, TopicType.MIXED, 1))
    world.broker.ask(SendMessages(MOVED, [made]))
    movers._shifts, movers._must = 1, {made.message_id: {0}}
    world.clock.advance(made.due_ms - world.clock.wall_ms())
    world.broker.settle()
    if rots:
        movers.finish(lost_allowed=True, rotten={key_hash(MOVED, made.message_id)})
        return
    with pytest.raises(PromiseBroken, match="was not moved"):
        movers.finish(lost_allowed=True, rotten={key_hash(MOVED, "M1")})
