"""Transactions on a whole shard: half messages, ends, checks, and what crashes leave of them."""

from __future__ import annotations

import pytest
from worlds import checkpoint, killed_at, take_all

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS, STORED_PROPERTIES_MAX, TRANSACTION_OPEN_MS
from horolog.log.half_records import HalfOutcome
from horolog.protocol.commands import (
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    FindMessages,
    MessageType,
    ReadQueue,
    Recall,
    RecallByKey,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.names import GIVEN_UP_TOPIC
from horolog.protocol.transaction_commands import (
    CheckTransactions,
    EndTransaction,
    LookForProducers,
    Resolution,
    SendHalf,
)
from horolog.testing.sim_levels import Level, leveled

COMMIT, ROLLBACK, UNKNOWN = Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world.broker


def half(message_id: str, due_ms: int = 0, patience_s: int | None = None, **more):
    system = {properties.PRODUCER_GROUP: "pg", properties.TRANSACTION: "true"}
    if patience_s is not None:
        system[properties.CHECK_IMMUNITY] = str(patience_s)
    return encode(
        topic="t",
        body=more.pop("body", b"x"),
        message_id=message_id,
        type=MessageType.TRANSACTION,
        due_ms=due_ms,
        system_properties=properties.encode(system),
        **more,
    )


def begin(broker, *messages) -> list[int]:
    return broker.ask(SendHalf("t", messages)).origins


def due_checks(world, after_ms: int) -> list[int]:
    """Positions of the transactions whose checks are told of, when so much time has passed."""
    world.broker.checks_due.clear()
    world.clock.advance(after_ms)
    world.broker.settle()
    return [due.position for due in world.broker.checks_due]


def test_a_half_message_is_seen_by_nobody_until_it_is_committed(world, broker) -> None:
    (position,) = begin(broker, half("m", keys=["k"]))
    assert take_all(world) == []
    assert broker.ask(FindMessages("t", message_id="m")) == []
    broker.ask(EndTransaction(position, COMMIT))
    assert take_all(world) == ["m"]
    assert len(broker.ask(FindMessages("t", message_id="m"))) == 1
    assert len(broker.ask(FindMessages("t", key="k"))) == 1


def test_the_committed_message_names_its_half_message(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    broker.ask(EndTransaction(position, COMMIT))
    (record,) = broker.ask(ReadQueue("t", 0, 0, 1, 1 << 20)).records
    stored = layout.decode(record[32:])
    assert stored.prepared_offset == position
    assert stored.sys_flag & layout.TRANSACTION_BITS == layout.TRANSACTION_COMMITTED
    assert properties.decode(stored.properties)[properties.TRANSACTION] == "true"


def test_what_is_rolled_back_never_comes(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    broker.ask(EndTransaction(position, ROLLBACK))
    world.reopen(power_cut=True)
    assert take_all(world) == []
    assert not broker.shard.halves.open


def test_an_end_may_be_sent_again_but_not_changed(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    broker.ask(EndTransaction(position, UNKNOWN))
    broker.ask(EndTransaction(position, COMMIT))
    for reopened in (False, True):
        if reopened:
            world.reopen()
        broker.ask(EndTransaction(position, COMMIT))
        with pytest.raises(HorologError, match="ended already: it was committed") as refused:
            broker.ask(EndTransaction(position, ROLLBACK))
        assert refused.value.code is ErrorCode.INVALID_TRANSACTION_ID
    assert take_all(world) == ["m"]


@pytest.mark.parametrize(
    "wrong",
    [{"group": "other"}, {"half_offset": 7}, {"topic": "t", "message_id": "n"}],
    ids=["group", "offset", "message"],
)
def test_nobody_ends_a_transaction_that_is_not_his(broker, wrong) -> None:
    (position,) = begin(broker, half("m"))
    with pytest.raises(HorologError) as refused:
        broker.ask(EndTransaction(position, COMMIT, **wrong))
    assert refused.value.code is ErrorCode.INVALID_TRANSACTION_ID
    with pytest.raises(HorologError):
        broker.ask(EndTransaction(position + 1, COMMIT))
    assert position in broker.shard.halves.open


def test_a_half_message_that_is_sent_again_is_one_transaction(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    assert begin(broker, half("m")) == [position]
    world.reopen()
    assert begin(broker, half("m"), half("m")) == [position, position]
    broker.ask(EndTransaction(position, COMMIT))
    assert begin(broker, half("m")) == [position]
    assert take_all(world) == ["m"]


def test_a_half_message_of_a_topic_that_was_made_again_is_another_one(world, broker) -> None:
    for _ in range(2):
        (position,) = begin(broker, half("m"))
        broker.ask(EndTransaction(position, COMMIT))
        assert take_all(world) == ["m"]
        broker.ask(DeleteTopic("t"))
        broker.ask(CreateTopic("t", TopicType.MIXED, 1))


def test_half_messages_of_one_id_and_different_bodies_are_two_transactions(world, broker) -> None:
    """Of producers in containers of one address and process id."""
    (one,) = begin(broker, half("m"))
    (other,) = begin(broker, half("m", body=b"of another"))
    assert one != other
    assert begin(broker, half("m", body=b"of another")) == [other]
    third, again, fourth = begin(
        broker, half("m", body=b"3"), half("m", body=b"3"), half("m", body=b"4")
    )
    assert third == again
    assert len({one, other, third, fourth}) == 4
    for position in (one, other, third, fourth):
        broker.ask(EndTransaction(position, COMMIT))
    assert take_all(world) == ["m"] * 4


def test_the_newest_transaction_of_an_id_is_the_newest_after_a_start(world, broker) -> None:
    (first,) = begin(broker, half("m", body=b"one"))
    (second,) = begin(broker, half("m", body=b"two"))
    broker.ask(EndTransaction(second, COMMIT))
    checkpoint(world)
    world.reopen()
    assert begin(broker, half("m", body=b"two")) == [second]
    broker.ask(EndTransaction(first, ROLLBACK))
    checkpoint(world)
    world.reopen()
    assert begin(broker, half("m", body=b"two")) == [second]
    assert not broker.shard.halves.open


def test_a_message_that_was_due_before_its_commit_comes_at_once(world, broker) -> None:
    (position,) = begin(broker, half("m", world.clock.wall_ms() + 5_000))
    world.clock.advance(60_000)
    broker.settle()
    assert take_all(world) == []
    broker.ask(EndTransaction(position, COMMIT))
    assert take_all(world) == ["m"]


def test_a_level_counts_from_the_commit_whatever_the_clock_was_before(world, broker) -> None:
    (position,) = begin(broker, leveled(half("m"), Level(1, 5_000, 0)))
    world.clock.step_wall(HOUR_MS)
    broker.ask(EndTransaction(*begin(broker, half("ahead")), COMMIT))
    world.clock.step_wall(-HOUR_MS)
    assert take_all(world) == ["ahead"]
    broker.ask(EndTransaction(position, COMMIT))
    world.clock.advance(4_999)
    broker.settle()
    assert take_all(world) == []
    world.clock.advance(1)
    broker.settle()
    assert take_all(world) == ["m"]


def test_a_message_that_is_committed_before_it_is_due_is_scheduled(world, broker) -> None:
    due_ms = world.clock.wall_ms() + 5_000
    (position,) = begin(broker, half("m", due_ms, keys=["k"]))
    broker.ask(EndTransaction(position, COMMIT))
    assert broker.shard.delay.waiting == 1
    world.clock.advance(4_999)
    broker.settle()
    assert take_all(world) == []
    world.clock.advance(1)
    broker.settle()
    assert take_all(world) == ["m"]


def test_a_recall_of_an_open_one_says_so_and_of_a_committed_one_cancels_it(world, broker) -> None:
    due_ms = world.clock.wall_ms() + 50_000
    (position,) = begin(broker, half("m", due_ms, keys=["k"]))
    recalled = broker.ask(Recall("t", "m", due_ms))
    assert recalled.status is RecallStatus.NOT_FOUND
    assert "a transaction that is open" in recalled.detail
    broker.ask(EndTransaction(position, COMMIT))
    assert broker.ask(RecallByKey("t", "k"))[0].status is RecallStatus.CANCELLED


def test_types_of_topics(world, broker) -> None:
    broker.ask(CreateTopic("normal", TopicType.NORMAL, 1))
    broker.ask(CreateTopic("trans", TopicType.TRANSACTION, 1))
    refused = broker.ask(SendHalf("normal", [half("m")])).refused[0]
    assert refused.code is ErrorCode.TYPE_CONFLICT
    plain = encode(topic="trans", body=b"x", message_id="n")
    refused = broker.ask(SendMessages("trans", [plain])).refused[0]
    assert refused.code is ErrorCode.TYPE_CONFLICT


def test_a_topic_with_open_transactions_stays(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    assert broker.ask(DescribeTopic("t")).open_transactions == 1
    with pytest.raises(HorologError, match="transactions of it are open"):
        broker.ask(DeleteTopic("t"))
    broker.ask(EndTransaction(position, ROLLBACK))
    assert broker.ask(DescribeTopic("t")).open_transactions == 0
    broker.ask(DeleteTopic("t"))


# --- checks ---------------------------------------------------------------------------------------


def test_producers_are_asked_with_growing_pauses_and_it_is_counted(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    assert due_checks(world, 5_999) == []
    pause_ms = 1
    for checks in range(1, 16):
        assert due_checks(world, pause_ms) == [position], checks
        (check,) = broker.ask(CheckTransactions((position,)))
        assert (check.checks, check.topic, check.group) == (checks, "t", "pg")
        assert layout.decode(check.layout).body == b"x"
        if checks == 3:
            world.reopen()
        pause_ms = 30_000 if checks <= 5 else 60_000
        assert due_checks(world, pause_ms - 1) == [], checks
        pause_ms = 1
    assert due_checks(world, 1) == []
    assert "after 15 checks" in broker.given_up[0]
    assert take_all(world) == []
    (found,) = broker.ask(Pull(GIVEN_UP_TOPIC, 0, 0, 32, 1 << 20, "*", 0)).layouts
    stored = layout.decode(bytes(found))
    known = properties.decode(stored.properties)
    assert (stored.topic, known["REAL_TOPIC"], known["UNIQ_KEY"]) == (GIVEN_UP_TOPIC, "t", "m")
    with pytest.raises(HorologError, match="given up"):
        broker.ask(EndTransaction(position, COMMIT))
    with pytest.raises(HorologError, match="nobody may send to it"):
        broker.ask(SendMessages(GIVEN_UP_TOPIC, [encode(topic="t", body=b"x", message_id="n")]))


def test_a_producer_may_wish_for_patience(world, broker) -> None:
    (position,) = begin(broker, half("m", patience_s=60))
    assert due_checks(world, 59_999) == []
    assert due_checks(world, 1) == [position]


def test_a_check_waits_for_a_producer(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    assert due_checks(world, 6_000) == [position]
    assert due_checks(world, 20_000) == []
    broker.ask(LookForProducers(frozenset({"other"})))
    assert broker.checks_due == []
    broker.ask(LookForProducers(frozenset({"pg"})))
    assert [due.position for due in broker.checks_due] == [position]
    assert broker.shard.halves.open[position].checks == 0, "nobody was asked"
    world.reopen()
    assert due_checks(world, 0) == [position]


def test_checks_of_large_messages_take_some_turns_and_no_minutes(make_world) -> None:
    world = make_world(segment_bytes=16 << 20)
    broker = world.broker
    broker.open()
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    body = b"x" * (broker.shard.settings.turn_bytes // 3)
    positions = [begin(broker, half(f"m{i}", body=body))[0] for i in range(7)]
    assert due_checks(world, 6_000) == positions
    asked, due, rounds = [], list(positions), 0
    while due:
        broker.checks_due.clear()
        found = broker.ask(CheckTransactions(tuple(due)))
        asked += [check.position for check in found]
        broker.settle()
        due = [each.position for each in broker.checks_due]
        rounds += 1
    assert asked == positions, "asked once each, at the same time"
    assert 1 < rounds < len(positions)
    assert due_checks(world, 29_999) == []
    assert due_checks(world, 1) == positions


def test_nothing_is_open_for_ever(world, broker) -> None:
    (position,) = begin(broker, half("m"))
    world.clock.advance(TRANSACTION_OPEN_MS)
    broker.settle()
    assert position not in broker.shard.halves.open
    assert len(broker.given_up) == 1
    world.reopen()
    assert not broker.shard.halves.open


def test_one_is_given_up_whose_properties_have_no_room_for_more(world, broker) -> None:
    full = {properties.TRANSACTION: "true", "filler": "x" * (STORED_PROPERTIES_MAX - 80)}
    made = encode(topic="t", body=b"x", message_id="full", type=MessageType.TRANSACTION,
                  system_properties=properties.encode(full))  # fmt: skip
    begin(broker, made)
    world.clock.advance(TRANSACTION_OPEN_MS)
    broker.settle()
    assert not broker.shard.halves.open
    (found,) = broker.ask(Pull(GIVEN_UP_TOPIC, 0, 0, 32, 1 << 20, "*", 0)).layouts
    known = properties.decode(layout.decode(bytes(found)).properties)
    assert (known["UNIQ_KEY"], known["filler"]) == ("full", full["filler"])


def test_the_last_look_is_when_its_time_is_over(world, broker) -> None:
    begin(broker, half("m"))
    world.clock.advance(TRANSACTION_OPEN_MS - 1_000)
    broker.settle()  # a producer is looked for
    assert broker.shard.halves.open
    world.clock.advance(1_000)
    broker.settle()
    assert not broker.shard.halves.open


def test_transactions_are_counted_by_outcome_and_repeats_are_not(world, broker) -> None:
    counters = broker.shard.counters
    positions = begin(broker, *(half(f"m{i}") for i in range(6)))
    assert begin(broker, half("m0")) == positions[:1]
    for position in (*positions[:3], positions[0]):
        broker.ask(EndTransaction(position, COMMIT))
    for position in (*positions[3:5], positions[3]):
        broker.ask(EndTransaction(position, ROLLBACK))
    broker.ask(EndTransaction(positions[5], UNKNOWN))
    assert due_checks(world, 6_000) == positions[5:]
    broker.ask(CheckTransactions(tuple(positions)))
    world.clock.advance(TRANSACTION_OPEN_MS)
    broker.settle()
    assert (counters.halves_begun, counters.half_checks) == (6, 1)
    assert counters.halves_ended == {
        HalfOutcome.COMMITTED: 3,
        HalfOutcome.ROLLED_BACK: 2,
        HalfOutcome.GIVEN_UP: 1,
        HalfOutcome.LOST: 0,
    }


# --- crashes, retention, space --------------------------------------------------------------------


def test_no_crash_loses_or_doubles_a_commit(make_world) -> None:
    def story(world, *, kill: int | None) -> bool:
        world.broker.open()
        world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
        positions = begin(world.broker, half("a"), half("b"), half("c"))
        with killed_at(world.disk, kill if kill is not None else 1 << 30) as life:
            world.broker.ask(EndTransaction(positions[0], COMMIT))
            world.broker.ask(EndTransaction(positions[1], ROLLBACK))
            checkpoint(world)
        world.reopen(power_cut=True)
        for at, resolution in zip(positions, (COMMIT, ROLLBACK, COMMIT), strict=True):
            world.broker.ask(EndTransaction(at, resolution))
        assert take_all(world) == ["a", "c"]
        return life.killed

    kills = 0
    while story(make_world(), kill=kills):
        kills += 1
    assert kills > 5, kills


def test_an_open_transaction_keeps_the_log_back(make_world) -> None:
    world = make_world(segment_bytes=4_096)
    world.broker.settings = world.broker.settings._replace(retention_bytes=8_192, dedup_ms=0)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    (position,) = begin(world.broker, half("m", body=b"kept"))

    def fill(name: str) -> None:
        for i in range(40):
            plain = encode(topic="t", body=b"x" * 500, message_id=f"{name}{i}")
            world.broker.ask(SendMessages("t", [plain]))
        for _ in range(3):
            world.broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id=name)]))
            checkpoint(world)

    fill("a")
    assert world.broker.shard.log.start <= position
    world.reopen(power_cut=True)
    world.broker.ask(EndTransaction(position, COMMIT))
    assert world.broker.ask(FindMessages("t", message_id="m"))
    fill("b")
    assert world.broker.shard.log.start > position


def test_a_full_disk_takes_no_half_message_and_every_end(world, broker) -> None:
    positions = begin(broker, *(half(f"m{i}", body=b"y" * 400) for i in range(4)))
    world.disk.capacity_bytes = world.disk.used_bytes() + 100
    world.clock.advance(2_000)
    with pytest.raises(HorologError) as refused:
        begin(broker, half("n", body=b"y" * 4_000))
    assert refused.value.code is ErrorCode.DISK_FULL
    for position in positions:
        broker.ask(EndTransaction(position, COMMIT))
    assert take_all(world) == ["m0", "m1", "m2", "m3"]


def test_many_hopeless_ones_are_given_up_turn_by_turn(world, broker) -> None:
    begin(broker, *(half(f"m{i}", body=b"y" * 3_000) for i in range(100)))
    world.clock.advance(TRANSACTION_OPEN_MS)
    broker.settle(1_000)
    assert not broker.shard.halves.open
    assert len(broker.given_up) == 100
