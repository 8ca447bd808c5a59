"""Bulk moves: exact, in bounded pieces, none twice, beside hand-over, restarts and crashes (P1, P2, P3, P8)."""

from __future__ import annotations

from random import Random

import pytest
from worlds import killed_at, take_all

from horolog.broker.recall import bulk_recalls
from horolog.errors import ErrorCode, HorologError
from horolog.limits import STORED_PROPERTIES_MAX
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    FindMessages,
    ListPending,
    MessageType,
    Recall,
    RecallMany,
    RecallStatus,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.history_commands import ShowMessage
from horolog.protocol.move_commands import BulkAct, DescribeBulk, MovedMany, MoveMany
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, properties_of

HOUR = 3_600_000
DAY = 24 * HOUR
EVER = 1 << 42
PLACES = (5_000, HOUR, 9 * HOUR, 2 * DAY, 40 * DAY, 400 * DAY)


@pytest.fixture
def broker(world):
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 3))
    return world.broker


def fill(world, count: int, *, body: bytes = b"x") -> dict[tuple[str, str], tuple[int, str]]:
    """Messages in all places: (topic, id) → (due time, tag)."""
    random = Random(7)
    now = world.clock.wall_ms()
    known = {}
    for first in range(0, count, 50):
        for topic in ("t", "u"):
            batch = []
            for i in range(first, min(count, first + 50)):
                due = now + random.choice(PLACES) + random.randrange(60_000)
                tag = random.choice([None, "Aa", "BB", "gate"])
                known[topic, f"{topic}{i}"] = due, tag or ""
                batch.append(
                    encode(
                        topic=topic,
                        body=body,
                        message_id=f"{topic}{i}",
                        type=MessageType.DELAY,
                        due_ms=due,
                        tag=tag,
                    )
                )
            world.broker.ask(SendMessages(topic, batch))
    return known


def listed(world) -> dict[tuple[str, str], int]:
    rows = world.broker.ask(ListPending(0, EVER, limit=10_000))
    found = {(each.topic, each.message_id): each.due_ms for each in rows}
    assert len(found) == len(rows), "a message waits twice"
    for each in rows:
        decoded = properties_of(each)
        assert decoded["TIMER_DELIVER_MS"] == str(each.due_ms)
    return found


def take(world, topic: str = "t") -> list[str]:
    got = take_all(world, topic=topic)
    assert len(got) == len(set(got)), "P3"
    return got


@pytest.mark.parametrize("tag", ["", "Aa", "nobody"])
@pytest.mark.parametrize("way", ["to", "shift", "now"])
def test_window_topic_and_tag_are_exact(world, broker, tag, way) -> None:
    """Counts, due times and what is visible, before and after a power cut; the same command again does nothing."""
    known = fill(world, 300)
    dues = sorted(due for due, _ in known.values())
    low, high = dues[100], dues[450]
    target = world.clock.wall_ms() + 3 * DAY
    meant = {
        place
        for place, (due, of) in known.items()
        if place[0] == "t" and low <= due < high and (not tag or of == tag)
    }
    ways = {
        "to": {"new_due_ms": target},
        "shift": {"shift_ms": 70_000, "operation": "later"},
        "now": {"now": True},
    }
    dry = broker.ask(MoveMany("t", low, high, tag, dry_run=True, **ways[way]))
    assert (dry.matched, dry.moved, dry.left) == (len(meant), 0, 0)
    assert listed(world) == {place: due for place, (due, _) in known.items()}
    done = broker.ask(MoveMany("t", low, high, tag, **ways[way]))
    assert done == MovedMany(len(meant), len(meant), dry.bytes)
    new = {"to": lambda _: target, "shift": lambda due: due + 70_000, "now": lambda _: None}[way]
    wanted = {place: new(due) if place in meant else due for place, (due, _) in known.items()}
    wanted = {place: due for place, due in wanted.items() if due is not None}
    for _ in range(2):
        assert listed(world) == wanted
        assert world.broker.ask(CountPending()).total == len(wanted)
        again = world.broker.ask(MoveMany("t", low, high, tag, **ways[way]))
        assert (again.matched, again.moved) == (0, 0)
        world.reopen(power_cut=True)
    assert set(take(world)) == ({name for _, name in meant} if way == "now" else set())
    world.clock.advance(500 * DAY)
    world.broker.settle(5_000)
    rest = {name for topic, name in wanted if topic == "t"}
    assert set(take(world)) == rest


