"""What is too late is handed over, dropped or a dead letter, as its topic or the message itself says; decided once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode, HorologError
from horolog.limits import MIB, STORED_PROPERTIES_MAX
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    FindMessages,
    MessageState,
    MessageType,
    NewRecords,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    Sent,
    TopicSettings,
    TopicType,
)
from horolog.protocol.dead_letter_commands import CountDeadLetters, Redrive
from horolog.protocol.history_commands import ShowMessage
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.late_policy import Late, LatePolicy, parse_policy
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.transaction_commands import EndTransaction, Resolution, SendHalf, as_half
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.testing.sim_broker import properties_of
from horolog.verify.directory import verify_directory

MINUTE_MS = 60_000
DROP = TopicSettings(late="drop", late_after_ms=5 * MINUTE_MS)
DEAD = TopicSettings(late="dead-letter", late_after_ms=5 * MINUTE_MS)


def make(world, settings: TopicSettings | None = None) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 2, settings))


def send(world, message_id: str, in_ms: int, **user: str) -> Sent:
    made = encode(topic="t", body=b"x", message_id=message_id, type=MessageType.DELAY,
                  due_ms=world.clock.wall_ms() + in_ms, user_properties=user)  # fmt: skip
    sent: Sent = world.broker.ask(SendMessages("t", [made]))
    return sent


def down(world, for_ms: int) -> None:
    """The broker is not there for some time."""
    world.disk.crash(power_cut=True)
    world.clock.advance(for_ms)
    world.broker.open()
    world.broker.settle()


def bodies(world, topic: str = "t") -> list[str]:
    if topic not in world.broker.shard.topics.by_name:
        return []
    found = []
    command = Receive("g", topic, -1, "*", 32, 600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        found += [properties_of(each) for each in messages]
    return sorted(each["UNIQ_KEY"] for each in found)


def state(world, message_id: str) -> list[MessageState]:
    return [each.state for each in world.broker.ask(FindMessages("t", message_id))]


def test_one_without_room_for_the_properties_of_a_dead_letter_is_handed_over(make_world) -> None:
    """And no other one of its turn."""
    world = make_world(segment_bytes=4 * MIB)
    world.broker.settings = world.broker.settings._replace(turn_bytes=MIB)
    world.broker.open()
    make(world, DEAD)
    send(world, "a", MINUTE_MS)
    full = properties.encode({"filler": "x" * (STORED_PROPERTIES_MAX - 80)})
    due_ms = world.clock.wall_ms() + MINUTE_MS
    made = encode(topic="t", body=b"x", message_id="full", type=MessageType.DELAY, due_ms=due_ms,
                  system_properties=full)  # fmt: skip
    world.broker.ask(SendMessages("t", [made]))
    send(world, "b", MINUTE_MS)
    down(world, 10 * MINUTE_MS)
    assert (bodies(world), bodies(world, "%LATE%t")) == (["full"], ["a", "b"])


def test_without_a_policy_everything_is_handed_over(world) -> None:
    make(world)
    send(world, "a", MINUTE_MS)
    down(world, 600 * MINUTE_MS)
    assert bodies(world) == ["a"]


@pytest.mark.parametrize("settings", [DROP, DEAD], ids=["drop", "dead-letter"])
def test_what_is_later_than_its_topic_allows_is_not_handed_over(world, settings) -> None:
    make(world, settings)
    send(world, "late", MINUTE_MS)
    send(world, "on-the-edge", 2 * MINUTE_MS)
    send(world, "in-time", 3 * MINUTE_MS)
    send(world, "later", 60 * MINUTE_MS)
    down(world, 7 * MINUTE_MS)
    expected = ["late"] if settings is DEAD else []
    for _ in range(3):
        assert state(world, "late") == [MessageState.EXPIRED]
        assert state(world, "in-time") == [MessageState.DELIVERED]
        view = world.broker.ask(DescribeBroker())
        assert (view.expired, view.handed_over, view.pending) == (1, 2, 1)
        assert world.broker.ask(DescribeTopic("t")).pending == 1
        checkpoint(world)
        world.reopen(power_cut=True)
    assert bodies(world) == ["in-time", "on-the-edge"]
    assert bodies(world, "%LATE%t") == expected


def test_it_is_decided_once_and_settings_changed_later_change_nothing(world) -> None:
    make(world, DROP)
    send(world, "a", MINUTE_MS)
    down(world, 10 * MINUTE_MS)
    world.broker.ask(ChangeTopic("t", settings=TopicSettings()))
    world.reopen()
    world.broker.settle()
    assert (bodies(world), state(world, "a")) == ([], [MessageState.EXPIRED])


def test_a_message_says_so_for_itself(world) -> None:
    make(world, DROP)
    send(world, "patient", MINUTE_MS, HOROLOG_LATE="hand-over")
    send(world, "plain", MINUTE_MS)
    send(world, "strict", 9 * MINUTE_MS, HOROLOG_LATE="dead-letter 30s")
    send(world, "loose", 9 * MINUTE_MS, HOROLOG_LATE="drop 2m", colour="HOROLOG_LATE")
    down(world, 10 * MINUTE_MS)
    assert bodies(world) == ["loose", "patient"]
    assert bodies(world, "%LATE%t") == ["strict"]


def test_words_of_the_property_in_a_body_mean_nothing(world) -> None:
    make(world)
    made = encode(topic="t", body=b"HOROLOG_LATE\x01drop 1s\x02" * 9, message_id="a",
                  type=MessageType.DELAY, due_ms=world.clock.wall_ms() + MINUTE_MS)  # fmt: skip
    world.broker.ask(SendMessages("t", [made]))
    down(world, 10 * MINUTE_MS)
    assert bodies(world) == ["a"]


@pytest.mark.parametrize(
    "text", ["", "later", "drop", "drop soon", "drop 10ms", "drop 500d", "hand-over 5m"]
)
def test_a_policy_that_cannot_be_read_is_refused(world, text: str) -> None:
    make(world)
    sent = send(world, "a", MINUTE_MS, HOROLOG_LATE=text or " ")
    (error,) = sent.refused.values()
    assert (error.code, error.field) == (ErrorCode.BAD_REQUEST, "HOROLOG_LATE")
    assert world.broker.ask(DescribeTopic("t")).pending == 0


def test_nor_is_a_half_message_with_one(world) -> None:
    """Else nobody would hear of it: its commit has no way to refuse a message."""
    make(world)
    made = encode(topic="t", body=b"a", message_id="a", type=MessageType.TRANSACTION,
                  due_ms=world.clock.wall_ms() + MINUTE_MS,
                  system_properties=properties.encode({properties.TRANSACTION: "true"}),
                  user_properties={"HOROLOG_LATE": "soon"})  # fmt: skip
    sent = world.broker.ask(SendHalf("t", [made]))
    (error,) = sent.refused.values()
    assert (error.code, error.field) == (ErrorCode.BAD_REQUEST, "HOROLOG_LATE")
    assert world.broker.ask(DescribeTopic("t")).open_transactions == 0


def test_a_policy_means_nothing_where_a_message_does_not_wait(world) -> None:
    """Whatever comes in the same turn."""
    make(world)
    now = encode(topic="t", body=b"x", message_id="now", user_properties={"HOROLOG_LATE": "soon"})
    later = encode(topic="t", body=b"x", message_id="later", type=MessageType.DELAY,
                   due_ms=world.clock.wall_ms() + MINUTE_MS)  # fmt: skip
    assert not world.broker.ask(SendMessages("t", [now, later])).refused
    assert bodies(world) == ["now"]


@pytest.mark.parametrize(
    ("late", "after_ms", "field"),
    [
        ("later", 0, "late"),
        ("drop", 0, "late_after_ms"),
        ("drop", 999, "late_after_ms"),
        ("drop", 1 << 40, "late_after_ms"),
        ("hand-over", 5, "late_after_ms"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(
    world, late: str, after_ms: int, field: str
) -> None:
    with pytest.raises(HorologError) as refused:
        make(world, TopicSettings(late=late, late_after_ms=after_ms))
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_REQUEST, field)


def test_a_policy_as_text() -> None:
    for text, policy in (
        ("drop 5m", LatePolicy(Late.DROP, 300_000)),
        ("dead-letter 1h30m", LatePolicy(Late.DEAD_LETTER, 5_400_000)),
        ("hand-over", LatePolicy()),
    ):
        assert parse_policy(text) == policy
        assert str(policy) == text


def test_the_answer_to_a_recall_is_true(world) -> None:
    make(world, DEAD)
    due_ms = world.clock.wall_ms() + MINUTE_MS
    send(world, "a", MINUTE_MS)
    down(world, 10 * MINUTE_MS)
    recalled = world.broker.ask(Recall("t", "a", due_ms))
    assert recalled.status is RecallStatus.NOT_FOUND
    assert "has expired" in recalled.detail


def test_its_dead_letter_is_redriven(world) -> None:
    make(world, DEAD)
    send(world, "a", MINUTE_MS)
    down(world, 10 * MINUTE_MS)
    (count,) = world.broker.ask(CountDeadLetters())
    assert count == ("%LATE%t", 1, 0)
    done: Any = world.broker.ask(Redrive("%LATE%t"))
    assert [each.topic for each in done.letters] == ["t"]
    assert bodies(world) == ["a"]


def test_what_is_redriven_later_keeps_the_policy_of_its_own(world) -> None:
    make(world)
    send(world, "a", MINUTE_MS, HOROLOG_LATE="dead-letter 30s")
    down(world, 10 * MINUTE_MS)
    assert bodies(world, "%LATE%t") == ["a"]
    world.broker.ask(Redrive("%LATE%t", due_ms=world.clock.wall_ms() + MINUTE_MS))
    down(world, 10 * MINUTE_MS)
    assert (bodies(world), world.broker.ask(DescribeBroker()).expired) == ([], 2)


def test_a_half_message_that_is_committed_keeps_the_policy_of_its_own(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    halves = []
    for late in ("drop 30s", "hand-over"):
        made = encode(topic="t", body=b"x", message_id=late[:4], type=MessageType.TRANSACTION,
                      due_ms=world.clock.wall_ms() + MINUTE_MS,
                      user_properties={"HOROLOG_LATE": late})  # fmt: skip
        halves += world.broker.ask(SendHalf("t", as_half(NewRecords.of([made])))).origins
    for half in halves:
        world.broker.ask(EndTransaction(half, Resolution.COMMIT))
    down(world, 10 * MINUTE_MS)
    assert bodies(world) == ["hand"]


def test_far_messages_and_levels_expire_too(world) -> None:
    make(world, DROP)
    for number in range(40):
        send(world, f"far-{number}", 30 * 60 * MINUTE_MS + number)
    made = encode(topic="t", body=b"x", message_id="level", type=MessageType.DELAY,
                  due_ms=world.clock.wall_ms() + 26 * 60 * MINUTE_MS)  # fmt: skip
    world.broker.ask(SendMessages("t", [made]))
    down(world, 30 * 60 * MINUTE_MS - 1_000)
    world.clock.advance(2_000)
    world.broker.settle()
    assert len(bodies(world)) == 40
    assert state(world, "level") == [MessageState.EXPIRED]


def test_a_clock_that_steps_ahead_makes_late_what_waits(world) -> None:
    make(world, DROP)
    send(world, "a", MINUTE_MS)
    world.clock.advance(60 * MINUTE_MS)
    world.broker.settle()
    assert (bodies(world), state(world, "a")) == ([], [MessageState.EXPIRED])


def test_many_at_once(world) -> None:
    make(world, DEAD)
    for number in range(300):
        send(world, f"m{number:03}", MINUTE_MS + number % 2 * 9 * MINUTE_MS)
    down(world, 10 * MINUTE_MS + 30_000)
    view = world.broker.ask(DescribeBroker())
    assert (view.expired, view.handed_over, view.pending) == (150, 150, 0)
    assert bodies(world) == [f"m{n:03}" for n in range(300) if n % 2]
    assert bodies(world, "%LATE%t") == [f"m{n:03}" for n in range(300) if not n % 2]


def test_a_directory_with_expired_messages_is_sound(tmp_path) -> None:
    """As the broker's own process leaves it: down for ten minutes, stopped, and verified offline."""
    start_ms = 1_700_000_000_000

    async def story() -> None:
        engine = await open_engine(tmp_path, clock="simulated", start_ms=start_ms)
        try:
            await engine.submit(CreateTopic("t", TopicType.MIXED, 2, DEAD))
            made = [
                encode(topic="t", body=b"x", message_id=f"m{n}", type=MessageType.DELAY,
                       due_ms=start_ms + MINUTE_MS * (1 + n))
                for n in range(20)
            ]  # fmt: skip
            await engine.submit(SendMessages("t", made))
            await engine.checkpoint()
        finally:
            await engine.stop()
        engine = await open_engine(
            tmp_path, clock="simulated", start_ms=start_ms + 10 * MINUTE_MS + 1
        )
        try:
            await engine.advance(0)
            view = await engine.submit(DescribeBroker())
            assert (view.expired, view.handed_over, view.pending) == (5, 5, 10)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
    verdict = verify_directory(Disk(tmp_path, read_only=True))
    assert verdict.clean, verdict


