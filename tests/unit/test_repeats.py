"""Idempotent sends: a topic and message id within the window is one message, whatever happens in between."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import made, take_all

from horolog.broker.send import repeats
from horolog.broker.send.key_filter import KeyFilter
from horolog.broker.send.log_times import LogTimes
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import message
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

WINDOW = 120_000
SPAN = 1_000
HOUR = 3_600_000


@pytest.fixture
def broker(world):
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 3))
    return world.broker


def send(world, *messages, topic: str = "t"):
    return world.broker.ask(SendMessages(topic, list(messages)))


def results(sent) -> list[tuple[int, int, int]]:
    return list(zip(sent.origins, sent.queue_ids, sent.queue_offsets, strict=True))


@pytest.mark.parametrize("due_in", [0, 5_000, 200_000, 40 * 24 * HOUR])
def test_a_retry_is_answered_with_the_first_result(world, broker, due_in: int) -> None:
    due = world.clock.wall_ms() + due_in if due_in else 0
    send(world, made("other"))
    first = send(world, made("a", due))
    for wait in (0, 1, 4_000, 50_000, 60_000):
        world.clock.advance(wait)
        broker.settle()
        again = send(world, made("a", due))
        assert results(again) == results(first)
        assert again.first_due_ms == {0: due}
    assert first.first_due_ms == {}
    if due_in <= 5_000:
        assert sorted(take_all(world)) == ["a", "other"]
    else:
        assert broker.ask(CountPending()).total == 1


def test_the_window_ends(world, broker) -> None:
    """It may last a second longer than it is said to, never shorter."""
    first = send(world, made("a"))
    world.clock.advance(WINDOW - 1)
    assert results(send(world, made("a"))) == results(first)
    world.clock.advance(SPAN + 1)
    later = send(world, made("a"))
    assert results(later) != results(first), "a repeat does not prolong the window"
    assert later.first_due_ms == {}
    assert take_all(world) == ["a", "a"]


def test_a_window_ends_also_when_nothing_was_sent_in_it(world, broker) -> None:
    for i in range(3):
        assert send(world, made("a", world.clock.wall_ms() + HOUR)).first_due_ms == {}
        assert broker.ask(CountPending()).total == i + 1
        world.clock.advance(WINDOW + SPAN)
        broker.settle()


def test_retries_in_the_same_request_and_the_same_turn(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    batch = [made("a", due), made("b"), made("a", due + 9), made("b"), made("c", due)]
    one = Answer(SendMessages("t", batch))
    two = Answer(SendMessages("t", [made("c", due), made("d", due), made("a", due)]))
    broker.step([one, two])
    broker.settle()
    got = results(one.result)
    assert got[0] == got[2]
    assert got[1] == got[3]
    assert len({origin for origin, _, _ in got}) == 3
    assert one.result.first_due_ms == {2: due, 3: 0}
    assert results(two.result)[0] == got[4]
    assert results(two.result)[2] == got[0]
    assert two.result.first_due_ms == {0: due, 2: due}
    assert broker.ask(CountPending()).total == 3
    world.clock.advance(6_000)
    broker.settle()
    assert sorted(take_all(world)) == ["a", "b", "c", "d"]


def test_retries_of_what_is_appended_but_not_committed(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    turns = [
        [made("a", due), made("n")],
        [made("a", due)],
        [made("n"), made("x", due), made("a", due)],
        [made("x", due)],
    ]
    broker.work_disk = lambda: None  # the disk is slow: nothing is committed for now
    answers = [Answer(SendMessages("t", turn)) for turn in turns]
    for answer in answers:
        broker.step([answer])
    assert not any(answer.done for answer in answers)
    del broker.work_disk
    broker.settle()
    a, n = results(answers[0].result)
    assert results(answers[1].result) == [a]
    assert results(answers[2].result)[0] == n
    assert results(answers[2].result)[2] == a
    assert results(answers[3].result)[0] == results(answers[2].result)[1]
    assert broker.ask(CountPending()).total == 2
    assert take_all(world) == ["n"]


def test_the_same_id_in_another_topic_is_another_message(world, broker) -> None:
    first = send(world, made("a"))
    other = send(world, made("a", topic="u"), topic="u")
    assert other.first_due_ms == {}
    assert other.origins != first.origins
    assert take_all(world) == take_all(world, topic="u") == ["a"]


def test_the_same_id_with_another_body_is_another_message(world, broker) -> None:
    """Clients in containers of one address and process id give the same ids to messages of their own."""
    first = results(send(world, made("a", body=b"of one")))
    broker.settle()
    other, again = results(send(world, made("a", body=b"of another"), made("a", body=b"of one")))
    assert [again] == first
    assert other != again
    assert results(send(world, made("a", body=b"of another"))) == [other]
    batch = [made("b", body=body) for body in (b"1", b"2", b"1")]
    one, two, three = results(send(world, *batch))
    assert one == three != two
    assert sorted(take_all(world)) == ["a", "a", "b", "b"]


def test_a_retry_with_another_due_time_gets_the_first_one(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    first = send(world, made("a", due))
    again = send(world, made("a", due + HOUR))
    assert results(again) == results(first)
    assert again.first_due_ms == {0: due}, "of which a front end makes the first handle"
    at_once = send(world, made("a"))
    assert results(at_once) == results(first)
    assert broker.ask(CountPending()).total == 1


def test_a_retry_of_a_recalled_message_does_not_schedule_it_again(world, broker) -> None:
    due = world.clock.wall_ms() + 5_000
    first = send(world, made("a", due))
    assert broker.ask(Recall("t", "a", due)).status is RecallStatus.CANCELLED
    assert results(send(world, made("a", due))) == results(first)
    assert broker.ask(CountPending()).total == 0
    assert broker.ask(Recall("t", "a", due)).status is RecallStatus.NOT_FOUND
    world.clock.advance(6_000)
    broker.settle()
    assert take_all(world) == []


def test_a_retry_after_the_hand_over_gets_the_first_result(world, broker) -> None:
    due = world.clock.wall_ms() + 1_000
    first = send(world, made("a", due))
    world.clock.advance(2_000)
    broker.settle()
    again = send(world, made("a", due))
    assert results(again) == results(first)
    assert again.queue_offsets == [-1]
    assert take_all(world) == ["a"]


def test_a_hand_over_within_the_window_is_no_send(world, broker) -> None:
    """The message was sent long ago; that it was handed over lately does not count."""
    send(world, made("a", world.clock.wall_ms() + 2 * WINDOW))
    world.clock.advance(2 * WINDOW + 1)
    broker.settle()
    assert send(world, made("a")).first_due_ms == {}
    assert take_all(world) == ["a", "a"]


def test_refused_messages_are_not_remembered(world, broker) -> None:
    broker.ask(CreateTopic("normal", TopicType.NORMAL, 1))
    due = world.clock.wall_ms() + 5_000
    refused = send(world, made("a", due, topic="normal"), topic="normal")
    assert refused.refused[0].code is ErrorCode.TYPE_CONFLICT
    sent = send(world, made("a", topic="normal"), topic="normal")
    assert sent.first_due_ms == {}
    assert take_all(world, topic="normal") == ["a"]


def test_nothing_repeats_what_is_refused_in_the_same_turn(world, broker) -> None:
    """A batch is refused for its second message; its first one comes by itself too."""
    too_late = made("b", world.clock.wall_ms() + 20 * 366 * 24 * HOUR)
    batch = Answer(SendMessages("t", [made("a"), too_late], [2]))
    alone, again = [Answer(SendMessages("t", [made("a")])) for _ in range(2)]
    broker.step([batch, alone, again])
    broker.settle()
    assert set(batch.result.refused) == {0, 1}
    assert not alone.result.refused
    assert results(again.result) == results(alone.result)
    assert take_all(world) == ["a"]


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("away_ms", [0, 60_000])
def test_a_crash_between_the_first_and_its_retry(
    world, broker, power_cut: bool, checkpoint: bool, away_ms: int
) -> None:
    due = world.clock.wall_ms() + 200_000
    first = send(world, made("a", due), made("b"))
    if checkpoint:
        broker.request_checkpoint()
        broker.settle()
        send(world, made("after"))
        world.clock.advance(1_500)
    world.clock.advance(away_ms)
    for _ in range(2):
        world.reopen(power_cut=power_cut)
        again = send(world, made("a", due), made("b"), made("c"))
        assert results(again)[:2] == results(first)
    world.clock.advance(WINDOW - away_ms)
    world.reopen()
    world.clock.advance(SPAN)
    assert send(world, made("a", due)).first_due_ms == {}
    assert broker.ask(CountPending()).total == 2


def test_an_answer_that_a_crash_took_with_it(world, broker) -> None:
    """Appended and durable, but the process died before the reply: the retry finds it."""
    due = world.clock.wall_ms() + 5_000
    lost = Answer(SendMessages("t", [made("a", due)]))
    broker.step([lost])
    broker.work_disk()
    assert not lost.done
    world.reopen(power_cut=True)
    assert send(world, made("a", due)).first_due_ms == {0: due}
    assert broker.ask(CountPending()).total == 1


def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_the_window(world, broker) -> None:
    send(world, made("a"))
    world.clock.step_wall(2 * HOUR)
    assert send(world, made("a")).first_due_ms == {0: 0}
    world.clock.step_wall(-5 * HOUR)
    assert send(world, made("a")).first_due_ms == {0: 0}
    world.clock.advance(WINDOW + SPAN)
    assert send(world, made("a")).first_due_ms == {}


def test_many_messages_and_many_turns(world, broker) -> None:
    """Chunks of the key index are filled and sealed, frames cross segments; every retry is recognised."""
    origins = {}
    for turn in range(60):
        names = [f"m{turn}-{i}" for i in range(40)]
        sent = send(world, *[made(name, body=bytes(60)) for name in names])
        assert sent.first_due_ms == {}
        origins |= dict(zip(names, sent.origins, strict=True))
        world.clock.advance(500)
        if turn % 20 == 10:
            world.reopen()
    for turn in range(0, 60, 7):
        names = [f"m{turn}-{i}" for i in range(40)]
        sent = send(
            world, *[made(name, body=bytes(60)) for name in reversed(names)], made(f"new{turn}")
        )
        assert sent.origins[:-1] == [origins[name] for name in reversed(names)]
        assert 40 not in sent.first_due_ms
    assert len(take_all(world)) == 60 * 40 + 9


def test_hashes_that_collide_are_distinguished(world, broker, monkeypatch) -> None:
    monkeypatch.setattr(message, "key_hash", lambda topic, message_id: 7)
    for i in range(3):
        assert send(world, *[made(f"m{i}-{j}") for j in range(3)]).first_due_ms == {}
    again = send(world, made("m1-2"), made("m3"), made("m1-2"), made("m3"))
    assert set(again.first_due_ms) == {0, 2, 3}
    assert again.origins[1] == again.origins[3]
    assert len(take_all(world)) == 10


def test_the_setting_switches_it_off(make_world) -> None:
    world = make_world()
    world.broker.settings = world.broker.settings._replace(dedup_ms=0)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    sent = send(world, made("a"), made("a"))
    assert len(set(sent.origins)) == 2
    assert send(world, made("a")).first_due_ms == {}
    world.reopen()
    assert send(world, made("a")).first_due_ms == {}
    assert take_all(world) == ["a"] * 4


def test_a_record_that_is_damaged_repeats_nothing(world, broker) -> None:
    position = send(world, made("a")).origins[0]
    send(world, made("b"))
    broker.request_checkpoint()
    broker.settle()
    world.disk.flip("shard-00/log/00000000000000000000.log", position + 40, 1, 4)
    world.reopen()
    assert send(world, made("b")).first_due_ms == {0: 0}
    assert send(world, made("a")).first_due_ms == {}


def test_only_a_damaged_log_is_passed_over(world, broker, monkeypatch) -> None:
    send(world, made("a"))

    def fails(position: int) -> bytes:
        raise HorologError(ErrorCode.DISK_FAILED, "read: Input/output error")

    monkeypatch.setattr(broker.shard.log, "message", fails)
    with pytest.raises(HorologError, match="Input"):
        send(world, made("a"))


def test_what_repeats_is_not_logged(world, broker) -> None:
    send(world, made("a"))
    end = broker.ask(DescribeBroker()).log_end
    send(world, *[made("a")] * 50)
    assert broker.ask(DescribeBroker()).log_end == end


# --- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 5, 700])
def test_a_filter_never_forgets_in_time(batch: int) -> None:
    filter_ = KeyFilter(10_000)
    random = np.random.default_rng(batch)
    sent: list[tuple[int, np.ndarray]] = []
    for turn in range(60):
        now = turn * 500
        keys = random.integers(0, 1 << 64, batch, np.uint64)
        old = [each for at, each in sent if now - at < 10_000]
        if old:
            again = np.concatenate([*old[:: max(1, len(old) // 3)], keys])
            assert set(range(len(again) - batch)) <= set(filter_.add(again, now).tolist())
        else:
            filter_.add(keys, now)
        sent.append((now, keys))


def test_a_filter_says_no_to_nearly_all_new_keys_and_does_not_grow_for_ever() -> None:
    filter_ = KeyFilter(10_000)
    random = np.random.default_rng(1)
    hits = 0
    for turn in range(400):
        hits += len(filter_.add(random.integers(0, 1 << 64, 5_000, np.uint64), turn * 200))
    assert hits < 0.001 * 400 * 5_000
    assert len(filter_._tables) <= 3
    assert sum(table.size for table in filter_._tables) < 8 << 20
    same = np.full(100, 12345, np.uint64)
    filter_.add(same, 80_000)
    assert filter_.add(same[:1], 80_000).tolist() == [0]


def test_spans_are_bounded_and_never_too_short() -> None:
    times = LogTimes(WINDOW)
    appended = []
    for i in range(3_000):
        now = i * 130 + (i // 1_000) * 300_000
        times.note(now, now, i)
        appended.append((now, i))
        since = times.since(now)
        assert since is not None
        wanted = min(p for at, p in appended if at > now - WINDOW)
        oldest = min(p for at, p in appended if at > now - WINDOW - SPAN)
        assert oldest <= since <= wanted
    assert len(times.captured(1 << 60)) <= WINDOW // SPAN + 1
    assert times.since(now + WINDOW + SPAN) is None
    assert LogTimes(24 * HOUR).span_ms == 720_000


def test_spans_of_a_former_process_are_as_old_as_the_wall_clock_says() -> None:
    former = LogTimes(WINDOW)
    for i in range(10):
        former.note(i * 10_000, 1_000_000 + i * 10_000, i)
    times = LogTimes(WINDOW)
    for wall_ms, position in former.captured(8):
        times.restore_span(wall_ms, position, 1_120_000, 5_000)
    assert times.since(5_000) == 0
    assert times.since(5_000 + 5_000) == 1
    assert times.since(5_000 + 70_000 + SPAN) is None
    stepped = LogTimes(WINDOW)
    for wall_ms, position in ((9_000_000, 1), (1_000_000, 2), (1_001_000, 3)):
        stepped.restore_span(wall_ms, position, 1_002_000, 0)
    assert stepped.since(0) == 1, "the clock was set back: better too long than too short"
    assert repeats.First(1, 2, 3, 4).origin == 1


def test_a_step_of_the_wall_clock_begins_a_span() -> None:
    """What is sent after it must not be as old as what was sent before, when a restart goes by the wall clock."""
    former = LogTimes(WINDOW)
    former.note(0, 1_000_000, 10)
    former.note(100, 1_000_000 + HOUR, 20)
    former.note(200, 1_000_100 + HOUR, 30)
    assert former.captured(100) == [(1_000_000, 10), (1_000_000 + HOUR, 20)]
    times = LogTimes(WINDOW)
    for wall_ms, position in former.captured(100):
        times.restore_span(wall_ms, position, 1_000_200 + HOUR, 50_000)
    assert times.since(50_000) == 20


# --- clients that reuse ids ---------------------------------------------------------------------


def by_object(message_id: str, born_ms: int, port: int = 4_711, due_ms: int = 0):
    """A message as a 4.x client sends it over one connection."""
    return encode(
        topic="t",
        body=b"x",
        message_id=message_id,
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
        born_ms=born_ms,
        born_host=(b"\x7f\0\0\1", port),
    )


def reuse(world, *messages):
    return world.broker.ask(SendMessages("t", list(messages), reuses_ids=True))


@pytest.mark.parametrize("due_in", [0, 5_000, 40 * 24 * HOUR])
def test_a_message_object_is_sent_again_after_its_answer(world, broker, due_in: int) -> None:
    due = world.clock.wall_ms() + due_in if due_in else 0
    origins = set()
    for born in (1_000, 1_001, 3_000, 90_000):
        sent = reuse(world, by_object("a", born, due_ms=due))
        assert sent.first_due_ms == {}
        origins.add(sent.origins[0])
        world.clock.advance(1)
        broker.settle()
    assert len(origins) == 4


def test_what_is_born_at_once_or_comes_over_another_connection_repeats(world, broker) -> None:
    first = reuse(world, by_object("a", 1_000))
    second = reuse(world, by_object("a", 2_000))
    assert results(first) != results(second)
    again = reuse(world, by_object("a", 2_000))
    assert results(again) != results(second), "one millisecond was enough to store it"
    second = again
    world.clock.advance(1_000)
    assert results(reuse(world, by_object("a", 2_000))) == results(second), "asynchronous retry"
    assert results(reuse(world, by_object("a", 5_000, port=4_712))) == results(second), "newest"
    assert results(send(world, by_object("a", 5_000))) == results(first), "of a 5.x client"


def test_a_message_object_is_sent_again_before_its_answer(world, broker) -> None:
    """In one turn, and while the first one is not stored: a client that gave up has waited for longer."""
    born = (1_000, 1_002, 1_002, 4_100)
    answers = [Answer(SendMessages("t", [by_object("a", at)], reuses_ids=True)) for at in born]
    broker.step(answers)
    broker.settle()
    origins = [answer.result.origins[0] for answer in answers]
    assert len(set(origins)) == 2, "1 002 again, and 4 100, are retries"
    assert origins[1] == origins[2] == origins[3]


def test_one_id_in_all_messages_of_a_benchmark(world, broker) -> None:
    for born in range(300):
        assert reuse(world, by_object("a", born)).first_due_ms == {}
    assert len(take_all(world)) == 300


def test_a_retry_that_comes_while_the_first_is_being_stored(world, broker) -> None:
    """The client gave up before the answer went out, perhaps in the very turn that finds the retry."""
    for name in map(str, range(20)):
        asked = [
            Answer(SendMessages("t", [by_object(name, born)], reuses_ids=True))
            for born in (1_000, 4_000)
        ]
        for each in asked:
            broker.step([each])
        broker.settle()
        first, again = (each.result for each in asked)
        assert results(first) == results(again), name
