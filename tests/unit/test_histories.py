"""The history of a message: what the log and the present tell, in order, and nothing made up."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    MessageState,
    MessageType,
    Recall,
    RecallMany,
    Receive,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.history_commands import (
    FindTopics,
    GroupState,
    MessageEvent,
    MessageHistory,
    PagePending,
    PendingPlace,
    ShowMessage,
)
from horolog.protocol.queue_commands import CommitOffsets, PutGroup
from horolog.protocol.rocketmq.message import encode

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return any_world.broker


def made(message_id: str, due_ms: int = 0, tag: str = ""):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(
        topic="t", body=b"x" * 50, message_id=message_id, type=kind, due_ms=due_ms, tag=tag or None
    )


def shown(broker, message_id: str) -> MessageHistory:
    return broker.ask(ShowMessage("t", message_id))


def events_of(broker, message_id: str) -> list[tuple[str, int | None]]:
    return [(each.event.value, each.at_ms) for each in shown(broker, message_id).events]


def lease(broker, group: str = "g", tags: str = "*", limit: int = 1):
    command = Receive(group, "t", -1, tags, limit, 30_000, False, 0, "c")
    return broker.ask(command).messages


@pytest.mark.parametrize("restart", [False, True])
def test_a_life_from_its_send_to_its_ack(any_world, broker, restart: bool) -> None:
    """Each step with its instant, and what belongs to it."""
    clock = any_world.clock
    sent_ms = clock.wall_ms()
    broker.ask(SendMessages("t", [made("a", sent_ms + 5_000), made("b")]))
    clock.advance(1_000)
    broker.ask(Reschedule("t", "a", sent_ms + 5_000, sent_ms + 7_000))
    clock.advance(6_000)
    broker.settle()
    clock.advance(500)
    got = lease(broker, limit=2)
    assert [each.attempt for each in got] == [1, 1]
    clock.advance(31_000)
    broker.settle()
    (_, again) = lease(broker, limit=2)
    clock.advance(100)
    broker.ask(Ack("g", "t", [again.receipt_handle]))
    if restart:
        any_world.reopen()
    history = shown(broker, "a")
    assert history.complete
    assert [(each.event.value, each.at_ms - sent_ms, each.detail) for each in history.events] == [
        ("accepted", 0, {"deliver_at_ms": sent_ms + 5_000}),
        ("moved", 1_000, {"from_due_ms": sent_ms + 5_000, "deliver_at_ms": sent_ms + 7_000}),
        (
            "handed_over",
            7_000,
            {"due_ms": sent_ms + 7_000, "lateness_ms": 0, "queue_id": 0, "queue_offset": 1},
        ),
        ("leased", 7_500, {"group": "g", "attempt": 1, "lease_ms": 30_000}),
        ("leased", 38_500, {"group": "g", "attempt": 2, "lease_ms": 30_000}),
        ("acked", 38_600, {"group": "g"}),
    ]
    assert [each.state for each in history.messages] == [
        MessageState.MOVED,
        MessageState.DELIVERED,
    ]
    assert [(each.group, each.state) for each in history.groups] == [("g", GroupState.CONSUMED)]
    (other,) = shown(broker, "b").groups
    assert (other.state, other.attempt) == (GroupState.LEASED, 2)
    assert other.leased_ms == sent_ms + 38_500


@pytest.mark.parametrize("restart", [False, True])
def test_a_passing_step_of_the_clock_makes_nothing_late(any_world, broker, restart: bool) -> None:
    """Store times stay ahead; what is told is when it happened."""
    clock = any_world.clock
    clock.step_wall(HOUR)
    broker.ask(SendMessages("t", [made("ahead")]))
    clock.step_wall(-HOUR)
    sent_ms = clock.wall_ms()
    broker.ask(SendMessages("t", [made("a", sent_ms + 2_000)]))
    clock.advance(2_000)
    broker.settle()
    if restart:
        any_world.reopen()
    accepted, handed_over = shown(broker, "a").events
    assert (accepted.at_ms, handed_over.at_ms) == (sent_ms, sent_ms + 2_000)
    assert handed_over.detail["lateness_ms"] == 0
    assert events_of(broker, "ahead") == [("accepted", sent_ms + HOUR)]


def test_recalls_have_their_instant(any_world, broker) -> None:
    """One, and of a window: no index names them, the log does."""
    sent_ms = any_world.clock.wall_ms()
    due = sent_ms + DAY
    broker.ask(
        SendMessages("t", [made("one", due), made("many", due + 1, "x"), made("waits", due)])
    )
    any_world.clock.advance(2_000)
    broker.ask(Recall("t", "one", due))
    any_world.clock.advance(2_000)
    assert broker.ask(RecallMany("t", due, due + 10, "x")).cancelled == 1
    for _ in range(2):
        assert events_of(broker, "one") == [("accepted", sent_ms), ("recalled", sent_ms + 2_000)]
        assert events_of(broker, "many") == [("accepted", sent_ms), ("recalled", sent_ms + 4_000)]
        assert events_of(broker, "waits") == [("accepted", sent_ms)]
        broker.request_checkpoint()
        broker.settle()
        any_world.reopen()


def test_a_recall_has_its_instant_when_the_hour_of_its_message_is_dropped(
    any_world, broker
) -> None:
    sent_ms = any_world.clock.wall_ms()
    broker.ask(SendMessages("t", [made("one", sent_ms + 5_000)]))
    any_world.clock.advance(2_000)
    broker.ask(Recall("t", "one", sent_ms + 5_000))
    for _ in range(6):
        any_world.clock.advance(3_600_000)
        broker.settle()
        broker.request_checkpoint()
        broker.settle()
        any_world.reopen()
    assert not broker.shard.delay.hours
    assert events_of(broker, "one") == [("accepted", sent_ms), ("recalled", sent_ms + 2_000)]


def test_what_a_group_does_without_a_lease(any_world, broker) -> None:
    """A filter that passes over it, an offset that is committed, a group that is set back."""
    broker.ask(SendMessages("t", [made("a", tag="x"), made("b", tag="y")]))
    at = any_world.clock.wall_ms()
    (got,) = lease(broker, "filters", "y")
    assert got.queue_offset == 1
    broker.ask(PutGroup("pulls"))
    broker.ask(CommitOffsets("pulls", "t", {0: 2}))
    broker.ask(CommitOffsets("pulls", "t", {0: 0}))
    history = shown(broker, "a")
    assert [
        (each.event.value, each.at_ms, each.detail.get("group")) for each in history.events
    ] == [
        ("accepted", at, None),
        ("passed_over", at, "filters"),
        ("consumed", at, "pulls"),
        ("reset", at, "pulls"),
    ]
    states = {each.group: each.state for each in history.groups}
    assert states == {"filters": GroupState.CONSUMED, "pulls": GroupState.NEW}


def test_a_consumer_changes_its_lease(any_world, broker) -> None:
    """Made longer, and given up: the attempt stays, and then comes the next."""
    broker.ask(SendMessages("t", [made("a")]))
    (got,) = lease(broker)
    for invisible_ms in (60_000, 50_000):
        changed = broker.ask(ChangeInvisible("g", "t", got.receipt_handle, invisible_ms))
        got = got._replace(receipt_handle=changed.receipt_handle)
    any_world.clock.advance(50_001)
    broker.settle()
    lease(broker)
    events = shown(broker, "a").events
    assert [(each.event.value, each.detail.get("attempt")) for each in events] == [
        ("accepted", None),
        ("leased", 1),
        ("lease_changed", 1),
        ("leased", 2),
    ]
    assert events[2].detail == {"group": "g", "attempt": 1, "lease_ms": 50_000, "times": 2}


def test_what_is_not_known_has_no_instant(any_world, broker, monkeypatch) -> None:
    """The log is too long to be looked at: the state is told, its instant is not, and the history says so."""
    monkeypatch.setattr("horolog.broker.recall.control_scans.HISTORY_FRAMES_MAX", 1)
    monkeypatch.setattr("horolog.broker.recall.control_scans.HISTORY_FRAMES", 1)
    due = any_world.clock.wall_ms() + DAY
    broker.ask(SendMessages("t", [made("a", due)]))
    for _ in range(4):
        broker.ask(SendMessages("t", [made("more")]))
    broker.ask(Recall("t", "a", due))
    history = shown(broker, "a")
    assert not history.complete
    assert [(each.event, each.at_ms is None) for each in history.events] == [
        (MessageEvent.ACCEPTED, False),
        (MessageEvent.RECALLED, True),
    ]


def test_nobody_knows_it(broker) -> None:
    """No messages, no events; an unknown topic is refused."""
    assert shown(broker, "nobody").messages == []
    with pytest.raises(HorologError) as refusal:
        broker.ask(ShowMessage("nope", "a"))
    assert refusal.value.code is ErrorCode.TOPIC_NOT_FOUND


def test_pages_of_what_waits(any_world, broker) -> None:
    """All of a window in hand-over order, whatever the size of a page, also while others go."""
    now = any_world.clock.wall_ms() + HOUR
    dues = [now + (n * 7 % 30) * 400 for n in range(200)] + [now + DAY * n for n in range(1, 40)]
    names = [f"m{n}" for n in range(len(dues))]
    batch = [
        made(name, due, "x" if n % 5 else "y")
        for n, (name, due) in enumerate(zip(names, dues, strict=True))
    ]
    for first in range(0, len(batch), 50):
        broker.ask(SendMessages("t", batch[first : first + 50]))
    wanted = [
        name
        for _, _, name in sorted(
            (due, n, name) for n, (due, name) in enumerate(zip(dues, names, strict=True))
        )
    ]
    for limit in (1, 7, 500):
        assert [each.message_id for each in _pages(broker, limit)] == wanted
    tagged = [name for name in wanted if int(name[1:]) % 5 == 0]
    assert [each.message_id for each in _pages(broker, 3, "y")] == tagged
    page = broker.ask(PagePending(PendingPlace(0), 1 << 50, "t", "", 10))
    for each in (*page.messages[-3:],):
        broker.ask(Recall("t", each.message_id, each.due_ms))
    following = broker.ask(PagePending(page.next, 1 << 50, "t", "", 2))
    assert [each.message_id for each in following.messages] == wanted[10:12]


def _pages(broker, limit: int, tag: str = ""):
    at: PendingPlace | None = PendingPlace(0)
    while at is not None:
        page = broker.ask(PagePending(at, 1 << 50, "t", tag, limit))
        assert len(page.messages) <= limit
        yield from page.messages
        at = page.next


def test_an_id_names_its_topics_a_turn_at_a_time(any_world, monkeypatch) -> None:
    """Near, far, visible, in two topics, of many: also after a restart; who has nothing is not named."""
    monkeypatch.setattr("horolog.broker.recall.look_ups.ID_LOOK_UPS", 12)
    broker = any_world.broker
    names = [f"t{n:02}" for n in range(20)]
    for name in names:
        broker.ask(CreateTopic(name, TopicType.MIXED, 1))
    now_ms = any_world.clock.wall_ms()

    def send(topic: str, message_id: str, due_ms: int = 0) -> None:
        kind = MessageType.DELAY if due_ms else MessageType.NORMAL
        message = encode(topic=topic, body=b"x", message_id=message_id, type=kind, due_ms=due_ms)
        broker.ask(SendMessages(topic, [message]))

    send("t03", "near", now_ms + HOUR)
    send("t07", "far", now_ms + 9 * DAY)
    send("t11", "visible")
    send("t19", "visible")

    def topics_with(message_id: str) -> tuple[list[str], int]:
        found: list[str] = []
        after, turns = "", 0
        while after is not None:
            known = broker.ask(FindTopics(message_id, after))
            found, after, turns = found + known.topics, known.next, turns + 1
        return found, turns

    for _ in range(2):
        assert topics_with("near")[0] == ["t03"]
        assert topics_with("far")[0] == ["t07"]
        found, turns = topics_with("visible")
        assert (found, turns > 2) == (["t11", "t19"], True)
        assert topics_with("nobody's")[0] == []
        any_world.reopen()
