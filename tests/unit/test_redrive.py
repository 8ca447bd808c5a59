"""Dead letters are counted, listed and re-driven: each is a message again once, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest

from horolog.broker.send.dead_letters import REDRIVING
from horolog.errors import ErrorCode, HorologError
from horolog.log.queue_unit import UNIT_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    Delivered,
    DescribeBroker,
    DescribeGroup,
    DescribeTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.dead_letter_commands import (
    CountDeadLetters,
    DeadLetterCount,
    LetterPlace,
    ListDeadLetters,
    Redrive,
    Redriven,
)
from horolog.protocol.queue_commands import CommitOffsets, GroupSettings, PutGroup
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, properties_of

LEASE_MS = 10_000


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    world.broker.ask(PutGroup("g", GroupSettings(retry_max=2)))
    return world.broker


def give_up(broker, *ids: str, topic: str = "t") -> None:
    made = [
        encode(topic=topic, body=b"body of " + each.encode(), message_id=each, tag="T",
               keys=["k"], user_properties={"colour": "blue"})
        for each in ids
    ]  # fmt: skip
    broker.ask(SendMessages(topic, made))
    for message in receive(broker, topic, "g"):
        broker.ask(ForwardToDeadLetters("g", topic, message.receipt_handle))


def receive(broker, topic: str = "t", group: str = "others") -> list[Delivered]:
    found: list[Delivered] = []
    command = Receive(group, topic, -1, "*", 32, LEASE_MS, False, 0, "c", gives_up=True)
    while messages := broker.ask(command).messages:
        found += messages
    return found


def names(messages: list[Delivered]) -> list[str]:
    return sorted(properties_of(each)[properties.UNIQ_KEY] for each in messages)


def redrive(broker, **options: Any) -> Redriven:
    done: Redriven = broker.ask(Redrive("g", **options))
    return done


def count(broker) -> tuple[int, int]:
    (found,) = broker.ask(CountDeadLetters(group="g"))
    return found.waiting, found.redriven


def test_a_dead_letter_is_the_message_again(broker) -> None:
    give_up(broker, "a")
    receive(broker)
    done = redrive(broker)
    assert [(each.topic, each.message_id, each.due_ms) for each in done.letters] == [("t", "a", 0)]
    (message,) = receive(broker)
    stored = layout.decode(message.layout)
    assert (stored.topic, stored.body, stored.reconsume_times) == ("t", b"body of a", 0)
    assert message.attempt == 1
    own = {"UNIQ_KEY": "a", "TAGS": "T", "KEYS": "k", "colour": "blue"}
    assert properties_of(message) == {"MSG_REGION": "DefaultRegion", **own}
    assert names(receive(broker, group="g")) == ["a"], "its group gets it too, from the beginning"


def test_each_is_redriven_once(world, broker) -> None:
    give_up(broker, "a", "b")
    assert count(broker) == (2, 0)
    answers = [Answer(Redrive("g")) for _ in range(3)]
    broker.step(answers)
    broker.settle()
    assert [len(each.result.letters) for each in answers] == [2, 0, 0]
    assert count(broker) == (0, 2)
    world.reopen(power_cut=True)
    assert redrive(broker).letters == []
    assert count(broker) == (0, 2)
    broker.request_checkpoint()
    broker.settle()
    world.reopen()
    assert count(broker) == (0, 2)
    again = redrive(broker, only=(LetterPlace(0, 0), LetterPlace(0, 1), LetterPlace(0, 99)))
    assert (again.letters, again.already) == ([], 2)
    assert names(receive(broker, group="new")) == ["a", "a", "b", "b"]


def test_a_place_in_a_queue_that_is_not_there_is_no_dead_letter(broker) -> None:
    give_up(broker, "a")
    done = redrive(broker, only=(LetterPlace(7, 0), LetterPlace(0, 0)))
    assert [each.message_id for each in done.letters] == ["a"]


def test_what_a_crash_took_is_redriven_again_and_never_twice(world, broker) -> None:
    give_up(broker, *(f"m{n}" for n in range(9)))
    before = len(receive(broker))
    lost = Answer(Redrive("g", limit=5))
    broker.step([lost])
    world.reopen(power_cut=True)
    while (done := redrive(broker, limit=2)).letters:
        assert len(done.letters) <= 2
    assert len(names(receive(broker))) == 9, before
    assert count(broker) == (0, 9)


def test_it_fails_again_and_is_another_dead_letter(world, broker) -> None:
    give_up(broker, "a")
    redrive(broker)
    for message in receive(broker, group="g"):
        broker.ask(ForwardToDeadLetters("g", "t", message.receipt_handle))
    assert count(broker) == (1, 1)
    assert [each.message_id for each in redrive(broker).letters] == ["a"]


def test_due_times_are_spread_and_end_where_the_next_turn_begins(world, broker) -> None:
    give_up(broker, *(f"m{n}" for n in range(7)))
    due_ms = world.clock.wall_ms() + 600_000
    first = redrive(broker, due_ms=due_ms, rate=10, limit=4)
    assert [each.due_ms - due_ms for each in first.letters] == [0, 100, 200, 300]
    rest = redrive(broker, due_ms=due_ms, rate=10, first=first.next, done=4)
    assert [each.due_ms - due_ms for each in rest.letters] == [400, 500, 600]
    for passed_ms, visible in ((600_299, 3), (1, 4), (300, 7)):
        world.clock.advance(passed_ms)
        broker.settle()
        assert sum(broker.ask(DescribeTopic("t")).queue_offsets) == 7 + visible


def test_a_dry_run_changes_nothing(broker) -> None:
    give_up(broker, "a", "b")
    end = broker.shard.log.end
    assert len(redrive(broker, dry_run=True).letters) == 2
    assert broker.shard.log.end == end
    assert count(broker) == (2, 0)


def test_to_another_topic_and_to_the_group_alone(broker) -> None:
    give_up(broker, "a", "b")
    broker.ask(CreateTopic("repair", TopicType.NORMAL, 1))
    (first,) = redrive(broker, to="repair", limit=1).letters
    assert names(receive(broker, "repair")) == [first.message_id]
    broker.ask(CreateTopic("%RETRY%g", TopicType.MIXED, 1))
    redrive(broker, to="%RETRY%g")
    (message,) = receive(broker, "%RETRY%g")
    assert {first.message_id, *names([message])} == {"a", "b"}
    assert properties_of(message)[properties.RETRY_TOPIC] == "t"


def test_a_message_group_goes_to_its_queue_again(broker) -> None:
    broker.ask(CreateTopic("ordered", TopicType.FIFO, 7))
    made = [
        encode(topic="ordered", body=b"x", message_id=f"m{n}", message_group=f"of {n % 3}",
               type=MessageType.FIFO)
        for n in range(9)
    ]  # fmt: skip
    broker.ask(SendMessages("ordered", made))
    messages = receive(broker, "ordered", "g")
    queues = {properties_of(each)["__SHARDINGKEY"]: each.queue_id for each in messages}
    for message in messages:
        broker.ask(ForwardToDeadLetters("g", "ordered", message.receipt_handle))
    before = broker.ask(DescribeTopic("ordered")).queue_offsets
    redrive(broker)
    after = broker.ask(DescribeTopic("ordered")).queue_offsets
    grown = {queue for queue in range(7) if after[queue] > before[queue]}
    assert grown == set(queues.values())


def test_what_its_topic_does_not_take_waits_on(world, broker) -> None:
    broker.ask(CreateTopic("plain", TopicType.NORMAL, 1))
    give_up(broker, "a")
    give_up(broker, "n", topic="plain")
    later = world.clock.wall_ms() + 60_000
    done = redrive(broker, due_ms=later)
    assert [each.message_id for each in done.letters] == ["a"]
    ((place, message_id, error),) = done.refused
    assert (place, message_id, error.code) == (LetterPlace(0, 1), "n", ErrorCode.TYPE_CONFLICT)
    assert count(broker) == (1, 1)
    assert [each.message_id for each in redrive(broker).letters] == ["n"]


def test_refusals_name_what_is_wrong(world, broker) -> None:
    give_up(broker, "a")
    for options, code in (
        ({"to": "nowhere"}, ErrorCode.TOPIC_NOT_FOUND),
        ({"limit": 0}, ErrorCode.BAD_REQUEST),
        ({"due_ms": 1 << 60}, ErrorCode.ILLEGAL_DELIVERY_TIME),
    ):
        with pytest.raises(HorologError) as refused:
            redrive(broker, **options)
        assert refused.value.code is code
    with pytest.raises(HorologError) as refused:
        broker.ask(Redrive("nobody"))
    assert refused.value.code is ErrorCode.GROUP_NOT_FOUND
    world.disk.capacity_bytes = world.disk.used_bytes() + 2_000
    world.clock.advance(2_000)
    with pytest.raises(HorologError) as refused:
        redrive(broker)
    assert refused.value.code is ErrorCode.DISK_FULL
    assert count(broker) == (1, 0)


def test_letters_are_listed_by_pages_and_groups_counted(broker) -> None:
    give_up(broker, "a", "b", "c")
    redrive(broker, only=(LetterPlace(0, 1),))
    page = broker.ask(ListDeadLetters("g", limit=1))
    assert [each.place for each in page.letters] == [(0, 0)]
    page = broker.ask(ListDeadLetters("g", page.next))
    assert ([each.place for each in page.letters], page.next) == ([(0, 2)], None)
    every = broker.ask(ListDeadLetters("g", all=True)).letters
    assert [each.redriven for each in every] == [False, True, False]
    assert broker.ask(CountDeadLetters()) == [DeadLetterCount("g", 2, 1)]
    assert broker.ask(CountDeadLetters(after="g")) == []
    broker.ask(PutGroup("quiet", None))
    assert broker.ask(ListDeadLetters("quiet")).letters == []
    assert broker.ask(CountDeadLetters(group="quiet")) == []


def test_letters_of_a_queue_that_is_cut_are_refused_and_the_others_go(world, broker) -> None:
    give_up(broker, "a", "b", "c", "d")
    broker.request_checkpoint()
    broker.settle()
    letters = broker.ask(ListDeadLetters("g")).letters
    topic = broker.shard.topics.by_name["%DLQ%g"]
    (path,) = [name for name in world.disk.names() if f"queues/{topic.id:05d}-" in name]
    world.disk.open(path).truncate(2 * UNIT_BYTES + 7)
    done = redrive(broker)
    assert [each.place for each in done.letters] == [each.place for each in letters[:2]]
    for command in (Redrive("g", first=done.next), Redrive("g", only=(letters[3].place,))):
        answer = Answer(command)
        broker.step([answer])
        broker.settle()
        assert answer.result.code is ErrorCode.DAMAGED
    assert any("is cut short" in each for each in broker.ask(DescribeBroker()).problems)
    world.reopen()
    assert len(redrive(world.broker).letters) == 2


@pytest.mark.parametrize(
    "command",
    [
        CommitOffsets(REDRIVING, "%DLQ%g", {0: 0}),
        Receive(REDRIVING, "%DLQ%g", -1, "other", 32, LEASE_MS, False, 0, "c"),
        PutGroup(REDRIVING, GroupSettings(consume_enable=False)),
    ],
    ids=["back", "receive", "settings"],
)
def test_no_client_uses_the_group_that_notes_what_is_redriven(broker, command) -> None:
    give_up(broker, "a")
    redrive(broker)
    before = count(broker)
    progress = broker.ask(DescribeGroup(REDRIVING, "%DLQ%g"))
    with pytest.raises(HorologError) as refused:
        broker.ask(command)
    assert refused.value.code is ErrorCode.ILLEGAL_GROUP
    assert count(broker) == before == (0, 1)
    assert broker.ask(DescribeGroup(REDRIVING, "%DLQ%g")) == progress
