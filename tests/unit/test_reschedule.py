"""Reschedule: one frame, another due time, the same message; and the truth about old handles (P1, P2, P3, P8)."""

from __future__ import annotations

import pytest
from worlds import consume

from horolog.errors import ErrorCode, HorologError
from horolog.log.frame import HEADER_BYTES
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    ListPending,
    MessageType,
    Recall,
    RecallByKey,
    RecallStatus,
    Reschedule,
    RescheduleStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

HOUR = 3_600_000
DAY = 24 * HOUR
FAR = 40 * DAY


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 4))
    return world.broker


def made(message_id: str, due_ms: int = 0, body: bytes = b"body", **more):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    return encode(topic="t", body=body, message_id=message_id, type=kind, due_ms=due_ms, **more)


def send(world, message_id: str, due_in: int, **more) -> int:
    due = world.clock.wall_ms() + due_in
    world.broker.ask(SendMessages("t", [made(message_id, due, **more)]))
    return due


def take(world) -> list[tuple[str, int]]:
    """(Message id, TIMER_DELIVER_MS) of all that is visible, in order."""
    got = []
    for stored, found in consume(world):
        assert stored.body == b"body"
        got.append((found["UNIQ_KEY"], int(found["TIMER_DELIVER_MS"])))
    return got


def pass_time(world, by_ms: int) -> None:
    world.clock.advance(by_ms)
    world.broker.settle(500)


@pytest.mark.parametrize("old", [5_000, HOUR, FAR])
@pytest.mark.parametrize("new", [9_000, 2 * HOUR, FAR + DAY])
@pytest.mark.parametrize("restart", ["no", "kill", "power"])
def test_a_message_moves_between_all_places(world, broker, old, new, restart) -> None:
    due = send(world, "m", old, tag="a", keys=["k"], user_properties={"colour": "red"})
    wanted = world.clock.wall_ms() + new
    moved = broker.ask(Reschedule("t", "m", due, wanted))
    assert moved.status is RescheduleStatus.RESCHEDULED
    assert (moved.due_ms, moved.queue_offset, moved.copies) == (wanted, -1, 1)
    if restart != "no":
        world.reopen(power_cut=restart == "power")
        broker = world.broker
    assert broker.ask(CountPending()).total == 1
    [listed] = broker.ask(ListPending(0, 1 << 50))
    assert (listed.due_ms, listed.origin, listed.message_id) == (wanted, moved.origin, "m")
    stored = layout.decode(listed.layout)
    decoded = properties.decode(stored.properties)
    assert decoded["TIMER_DELIVER_MS"] == str(wanted)
    assert (decoded["TAGS"], decoded["KEYS"], decoded["colour"]) == ("a", "k", "red")
    assert stored.queue_id == moved.queue_id
    assert stored.position == moved.origin
    pass_time(world, new - 1)
    assert take(world) == []
    pass_time(world, 1)
    assert take(world) == [("m", wanted)]
    pass_time(world, 2 * FAR)
    assert take(world) == [], "handed over once"