@pytest.mark.parametrize("policy", [DROP, DEAD])
def test_what_has_expired_is_known_when_its_hour_is_forgotten(world, policy: TopicSettings) -> None:
    """By id and by key, beside one that was recalled; the log says it, and how each ended."""
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1, policy))
    due = world.clock.wall_ms() + 1_000
    made = [
        encode(
            topic="t", body=b"x", message_id=name, type=MessageType.DELAY, due_ms=due, keys=["k"]
        )
        for name in ("late", "gone")
    ]
    broker.ask(SendMessages("t", made))
    broker.ask(Recall("t", "gone", due))
    world.clock.advance(600_000)
    broker.settle()
    for hours in range(6):
        for name, state in (("late", MessageState.EXPIRED), ("gone", MessageState.RECALLED)):
            assert [each.state for each in broker.ask(FindMessages("t", name))] == [state], hours
            history = broker.ask(ShowMessage("t", name))
            assert [each.state for each in history.messages] == [state], hours
            ended = [each for each in history.events if each.event.value == state.value]
            assert [each.at_ms is None for each in ended] == [False], hours
        by_key = [each.state.value for each in broker.ask(FindMessages("t", key="k"))]
        assert by_key == ["expired", "recalled"]
        world.clock.advance(3_600_000)
        broker.settle()
        broker.request_checkpoint()
        broker.settle()
        world.reopen()
        broker = world.broker
    assert not broker.shard.delay.hours, "forgotten"
    refused = broker.ask(Recall("t", "late", due))
    assert refused.status is RecallStatus.NOT_FOUND
    assert refused.detail.endswith("was recalled before, or has expired")
