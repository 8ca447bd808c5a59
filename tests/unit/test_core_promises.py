"""Promises on a whole shard under a simulated clock: steps of the clock, pauses, full disks, order, counts."""

from __future__ import annotations

import pytest
from worlds import made, take_all

from horolog.errors import ErrorCode, HorologError
from horolog.limits import DEDUP_MS, MAX_DELAY_MS
from horolog.protocol.commands import (
    Ack,
    ChangeTopic,
    CountPending,
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    ListPending,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.ready.receipt import decode_receipt, encode_receipt
from horolog.testing.sim_broker import Answer

HOUR = 3_600_000


@pytest.fixture
def any_broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return any_world.broker


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world.broker


def schedule(world, *due_in: int, start: int = 0):
    now = world.clock.wall_ms()
    batch = [made(f"m{start + i}", now + d) for i, d in enumerate(due_in)]
    return world.broker.ask(SendMessages("t", batch))


def test_p1_never_early_to_the_millisecond(any_world, any_broker) -> None:
    schedule(any_world, 5_000, 5_001, 4_999)
    for wait, expected in ((4_998, []), (1, ["m2"]), (1, ["m0"]), (1, ["m1"])):
        any_world.clock.advance(wait)
        any_broker.settle()
        assert take_all(any_world) == expected


def test_p1_p3_clock_steps_forward_an_hour(any_world, any_broker) -> None:
    schedule(any_world, 1_000, HOUR // 2, HOUR + 1_000)
    any_world.clock.step_wall(HOUR)
    any_broker.settle()
    assert take_all(any_world) == ["m0", "m1"], "overdue ones at once, in order"
    any_world.clock.advance(1_000)
    any_broker.settle()
    assert take_all(any_world) == ["m2"]


def test_p1_p3_clock_steps_back_two_hours(any_world, any_broker) -> None:
    schedule(any_world, 500, 5_000, 20_000)
    any_world.clock.advance(1_000)
    any_broker.settle()
    assert take_all(any_world) == ["m0"]
    any_world.clock.step_wall(-2 * HOUR)
    any_broker.settle()
    assert take_all(any_world) == [], "nothing is early by the clock that counts now"
    schedule(any_world, 700, start=10)
    any_world.clock.advance(700)
    any_broker.settle()
    assert take_all(any_world) == ["m10"], "not frozen"
    any_world.clock.advance(2 * HOUR + 4_000)
    any_broker.settle()
    assert take_all(any_world) == ["m1"], "not twice"
    any_world.clock.advance(20_000)
    any_broker.settle()
    assert take_all(any_world) == ["m2"]
    assert any_broker.ask(DescribeBroker()).handed_over == 4


def test_p1_p3_stopped_for_90_seconds(any_world, any_broker) -> None:
    """SIGSTOP: both clocks went on, no turn was taken."""
    schedule(any_world, *range(1_000, 90_000, 1_000))
    any_world.clock.advance(90_000)
    any_broker.settle()
    assert take_all(any_world) == [f"m{i}" for i in range(89)]


def test_p7_stable_order_of_equal_due_times(any_world, any_broker) -> None:
    now = any_world.clock.wall_ms()
    for start in range(0, 60, 7):
        any_broker.ask(
            SendMessages(
                "t", [made(f"m{i}", now + 5_000) for i in range(start, min(start + 7, 60))]
            )
        )
    any_world.clock.advance(5_000)
    any_broker.settle()
    assert take_all(any_world) == [f"m{i}" for i in range(60)]


def test_p8_recall_race_with_hand_over_is_decided_by_the_log(any_world, any_broker) -> None:
    """The recall comes in the very turn in which the message becomes due: it is decided first."""
    schedule(any_world, 5_000, 5_000)
    due = any_world.clock.wall_ms() + 5_000
    any_world.clock.advance(5_000)
    first = Answer(Recall("t", "m0", due))
    any_broker.step([first])
    second = Answer(Recall("t", "m1", due))
    any_broker.step([second])
    any_broker.settle()
    assert first.result.status is RecallStatus.CANCELLED
    assert second.result.status is RecallStatus.ALREADY_DELIVERED
    assert take_all(any_world) == ["m1"]


def test_p8_recall_cancels_every_pending_copy(any_world, any_broker) -> None:
    due = any_world.clock.wall_ms() + HOUR
    for later in (0, 0, 0, 1):
        any_broker.ask(SendMessages("t", [made("same", due + later)]))
        any_world.clock.advance(DEDUP_MS + 1_000)  # else it would be the same send
    assert any_broker.ask(Recall("t", "same", due)).status is RecallStatus.CANCELLED
    assert any_broker.ask(CountPending()).total == 1
    any_world.clock.advance(HOUR)
    any_broker.settle()
    assert take_all(any_world) == ["same"]


def test_p8_recall_in_the_turn_of_its_send_waits_for_it(any_world, any_broker) -> None:
    due = any_world.clock.wall_ms() + 5_000
    send = Answer(SendMessages("t", [made("m0", due)]))
    recall = Answer(Recall("t", "m0", due))
    any_broker.step([send, recall])
    any_broker.settle()
    assert recall.result.status is RecallStatus.CANCELLED
    any_world.clock.advance(6_000)
    any_broker.settle()
    assert take_all(any_world) == []


def test_p10_counts_and_lists_are_exact(any_world, any_broker) -> None:
    base = (any_world.clock.wall_ms() // HOUR + 1) * HOUR - any_world.clock.wall_ms()
    schedule(any_world, base + 500, base + 600, base + 1_500, base + HOUR + 1)
    start = any_world.clock.wall_ms() + base
    counts = any_broker.ask(CountPending())
    assert counts.total == 4
    assert counts.rows == [(start, 3), (start + HOUR, 1)]
    assert any_broker.ask(CountPending(hour=start // HOUR)).rows == [(start, 2), (start + 1_000, 1)]
    assert any_broker.ask(CountPending("t", start // HOUR)).rows == [(start, 2), (start + 1_000, 1)]
    listed = any_broker.ask(ListPending(start + 501, start + HOUR))
    assert [m.message_id for m in listed] == ["m1", "m2"]
    assert any_broker.ask(ListPending(start, start + 2 * HOUR, limit=1))[0].message_id == "m0"
    any_broker.ask(Recall("t", "m1", start + 600))
    assert any_broker.ask(CountPending()).total == 3
    assert any_broker.ask(DescribeTopic("t")).pending == 3


def test_p11_a_delay_beyond_the_range_is_refused_with_the_limit(any_world, any_broker) -> None:
    sent = schedule(any_world, MAX_DELAY_MS, MAX_DELAY_MS + 1)
    assert list(sent.refused) == [1]
    error = sent.refused[1]
    assert error.code is ErrorCode.ILLEGAL_DELIVERY_TIME
    assert f"{MAX_DELAY_MS} ms" in error.message
    assert error.field == "delivery_timestamp"
    assert any_broker.ask(CountPending()).total == 1


def test_tags_are_filtered_exactly(any_world, any_broker) -> None:
    any_broker.ask(
        SendMessages("t", [made("a", tag="Aa"), made("b", tag="BB"), made("c"), made("d", tag="x")])
    )
    assert take_all(any_world, "one", tags="Aa") == ["a"], "BB has the same hash"
    assert take_all(any_world, "two", tags="x || BB") == ["b", "d"]
    assert take_all(any_world, "all") == ["a", "b", "c", "d"]


def test_a_full_disk_refuses_sends_and_goes_on_with_the_rest(world, make_world) -> None:
    """P9 in the small: hand-over, acks and recalls go on, and sends come back without a restart."""
    del world
    small = make_world()
    small.broker.open()
    small.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = small.clock.wall_ms() + 60_000
    schedule(small, 5_000, 60_000)
    used = small.disk.used_bytes()
    small.disk.capacity_bytes = used + 2_000
    small.clock.advance(1_001)
    with pytest.raises(HorologError) as caught:
        small.broker.ask(SendMessages("t", [made("more", due)]))
    assert caught.value.code is ErrorCode.DISK_FULL
    assert caught.value.retriable
    assert "free" in caught.value.message
    assert any("free" in problem for problem in small.broker.ask(DescribeBroker()).problems)
    small.clock.advance(5_000)
    small.broker.settle()
    assert take_all(small) == ["m0"]
    assert small.broker.ask(Recall("t", "m1", due)).status is RecallStatus.CANCELLED
    small.disk.capacity_bytes = None
    small.clock.advance(1_001)
    small.broker.ask(SendMessages("t", [made("more", due)]))
    assert small.broker.ask(CountPending()).total == 1


def test_a_disk_that_fills_up_between_send_and_filing_stalls_filing_only(world, broker) -> None:
    schedule(world, 3_000)
    broker.settle()
    used = world.disk.used_bytes()
    answer = Answer(SendMessages("t", [made("late", world.clock.wall_ms() + 4_000)]))
    broker.step([answer])
    world.disk.capacity_bytes = used
    broker.settle()
    assert answer.done
    world.clock.advance(3_500)
    broker.settle()
    assert take_all(world) == ["m0"], "what is loaded is handed over"
    world.disk.capacity_bytes = None
    world.clock.advance(600)
    broker.settle()
    assert take_all(world) == ["late"]


def test_a_receive_reads_only_what_is_its_own(world, broker) -> None:
    """Where a consume queue points at another message that one is not served; the log says which is meant."""
    broker.ask(SendMessages("t", [made("a"), made("b")]))
    broker.request_checkpoint()
    broker.settle()
    name = "shard-00/queues/00001-00000/00000000000000000000.cq"
    content = world.disk.open(name).read(0, 40)
    world.disk.open(name).write(0, content[20:] + content[:20])
    world.disk.open(name).sync()
    world.reopen()
    assert take_all(world) == ["a", "b"]
    assert broker.ask(DescribeBroker()).problems == []


def test_parked_polls_are_served_in_order_and_time_out(any_world, any_broker) -> None:
    def poll(wait_ms: int) -> Answer:
        return Answer(Receive("g", "t", -1, "*", 1, 60_000, False, wait_ms, "c"))

    first, second, third = poll(5_000), poll(5_000), poll(1_000)
    any_broker.step([first, second, third])
    assert any_broker.ask(DescribeBroker()).parked_polls == 3
    any_world.clock.advance(1_000)
    any_broker.settle()
    assert third.done
    assert third.result.messages == []
    any_broker.ask(SendMessages("t", [made("a")]))
    any_broker.settle()
    assert [len(a.result.messages) if a.done else None for a in (first, second)] == [1, None]
    any_world.clock.advance(60_000)
    any_broker.settle()
    assert second.done


def test_limits_of_topics(any_world, any_broker) -> None:
    for queues in (0, 1_025):
        with pytest.raises(HorologError, match="queues"):
            any_broker.ask(CreateTopic("q", TopicType.DELAY, queues))
    with pytest.raises(HorologError) as caught:
        any_broker.ask(CreateTopic("t", TopicType.DELAY, 1))
    assert caught.value.code is ErrorCode.TOPIC_EXISTS
    assert any_broker.ask(ChangeTopic("t", 3)).queues == 3
    with pytest.raises(HorologError, match="lowered"):
        any_broker.ask(ChangeTopic("t", 2))
    any_world.reopen()
    assert any_broker.ask(DescribeTopic("t")).queues == 3


def test_a_receive_that_names_a_queue_begins_there_and_goes_on(any_world, any_broker) -> None:
    """The official Node client always names queue 0; nothing may stay in the others."""
    any_broker.ask(ChangeTopic("t", 4))
    any_broker.ask(SendMessages("t", [made(f"m{i}") for i in range(8)]))
    receive = Receive("g", "t", 2, "*", 32, 60_000, False, 0, "c")
    got = [(m.queue_id, m.queue_offset) for m in any_broker.ask(receive).messages]
    assert got == [(q, o) for q in (2, 3, 0, 1) for o in (0, 1)]


@pytest.mark.parametrize("flush", ["sync", "interval", "os"])
def test_nothing_ticks_while_nothing_is_due(make_world, flush) -> None:
    """After the mark, the checkpoint and whatever a policy still syncs, an idle broker wants no turn at all."""
    world = make_world(flush)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    schedule(world, 8 * HOUR)
    wait = world.broker.pending_next_ms
    assert wait is not None
    assert wait >= 100
    for _ in range(5):
        world.clock.advance(10_000)
        world.broker.settle()
    assert world.broker.pending_next_ms > HOUR, "only the message in eight hours is waited for"


def test_a_forged_handle_of_a_message_to_come_changes_nothing(any_world, any_broker) -> None:
    any_broker.ask(SendMessages("t", [made("a")]))
    handle = (
        any_broker.ask(Receive("g", "t", -1, "*", 1, 60_000, False, 0, "c"))
        .messages[0]
        .receipt_handle
    )
    receipt = decode_receipt(handle)
    for forged in (receipt._replace(offset=1, epoch=0), receipt._replace(queue=9, epoch=0)):
        refused = any_broker.ask(Ack("g", "t", [encode_receipt(forged)])).refused[0]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE
    any_broker.ask(SendMessages("t", [made("b")]))
    assert take_all(any_world) == ["b"]


def test_finished_hours_are_dropped_and_a_late_recall_is_refused(world, broker) -> None:
    """Kept for three hours, then gone once no kept checkpoint names them; restarts in between change nothing."""
    schedule(world, 60_000)
    due = world.clock.wall_ms() + 60_000
    world.clock.advance(61_000)
    broker.settle()
    assert broker.ask(Recall("t", "m0", due)).status is RecallStatus.ALREADY_DELIVERED
    assert len(world.disk.list("shard-00/hours")) == 1
    for i in range(6):
        world.clock.advance(HOUR)
        broker.ask(SendMessages("t", [made(f"later{i}", world.clock.wall_ms() + 1_000)]))
        world.clock.advance(2_000)
        broker.settle()
        broker.request_checkpoint()
        broker.settle()
        world.reopen(power_cut=i % 2 == 0)
    hours = [int(name) for name in world.disk.list("shard-00/hours")]
    assert due // HOUR not in hours
    assert len(hours) <= 5
    late = broker.ask(Recall("t", "m0", due))
    assert late.status is RecallStatus.ALREADY_DELIVERED, "the log still knows"
    unknown = broker.ask(Recall("t", "m1", due))
    assert unknown.status is RecallStatus.NOT_FOUND
    assert "unknown or expired" in unknown.detail
    assert take_all(world) == ["m0"] + [f"later{i}" for i in range(6)]
    assert broker.ask(DescribeBroker()).handed_over == 7