def test_the_frame_is_one_and_survives_whole_or_not_at_all(world, broker) -> None:
    due = send(world, "m", 5_000)
    answer = Answer(Reschedule("t", "m", due, due + 60_000))
    frames = broker.shard.log.last_frame
    broker.step([answer])
    shard = broker.shard
    assert shard.log.last_frame != frames
    position = shard.log.last_frame + HEADER_BYTES
    broker.settle()
    assert shard.log.frame(position).count == 2
    world.reopen()
    rows = world.broker.ask(CountPending(hour=due // HOUR)).rows
    assert sum(n for _, n in rows) == 1


def test_the_layout_may_become_longer(world, broker) -> None:
    """Ten years of milliseconds have 13 digits; a clock may start where times have 12."""
    stored = made("m", 999_999_999_999).record[32:]
    changed = layout.with_properties(
        stored,
        properties.replaced(
            layout.topic_and_properties(stored)[1], properties.TIMER_DELIVER_MS, "1000000000000"
        ),
    )
    found = layout.decode(changed)
    assert len(changed) == len(stored) + 1
    assert properties.decode(found.properties) == {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": "m",
        "TIMER_DELIVER_MS": "1000000000000",
    }
    assert (found.body, found.topic) == (b"body", "t")


def test_to_a_time_that_has_come_makes_it_visible(world, broker) -> None:
    due = send(world, "m", HOUR)
    now = world.clock.wall_ms()
    moved = broker.ask(Reschedule("t", "m", due, now))
    assert moved.status is RescheduleStatus.RESCHEDULED
    assert moved.queue_offset == 0
    assert take(world) == [("m", now)]
    assert broker.ask(CountPending()).total == 0
    answer = broker.ask(Recall("t", "m", due))
    assert answer.status is RecallStatus.NOT_FOUND
    assert "moved to" in answer.detail
    assert broker.ask(Recall("t", "m", now)).status is RecallStatus.ALREADY_DELIVERED
    world.reopen(power_cut=True)
    assert world.broker.ask(Recall("t", "m", now)).status is RecallStatus.ALREADY_DELIVERED
    pass_time(world, 2 * HOUR)
    assert take(world) == []


@pytest.mark.parametrize("later", [0, 5 * HOUR, 60 * DAY])
@pytest.mark.parametrize("restart", [False, True])
def test_the_old_handle_says_where_it_moved(world, broker, later, restart) -> None:
    """Also when the hour or run of the old time has been dropped."""
    due = send(world, "m", 5_000)
    second = due + 2 * HOUR
    third = due + 100 * DAY
    broker.ask(Reschedule("t", "m", due, second))
    broker.ask(Reschedule("t", "m", second, third))
    if later:
        pass_time(world, later)
        broker.request_checkpoint()
        broker.settle()
    if restart:
        world.reopen()
        broker = world.broker
    for old in (due, second):
        answer = broker.ask(Recall("t", "m", old))
        assert answer.status is RecallStatus.NOT_FOUND
        assert "was moved to 2024-02-22T22:13:25.000Z" in answer.detail
        again = broker.ask(Reschedule("t", "m", old, due + 30 * DAY * 12))
        assert again.status is RescheduleStatus.NOT_FOUND
        assert "was moved to 2024-02-22T22:13:25.000Z" in again.detail
    assert broker.ask(Recall("t", "m", third)).status is RecallStatus.CANCELLED
    assert "was recalled" in broker.ask(Recall("t", "m", third)).detail


def test_there_and_back_again(world, broker) -> None:
    due = send(world, "m", 5_000)
    other = due + HOUR
    assert broker.ask(Reschedule("t", "m", due, other)).copies == 1
    assert broker.ask(Reschedule("t", "m", other, due)).copies == 1
    assert "was moved to" in broker.ask(Recall("t", "m", other)).detail
    pass_time(world, 5_000)
    assert take(world) == [("m", due)]


def test_all_copies_go_on_as_one(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    world.broker.ask(SendMessages("t", [made("m", due), made("m", due), made("m", due + 1)]))
    moved = broker.ask(Reschedule("t", "m", due, due + 9_000))
    assert moved.copies == broker.ask(CountPending()).total
    pass_time(world, 60_000)
    assert [name for name, at in take(world) if at == due + 9_000] == ["m"]


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("old", [5_000, FAR])
def test_two_messages_of_one_id_and_due_time_both_go_on(world, broker, old, now) -> None:
    """Of producers in containers of one address and process id; a retry goes on as one with the first send."""
    due = world.clock.wall_ms() + old
    for body in (b"one", b"other", b"one"):
        broker.ask(SendMessages("t", [made("m", due, body=body)]))
        world.clock.advance(130_000 if old == FAR else 0)  # what comes again later is no repeat
    copies = broker.ask(CountPending()).total
    assert copies == (3 if old == FAR else 2)
    moved = broker.ask(Reschedule("t", "m", due, due + 9_000, now=now))
    assert moved.copies == copies
    world.reopen(power_cut=True)
    assert broker.ask(CountPending()).total == (0 if now else 2)
    pass_time(world, due + 9_000 - world.clock.wall_ms())
    assert sorted(stored.body for stored, _ in consume(world)) == [b"one", b"other"]


def test_many_messages_of_one_id_go_on_in_several_frames(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    bodies = [b"%03d" % n * 50 for n in range(200)]
    for first in range(0, 200, 20):
        batch = [made("m", due, body=body) for body in bodies[first : first + 20]]
        broker.ask(SendMessages("t", batch))
    before = broker.end
    assert broker.ask(Reschedule("t", "m", due, due + 9_000)).copies == 200
    assert broker.end - before > broker.shard.log.frame_bytes_max
    world.reopen(power_cut=True)
    pass_time(world, 14_000)
    assert sorted(stored.body for stored, _ in consume(world)) == bodies


def test_refusals_change_nothing(world, broker) -> None:
    due = send(world, "m", 5_000)
    before = broker.shard.log.end
    assert broker.ask(Reschedule("t", "x", due, due + 1)).status is RescheduleStatus.NOT_FOUND
    assert broker.ask(Reschedule("t", "m", due + 1, due)).status is RescheduleStatus.NOT_FOUND
    with pytest.raises(HorologError) as refused:
        broker.ask(Reschedule("nope", "m", due, due + 1))
    assert refused.value.code is ErrorCode.TOPIC_NOT_FOUND
    with pytest.raises(HorologError) as refused:
        broker.ask(Reschedule("t", "m", due, world.clock.wall_ms() + 3_653 * DAY + 1))
    assert refused.value.code is ErrorCode.ILLEGAL_DELIVERY_TIME
    world.disk.capacity_bytes = world.disk.used_bytes() + 100
    world.clock.advance(1_000)
    with pytest.raises(HorologError) as refused:
        broker.ask(Reschedule("t", "m", due, due + 1))
    assert refused.value.code is ErrorCode.DISK_FULL
    world.disk.capacity_bytes = None
    assert broker.shard.log.end - before <= 3 * 64, "marks at most"
    pass_time(world, 4_000)
    assert take(world) == [("m", due)]
    assert (
        broker.ask(Reschedule("t", "m", due, due + DAY)).status
        is RescheduleStatus.ALREADY_DELIVERED
    )


def test_one_that_was_recalled(world, broker) -> None:
    due = send(world, "m", 5_000)
    broker.ask(Recall("t", "m", due))
    answer = broker.ask(Reschedule("t", "m", due, due + 1))
    assert answer.status is RescheduleStatus.NOT_FOUND
    assert "was recalled before" in answer.detail


def test_in_one_turn(world, broker) -> None:
    """Send, reschedule, reschedule and recall, none of which has been answered."""
    now = world.clock.wall_ms()
    due = now + 5_000
    commands = [
        SendMessages("t", [made("m", due)]),
        Reschedule("t", "m", due, due + 1_000),
        Reschedule("t", "m", due + 1_000, due + 2_000),
        Recall("t", "m", due + 1_000),
        Recall("t", "m", due + 2_000),
    ]
    answers = [Answer(command) for command in commands]
    broker.step(answers)
    broker.settle()
    results = [answer.result for answer in answers[1:]]
    assert [result.status.value for result in results] == [
        "RESCHEDULED",
        "RESCHEDULED",
        "NOT_FOUND",
        "CANCELLED",
    ]
    pass_time(world, 60_000)
    assert take(world) == []
    view = broker.ask(DescribeBroker())
    assert (view.pending, view.recalled, view.handed_over) == (0, 3, 0)


def test_the_race_with_hand_over_is_decided_by_the_log(world, broker) -> None:
    due = send(world, "m0", 5_000)
    send(world, "m1", 5_000)
    world.clock.advance(5_000)
    first = Answer(Reschedule("t", "m0", due, due + 9_000))
    broker.step([first])
    second = Answer(Reschedule("t", "m1", due, due + 9_000))
    broker.step([second])
    broker.settle()
    assert first.result.status is RescheduleStatus.RESCHEDULED
    assert second.result.status is RescheduleStatus.ALREADY_DELIVERED
    assert take(world) == [("m1", due)]
    pass_time(world, 9_000)
    assert take(world) == [("m0", due + 9_000)]


def test_a_retry_of_a_delivered_message_is_not_cancelled(world, broker) -> None:
    """A copy sent late is due at once, while the first one still waits for its turn."""
    due = send(world, "m", 5_000)
    pass_time(world, 5_000)
    world.clock.step_wall(-HOUR)
    broker.settle()
    world.clock.advance(130_000)
    broker.ask(SendMessages("t", [made("m", due)]))
    answer = broker.ask(Recall("t", "m", due))
    assert answer.status is RecallStatus.ALREADY_DELIVERED
    pass_time(world, 2 * HOUR)
    assert take(world) == [("m", due)]


# --- recall by key, and of what was forgotten ----------------------------------------------------


@pytest.mark.parametrize("place", ["appended", "committed", "restarted"])
def test_a_retry_after_a_reschedule_gets_the_first_result(world, broker, place: str) -> None:
    """Of a 4.x client the newest send decides; the record that the reschedule made is newer, and no send (P3, P8)."""
    due = world.clock.wall_ms() + HOUR
    message = made("m", due, born_ms=1_000, born_host=(b"\x7f\0\0\1", 4_711))
    sent = SendMessages("t", [message], reuses_ids=True)
    first = broker.ask(sent)
    world.clock.advance(1_000)
    move, retry = Answer(Reschedule("t", "m", due, due + HOUR)), Answer(sent)
    if place == "appended":
        broker.work_disk = lambda: None
    broker.step([move])
    if place == "appended":
        broker.step([retry])
        assert not move.done
        del broker.work_disk
    else:
        broker.settle()
        if place == "restarted":
            world.reopen()
        world.broker.step([retry])
    world.broker.settle()
    assert move.result.status is RescheduleStatus.RESCHEDULED
    assert retry.result.origins == first.origins
    assert retry.result.first_due_ms == {0: due}
    assert world.broker.ask(CountPending()).total == 1


def test_recall_by_key(world, broker) -> None:
    far = send(world, "far", FAR, keys=["order-7", "gold"])
    near = send(world, "near", HOUR, keys=["order-7"])
    send(world, "soon", 1_000, keys=["order-7"])
    send(world, "other", HOUR, keys=["order-8", "gold"])
    pass_time(world, 1_000)
    moved = broker.ask(Reschedule("t", "near", near, near + HOUR))
    found = broker.ask(RecallByKey("t", "order-7"))
    assert [(r.message_id, r.status.value, r.due_ms) for r in found] == [
        ("far", "CANCELLED", far),
        ("soon", "ALREADY_DELIVERED", near - HOUR + 1_000),
        ("near", "CANCELLED", moved.due_ms),
    ]
    assert broker.ask(CountPending()).total == 1
    assert [r.status.value for r in broker.ask(RecallByKey("t", "gold"))] == [
        "NOT_FOUND",
        "CANCELLED",
    ]
    assert broker.ask(RecallByKey("t", "order")) == []
    with pytest.raises(HorologError):
        broker.ask(RecallByKey("nope", "order-7"))


def test_recall_by_key_of_what_is_in_flight(world, broker) -> None:
    now = world.clock.wall_ms()
    sent = Answer(SendMessages("t", [made("m", now + 5_000, keys=["k"])]))
    first = Answer(RecallByKey("t", "k"))
    broker.step([sent, first])
    second = Answer(RecallByKey("t", "k"))
    broker.step([second])
    broker.settle()
    assert [r.status.value for r in first.result] == ["CANCELLED"]
    assert [r.status.value for r in second.result] == ["NOT_FOUND"]
    pass_time(world, 60_000)
    assert take(world) == []


@pytest.mark.parametrize("due_in", [5_000, FAR])
@pytest.mark.parametrize("restart", [False, True])
def test_what_was_delivered_long_ago_is_known_by_the_log(world, broker, due_in, restart) -> None:
    due = send(world, "m", due_in)
    gone = send(world, "gone", due_in)
    broker.ask(Recall("t", "gone", gone))
    pass_time(world, due_in)
    assert take(world) == [("m", due)]
    pass_time(world, 12 * HOUR)
    broker.request_checkpoint()
    broker.settle()
    if restart:
        world.reopen()
        broker = world.broker
    shard = broker.shard
    assert not shard.delay.hours
    assert not shard.delay.far.runs
    assert broker.ask(Recall("t", "m", due)).status is RecallStatus.ALREADY_DELIVERED
    assert broker.ask(Recall("t", "m", due + 1)).status is RecallStatus.NOT_FOUND
    answer = broker.ask(Recall("t", "gone", gone))
    assert answer.detail == "NOT_FOUND: message gone of topic t was recalled before"
    assert "unknown or expired" in broker.ask(Recall("t", "never", due)).detail


@pytest.mark.parametrize("due_in", [5_000, HOUR, FAR])
@pytest.mark.parametrize("restart", ["no", "kill", "power"])
def test_a_message_is_handed_over_now(world, broker, due_in: int, restart: str) -> None:
    """It is visible at once, once, due now; whoever recalls, moves or hands it over again hears the truth."""
    due = send(world, "m", due_in, tag="a")
    pass_time(world, 1_000)
    now = world.clock.wall_ms()
    done = broker.ask(Reschedule("t", "m", due, 0, now=True))
    assert done.status is RescheduleStatus.HANDED_OVER
    assert done.detail == "HANDED_OVER: message m of topic t was handed over as it was asked for"
    assert (done.due_ms, done.queue_offset, done.copies) == (now, 0, 1)
    if restart != "no":
        world.reopen(power_cut=restart == "power")
        broker = world.broker
    assert broker.ask(CountPending()).total == 0
    assert take(world) == [("m", now)]
    again = broker.ask(Reschedule("t", "m", due, 0, now=True))
    assert again.status is RescheduleStatus.NOT_FOUND
    assert "was moved to" in again.detail
    assert broker.ask(Recall("t", "m", now)).status is RecallStatus.ALREADY_DELIVERED
    pass_time(world, 2 * due_in)
    assert take(world) == []
    gone = broker.ask(Reschedule("t", "nobody", due, 0, now=True))
    assert gone.status is RescheduleStatus.NOT_FOUND


def test_a_message_is_moved_only_if_it_is_due_when_it_is_expected_to_be(world, broker) -> None:
    """Compare and set: who looked at it before somebody else moved it hears when it is due now."""
    due = send(world, "m", HOUR)

    def move(expected: int, new: int = due + 5, **more):
        return broker.ask(Reschedule("t", "m", due, new, expected_due_ms=expected, **more))

    wrong = move(due + 1)
    assert (wrong.status, wrong.due_ms) == (RescheduleStatus.DUE_TIME_CHANGED, due)
    assert move(due).status is RescheduleStatus.RESCHEDULED
    late = move(due)
    assert (late.status, late.due_ms) == (RescheduleStatus.DUE_TIME_CHANGED, due + 5)
    assert move(due, now=True).status is RescheduleStatus.DUE_TIME_CHANGED
    assert [each.due_ms for each in broker.ask(ListPending(0, 1 << 50))] == [due + 5]
    world.reopen()
    broker = world.broker
    moved = broker.ask(Reschedule("t", "m", due + 5, due + 9, expected_due_ms=due + 5))
    assert moved.status is RescheduleStatus.RESCHEDULED
    unknown = broker.ask(Reschedule("t", "nobody", due, due + 9, expected_due_ms=due))
    assert unknown.status is RescheduleStatus.NOT_FOUND