def test_a_shift_moves_nothing_twice_into_its_own_window(world, broker) -> None:
    """What it has moved may be due in the window again; the name of the shift tells it."""
    known = fill(world, 100)
    everything = {"from_ms": 0, "to_ms": EVER}
    for _ in range(2):
        broker.ask(MoveMany("t", shift_ms=1_000, operation="one", **everything))
        found = listed(world)
        assert all(found[p] == due + 1_000 for p, (due, _) in known.items() if p[0] == "t")
        world.reopen()
        broker = world.broker
    other = broker.ask(MoveMany("t", shift_ms=-500, operation="two", **everything))
    assert other.moved == 100
    assert broker.ask(MoveMany("t", shift_ms=1_000, operation="one", **everything)).matched == 0
    assert (
        broker.ask(MoveMany("t", shift_ms=1_000, operation="", dry_run=True, **everything)).matched
        == 100
    )
    found = listed(world)
    assert all(found[p] == due + 500 for p, (due, _) in known.items() if p[0] == "t")
    assert all(found[p] == due for p, (due, _) in known.items() if p[0] == "u")


@pytest.mark.parametrize("nth", range(0, 40, 3))
@pytest.mark.parametrize("way", ["shift", "to", "now"])
def test_a_crash_in_the_middle_and_the_same_command_again(
    world, broker, monkeypatch, nth, way
) -> None:
    """All is moved in the end, and nothing twice, wherever the process dies."""
    monkeypatch.setattr(bulk_recalls, "BULK_MOVED_ROWS", 7)
    known = fill(world, 60)
    target = world.clock.wall_ms() + 3 * DAY
    ways = {
        "to": {"new_due_ms": target},
        "shift": {"shift_ms": 1_000, "operation": "one"},
        "now": {"now": True},
    }
    command = MoveMany("t", 0, EVER, **ways[way])
    with killed_at(world.disk, nth) as life:
        broker.ask(command)
    if life.killed:
        world.reopen(power_cut=bool(nth % 2))
    world.broker.ask(command)
    found = listed(world)
    mine = {place: due for place, (due, _) in known.items() if place[0] == "t"}
    if way == "now":
        assert not [place for place in found if place[0] == "t"]
        assert sorted(take(world)) == sorted(name for _, name in mine)
        return
    for place, due in mine.items():
        assert found[place] == (target if way == "to" else due + 1_000)
    assert len(found) == len(known)


def test_a_message_without_room_for_the_name_of_the_shift_stays_and_is_counted(
    world, broker
) -> None:
    due = world.clock.wall_ms() + HOUR

    def message(name: str, filler: int):
        more = properties.encode({"X": "y" * filler})
        return encode(
            topic="t",
            body=b"x",
            message_id=name,
            type=MessageType.DELAY,
            due_ms=due,
            system_properties=more,
        )

    room = STORED_PROPERTIES_MAX - len(layout.properties_of(message("m", 0).record[HEAD_BYTES:]))
    broker.ask(SendMessages("t", [message("a", 0), message("full", room - 20), message("z", 0)]))
    moved = broker.ask(MoveMany("t", due, due + 1, shift_ms=HOUR, operation="o" * 20))
    assert (moved.matched, moved.moved, moved.left) == (3, 2, 1)
    assert {name: at - due for (_, name), at in listed(world).items()} == {
        "a": HOUR,
        "full": 0,
        "z": HOUR,
    }


