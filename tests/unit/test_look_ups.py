"""Messages by id and by key: pending, delivered, recalled, moved; near and far; after restarts and retention (P10)."""

from __future__ import annotations

import pytest

from horolog.broker.recall import look_ups
from horolog.errors import ErrorCode, HorologError
from horolog.limits import FIND_MAX
from horolog.log.key_rows import HEADER_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    FindMessages,
    FoundMessage,
    MessageState,
    MessageType,
    Recall,
    RecallByKey,
    RecallStatus,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def broker(any_world):
    for topic in ("t", "u"):
        any_world.broker.ask(CreateTopic(topic, TopicType.MIXED, 2))
    return any_world.broker


def made(message_id: str, due_ms: int = 0, keys: tuple[str, ...] = (), topic: str = "t"):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(
        topic=topic, body=b"x" * 50, message_id=message_id, type=kind, due_ms=due_ms, keys=keys
    )


def found(broker, message_id: str = "", key: str = "", topic: str = "t") -> list[FoundMessage]:
    return broker.ask(FindMessages(topic, message_id, key))


def states(broker, message_id: str = "", key: str = "") -> list[str]:
    return [view.state.value for view in found(broker, message_id, key)]


@pytest.mark.parametrize("restart", [False, True])
def test_one_message_from_its_send_to_its_delivery(any_world, broker, restart: bool) -> None:
    due = any_world.clock.wall_ms() + 5_000
    sent = broker.ask(SendMessages("t", [made("a", due, ("order-7", "eu"))]))
    sent_ms = any_world.clock.wall_ms()
    if restart:
        any_world.reopen()
    (view,) = found(broker, "a")
    assert (view.state, view.origin, view.due_ms) == (MessageState.PENDING, sent.origins[0], due)
    assert (view.queue_id, view.queue_offset) == (sent.queue_ids[0], -1)
    assert (view.keys, view.message_id, view.store_ms) == (["order-7", "eu"], "a", sent_ms)
    assert layout.decode(view.layout).body == b"x" * 50
    assert found(broker, key="order-7") == found(broker, key="eu") == [view]
    any_world.clock.advance(5_000)
    broker.settle()
    if restart:
        any_world.reopen()
    (later,) = found(broker, "a")
    assert (later.state, later.origin, later.due_ms) == (MessageState.DELIVERED, view.origin, due)
    assert (later.queue_id, later.queue_offset, later.store_ms) == (view.queue_id, 0, due)
    assert found(broker, key="eu") == [later]


def test_every_state(any_world, broker) -> None:
    now = any_world.clock.wall_ms()
    broker.ask(SendMessages("t", [made("visible", 0, ("k",)), made("plain")]))
    for name, due in (("waits", 5_000), ("far", 90 * DAY), ("gone", 5_000), ("moved", 5_000)):
        broker.ask(SendMessages("t", [made(name, now + due, ("k", name))]))
    broker.ask(SendMessages("u", [made("waits", now + 5_000, ("k",), "u")]))
    broker.ask(Recall("t", "gone", now + 5_000))
    broker.ask(Reschedule("t", "moved", now + 5_000, now + 40 * DAY))
    for _ in range(2):
        assert states(broker, "visible") == states(broker, "plain") == ["delivered"]
        assert states(broker, "waits") == states(broker, "far") == ["pending"]
        assert states(broker, "gone") == ["recalled"]
        assert states(broker, "moved") == ["moved", "pending"]
        dues = [view.due_ms for view in found(broker, "moved")]
        assert dues == [now + 5_000, now + 40 * DAY]
        assert states(broker, key="k") == [
            "delivered", "pending", "pending", "recalled", "moved", "pending"
        ]  # fmt: skip
        assert states(broker, key="moved") == ["moved", "pending"]
        assert found(broker, "nobody") == found(broker, key="nothing") == []
        assert found(broker, key="waits", topic="u") == []
        assert [view.topic for view in found(broker, "waits", topic="u")] == ["u"]
        broker.request_checkpoint()
        broker.settle()
        any_world.reopen()