def test_hand_over_now_keeps_the_order_of_due_times(world, broker) -> None:
    """The earliest first, in every queue, those that are due together as they came (P7)."""
    broker.ask(CreateTopic("one", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    dues = [now + HOUR + (n * 37 % 11) * 1_000 for n in range(100)]
    for n, due in enumerate(dues):
        message = encode(
            topic="one", body=b"x", message_id=f"m{n}", type=MessageType.DELAY, due_ms=due
        )
        broker.ask(SendMessages("one", [message]))
    assert broker.ask(MoveMany("one", 0, EVER, now=True)).moved == 100
    wanted = [f"m{n}" for _, n in sorted((due, n) for n, due in enumerate(dues))]
    assert take(world, "one") == wanted


def test_work_goes_on_in_pieces_beside_hand_over(world, broker, monkeypatch) -> None:
    """Sends and hand-over go on; a piece copies only so much, in rows and in bytes; what was handed over is not meant."""
    monkeypatch.setattr(bulk_recalls, "BULK_MOVED_ROWS", 16)
    monkeypatch.setattr(bulk_recalls, "BULK_MOVED_BYTES", 4_000)
    known = fill(world, 200, body=b"x" * 500)
    shard = broker.shard
    mine = {name for topic, name in known if topic == "t"}
    answer = Answer(MoveMany("t", 0, EVER, shift_ms=DAY, operation="o"))
    asked, end, largest, turns = [answer], shard.log.end, 0, 0
    while not answer.done:
        world.clock.advance(200)
        world.broker.step(asked)
        asked, turns = [], turns + 1
        largest, end = max(largest, shard.log.end - end), shard.log.end
    assert turns > 10
    assert largest < 30_000
    world.broker.settle()
    early = set(take(world))
    assert answer.result.moved + len(early) == len(mine)


def test_answers_about_messages_that_were_moved_are_true(world, broker) -> None:
    """Their old due time is void, and every look-up knows where they went (P8, P10)."""
    known = fill(world, 60)
    broker.ask(MoveMany("t", 0, EVER, shift_ms=1_000, operation="one"))
    for (topic, name), (due, _) in list(known.items())[:20]:
        if topic != "t":
            continue
        states = [each.state.value for each in broker.ask(FindMessages(topic, name))]
        assert states == ["moved", "pending"]
        old = broker.ask(Recall(topic, name, due))
        assert old.status is RecallStatus.NOT_FOUND
        assert "was moved to" in old.detail
        history = broker.ask(ShowMessage(topic, name))
        assert [each.event.value for each in history.events] == ["accepted", "moved"]
        assert history.events[1].detail["from_due_ms"] == due
        changed = broker.ask(Reschedule(topic, name, due, due + 9, expected_due_ms=due))
        assert changed.due_ms == due + 1_000
        assert broker.ask(Recall(topic, name, due + 1_000)).status is RecallStatus.CANCELLED
    assert broker.ask(DescribeBroker()).problems == []


def test_refusals_move_nothing(world, broker) -> None:
    """A topic that is not there, a window without end before its begin, a time too far ahead."""
    known = fill(world, 20)
    far = world.clock.wall_ms() + world.broker.shard.settings.max_delay_ms
    for command, code in (
        (MoveMany("nope", 0, 1, now=True), ErrorCode.TOPIC_NOT_FOUND),
        (MoveMany("t", 5, 5, now=True), ErrorCode.BAD_REQUEST),
        (MoveMany("t", 0, EVER, new_due_ms=far + 1), ErrorCode.ILLEGAL_DELIVERY_TIME),
        (MoveMany("t", 0, EVER, shift_ms=far), ErrorCode.ILLEGAL_DELIVERY_TIME),
    ):
        with pytest.raises(HorologError) as refusal:
            broker.ask(command)
        assert refusal.value.code is code
    assert listed(world) == {place: due for place, (due, _) in known.items()}


def test_what_is_under_way_says_how_far_it_is(world, broker, monkeypatch) -> None:
    monkeypatch.setattr(bulk_recalls, "BULK_MOVED_ROWS", 10)
    known = fill(world, 100)
    now = world.clock.wall_ms()
    meant = sum(topic == "t" and due >= now + DAY for (topic, _), (due, _) in known.items())
    move = Answer(MoveMany("t", now + DAY, EVER, new_due_ms=now + 90 * DAY))
    recall = Answer(RecallMany("u", 0, EVER, "Aa"))
    asked, looks = [move, recall], []
    while not move.done:
        looks.append(Answer(DescribeBulk()))
        world.broker.step([*asked, looks[-1]])
        asked = []
    world.broker.settle()
    window = (BulkAct.RESCHEDULE, "t", now + DAY, EVER, "", False, "")
    views = [look.result for look in looks if len(look.result) == 2]
    assert {moving[:7] for moving, _ in views} == {window}
    assert {waiting.done for _, waiting in views} == {0}  # one after the other
    done = [moving.done for moving, _ in views]
    assert done == sorted(done)
    assert 0 < done[-1] < meant == move.result.moved
    assert world.broker.ask(DescribeBulk()) == []