def test_messages_that_are_too_large_together_are_refused(any_world, broker, monkeypatch) -> None:
    """A thousand messages of a key may have 4 GiB, which a look-up kept and answered at once."""
    large = [
        encode(
            topic="t", body=bytes(9_000), message_id=f"m{i}", type=MessageType.NORMAL, keys=("k",)
        )
        for i in range(20)
    ]
    broker.ask(SendMessages("t", large))
    monkeypatch.setattr(look_ups, "TURN_READ_BYTES", 20_000)
    assert len(found(broker, key="k")) == 20
    monkeypatch.setattr(look_ups, "FIND_BYTES_MAX", 100_000)
    with pytest.raises(HorologError, match=r"^key: the messages of topic t .* more than") as caught:
        found(broker, key="k")
    assert (caught.value.code, caught.value.field) == (ErrorCode.BAD_REQUEST, "key")
    assert states(broker, "m7") == ["delivered"]


def test_states_that_the_delay_store_has_forgotten(any_world, broker) -> None:
    """Its hour is dropped; the log still tells what was handed over, moved and recalled."""
    now = any_world.clock.wall_ms()
    dues = {"a": 5_000, "b": 5_000, "c": 6_000}
    broker.ask(SendMessages("t", [made(name, now + due) for name, due in dues.items()]))
    broker.ask(Recall("t", "b", now + 5_000))
    broker.ask(Reschedule("t", "c", now + 6_000, now + 7_000))
    any_world.clock.advance(8_000)
    broker.settle()
    for _ in range(6):
        any_world.clock.advance(HOUR)
        broker.settle()
        broker.request_checkpoint()
        broker.settle()
        any_world.reopen()
    assert not broker.shard.delay.hours
    assert states(broker, "a") == ["delivered"]
    assert states(broker, "b") == ["recalled"]
    assert states(broker, "c") == ["moved", "delivered"]


def test_a_recall_reads_only_the_newest_of_many_messages_with_one_id(any_world, broker) -> None:
    first = any_world.clock.wall_ms() - 2 * FIND_MAX
    dues = range(first, first + FIND_MAX + 1)  # past, so all are visible at once
    same = [
        encode(topic="t", body=b"%d" % due, message_id="a", type=MessageType.DELAY, due_ms=due)
        for due in dues
    ]
    broker.ask(SendMessages("t", same))
    for due in dues[1], dues[-1]:
        assert broker.ask(Recall("t", "a", due)).status is RecallStatus.ALREADY_DELIVERED
    oldest = broker.ask(Recall("t", "a", dues[0]))
    assert oldest.status is RecallStatus.NOT_FOUND
    assert oldest.detail.endswith("unknown or expired, or older than 1000 others with its id")


def test_copies_of_one_second_are_distinguished(any_world, broker) -> None:
    """A frame hands over many: each HANDED record belongs to the origin at its place in the HAND_OVER."""
    now = any_world.clock.wall_ms()
    names = [f"m{i}" for i in range(30)]
    sent = broker.ask(
        SendMessages(
            "t", [made(name, now + 1_000 + i % 3 * 1_000, ("k",)) for i, name in enumerate(names)]
        )
    )
    any_world.clock.advance(10_000)
    broker.settle()
    for name, origin in zip(names, sent.origins, strict=True):
        (view,) = found(broker, name)
        assert (view.state, view.origin) == (MessageState.DELIVERED, origin)
    assert [view.message_id for view in found(broker, key="k")] == names


def test_keys_are_words_and_no_ids(any_world, broker) -> None:
    broker.ask(SendMessages("t", [made("a", 0, ("b", "two", "words", "b")), made("b", 0, ("a",))]))
    assert [view.message_id for view in found(broker, key="b")] == ["a"]
    assert [view.message_id for view in found(broker, "b")] == ["b"]
    assert [view.message_id for view in found(broker, key="words")] == ["a"]


def test_a_key_with_white_space_would_be_two_keys_and_is_refused(any_world, broker) -> None:
    due = any_world.clock.wall_ms() + DAY
    for key in ("a b", "a\u3000b", " a"):
        with pytest.raises(HorologError, match=r"keys: .* white space") as caught:
            made("m", due, (key,))
        assert (caught.value.code, caught.value.field) == (ErrorCode.ILLEGAL_KEY, "keys")
        for command in (RecallByKey("t", key), FindMessages("t", "", key)):
            with pytest.raises(HorologError, match=r"key: .* white space") as caught:
                broker.ask(command)
            assert (caught.value.code, caught.value.field) == (ErrorCode.ILLEGAL_KEY, "key")
    broker.ask(SendMessages("t", [made("m", due, ("a", "b"))]))
    assert [r.status.value for r in broker.ask(RecallByKey("t", "b"))] == ["CANCELLED"]


def test_bad_questions(any_world, broker) -> None:
    for command in (FindMessages("t"), FindMessages("t", "a", "b")):
        with pytest.raises(HorologError) as caught:
            broker.ask(command)
        assert caught.value.code is ErrorCode.BAD_REQUEST
    with pytest.raises(HorologError) as caught:
        broker.ask(FindMessages("nowhere", "a"))
    assert caught.value.code is ErrorCode.TOPIC_NOT_FOUND
    for first in range(0, 1_100, 100):
        batch = [made(f"m{i}", 0, ("many",)) for i in range(first, first + 100)]
        broker.ask(SendMessages("t", batch))
    with pytest.raises(HorologError, match="1000 are looked at"):
        found(broker, key="many")


def test_after_retention_what_waits_is_found_by_id(make_world) -> None:
    world = make_world()
    world.broker.settings = world.broker.settings._replace(retention_bytes=3 * 65_536, dedup_ms=0)
    world.broker.open()
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    early = broker.ask(
        SendMessages("t", [made("far", now + 30 * DAY, ("k",)), made("old", 0, ("k",))])
    )
    near = broker.ask(SendMessages("t", [made("near", now + HOUR)]))
    broker.ask(SendMessages("t", [made("twins", now + DAY), made("twins", now + DAY, ("k",))]))
    for i in range(120):
        broker.ask(SendMessages("t", [made(f"m{i}-{j}", 0, ("k",)) for j in range(20)]))
        if i % 10 == 9:
            broker.request_checkpoint()
            broker.settle()
    for _ in range(2):
        assert broker.ask(DescribeBroker()).log_start > near.origins[0]
        (far,) = found(broker, "far")
        assert (far.state, far.origin, far.due_ms) == (
            MessageState.PENDING, early.origins[0], now + 30 * DAY
        )  # fmt: skip
        assert far.keys == ["k"]
        assert states(broker, "near") == ["pending"]
        assert states(broker, "twins") == ["pending"] * 2  # no frame tells whether one came back
        assert found(broker, "old") == []
        assert states(broker, "m119-0") == ["delivered"]
        world.reopen()
    world.clock.advance(2 * HOUR)
    broker.settle()
    (view,) = found(broker, "near")
    assert (view.state, view.origin) == (MessageState.DELIVERED, near.origins[0])
    assert len(world.disk.list("shard-00/keys")) < 15, "the key index follows the log"


def test_a_message_that_waits_for_space_is_pending(make_world) -> None:
    world = make_world()
    world.broker.open()
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.settle()
    due = world.clock.wall_ms() + HOUR
    used = world.disk.used_bytes()
    from horolog.testing.sim_broker import Answer

    answer = Answer(SendMessages("t", [made("late", due)]))
    broker.step([answer])
    world.disk.capacity_bytes = used
    broker.settle()
    assert states(broker, "late") == ["pending"]
    world.disk.capacity_bytes = None
    broker.settle()
    assert states(broker, "late") == ["pending"]


@pytest.mark.parametrize("harm", ["cut", "gone", "flipped", "registry"])
def test_a_key_index_that_is_bad_is_rebuilt_from_the_log(world, harm: str) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    for i in range(30):
        broker.ask(SendMessages("t", [made(f"m{i}-{j}", 0, (f"k{i}",)) for j in range(10)]))
    broker.request_checkpoint()
    broker.settle()
    broker.ask(SendMessages("t", [made("after")]))
    names = world.disk.list("shard-00/keys")
    path = f"shard-00/keys/{names[-1]}"
    match harm:
        case "cut":
            world.disk.open(path).truncate(HEADER_BYTES + 5)
        case "gone":
            world.disk.remove(path)
        case "flipped":
            world.disk.flip(path, HEADER_BYTES + 9, 1)
        case "registry":
            for name in names:
                world.disk.remove(f"shard-00/keys/{name}")
    world.reopen()
    assert any("key index is rebuilt" in line for line in broker.reports)
    for i in range(30):
        assert states(broker, f"m{i}-3") == ["delivered"]
        assert len(found(broker, key=f"k{i}")) == 10
    assert states(broker, "after") == ["delivered"]
    broker.request_checkpoint()
    broker.settle()
    reports = len(broker.reports)
    world.reopen()
    assert not any("key index" in line for line in broker.reports[reports:])
    assert states(broker, "m0-0") == ["delivered"]
