"""Bulk recall: exact, in bounded pieces, and truthful beside hand-over, restarts and jobs (P8, P9)."""

from __future__ import annotations

from random import Random

import pytest

from horolog.broker.broker import Input
from horolog.broker.recall import bulk_recalls
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError
from horolog.limits import BULK_ROWS
from horolog.log.control_records import RECALLED, decode_recall_many, encode_recall_many
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    ListPending,
    MessageType,
    Recall,
    RecalledMany,
    RecallMany,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, properties_of

HOUR = 3_600_000
DAY = 24 * HOUR
EVER = 1 << 50


@pytest.fixture
def broker(world):
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 3))
    return world.broker


def fill(world, count: int, *, seed: int = 1, due_in: tuple[int, ...] = (5_000, HOUR, 9 * HOUR)):
    """Messages in all places: [(topic, id, due time, tag)]."""
    random = Random(seed)
    now = world.clock.wall_ms()
    known = []
    for first in range(0, count, 50):
        for topic in ("t", "u"):
            batch = []
            for i in range(first, min(count, first + 50)):
                due = now + random.choice(due_in) + random.randrange(60_000)
                tag = random.choice([None, "Aa", "BB", "gate"])
                message_id = f"{seed}-{topic}{i}"
                batch.append(
                    encode(
                        topic=topic,
                        body=b"TAGS\x01BB\x02" * random.randrange(1, 5),
                        message_id=message_id,
                        type=MessageType.DELAY,
                        due_ms=due,
                        tag=tag,
                    )
                )
                known.append((topic, message_id, due, tag or ""))
            world.broker.ask(SendMessages(topic, batch))
    return known


def listed(world) -> set[tuple[str, str, int]]:
    found = world.broker.ask(ListPending(0, EVER, limit=10_000))
    return {(each.topic, each.message_id, each.due_ms) for each in found}


def seen(world) -> set[str]:
    got = set()
    for topic in ("t", "u"):
        while messages := world.broker.ask(
            Receive("g", topic, -1, "*", 32, 600_000, False, 0, "c")
        ).messages:
            for m in messages:
                decoded = properties_of(m)
                assert decoded["UNIQ_KEY"] not in got
                got.add(decoded["UNIQ_KEY"])
    return got


PLACES = (5_000, HOUR, 9 * HOUR, 2 * DAY, 40 * DAY, 400 * DAY)


@pytest.mark.parametrize("tag", ["", "Aa", "BB", "nobody"])
@pytest.mark.parametrize("restart", [False, True])
def test_window_topic_and_tag_are_exact(world, broker, tag, restart) -> None:
    """The tags "Aa" and "BB" have the same code; bodies look like properties."""
    known = fill(world, 300, due_in=PLACES)
    dues = sorted(due for _, _, due, _ in known)
    for low, high in ((dues[40], dues[200]), (dues[200], dues[350] + 1), (0, EVER)):
        meant = {
            (topic, name, due)
            for topic, name, due, of in known
            if topic == "t" and low <= due < high and (not tag or of == tag)
        }
        dry = broker.ask(RecallMany("t", low, high, tag, dry_run=True))
        assert (dry.matched, dry.cancelled) == (len(meant), 0)
        assert len(listed(world)) == len(known)
        done = broker.ask(RecallMany("t", low, high, tag))
        assert done == RecalledMany(dry.matched, dry.matched, dry.bytes)
        known = [row for row in known if row[:3] not in meant]
        if restart:
            world.reopen(power_cut=True)
            broker = world.broker
        assert listed(world) == {row[:3] for row in known}
        assert broker.ask(CountPending()).total == len(known)
        assert broker.ask(RecallMany("t", low, high, tag)).matched == 0
        for topic, name, due in sorted(meant)[:3]:
            answer = broker.ask(Recall(topic, name, due))
            assert answer.status is RecallStatus.NOT_FOUND
            assert "was recalled before" in answer.detail
    world.clock.advance(402 * DAY)
    broker.settle(3_000)
    if not restart:
        assert seen(world) == {name for _, name, _, _ in known}
    view = broker.ask(DescribeBroker())
    assert (view.pending, view.handed_over, view.problems) == (0, len(known), [])


def test_what_is_sent_later_is_left_alone(world, broker) -> None:
    before = fill(world, 100, seed=1, due_in=PLACES)
    now = world.clock.wall_ms()
    answer = Answer(RecallMany("t", 0, EVER))
    late = encode(topic="t", body=b"x", message_id="late", type=MessageType.DELAY, due_ms=now + 9)
    broker.step([answer, Answer(SendMessages("t", [late]))])
    fill(world, 100, seed=2, due_in=PLACES)
    broker.settle()
    assert answer.result.cancelled == sum(row[0] == "t" for row in before)
    assert broker.ask(CountPending("t")).total == 101


def test_it_covers_what_was_sent_before_but_not_answered(world, broker) -> None:
    now = world.clock.wall_ms()
    sent = encode(topic="t", body=b"x", message_id="m", type=MessageType.DELAY, due_ms=now + 9_000)
    broker.step([Answer(SendMessages("t", [sent]))])
    answer = Answer(RecallMany("t", 0, EVER))
    broker.step([answer])
    broker.settle()
    assert answer.result.cancelled == 1


def test_several_at_once_take_every_message_once(world, broker) -> None:
    known = fill(world, 300, due_in=PLACES)
    commands = [
        RecallMany("t", 0, EVER, dry_run=True),
        RecallMany("t", 0, EVER, "Aa"),
        RecallMany("t", 0, EVER),
        RecallMany("t", 0, EVER),
        RecallMany("u", 0, EVER),
    ]
    answers = [Answer(command) for command in commands]
    broker.step(answers)
    name, due = next((row[1], row[2]) for row in known if row[0] == "t")
    single = Answer(Recall("t", name, due))
    broker.step([single])
    broker.settle()
    of_t = sum(row[0] == "t" for row in known)
    cancelled = [answer.result.cancelled for answer in answers]
    won = int(single.result.status is RecallStatus.CANCELLED)
    assert sum(cancelled[1:4]) == of_t - won
    assert cancelled[3] == 0
    assert cancelled[4] == len(known) - of_t
    assert broker.ask(CountPending()).total == 0
    assert broker.ask(DescribeBroker()).recalled == len(known)


def test_refusals(world, broker) -> None:
    fill(world, 10)
    for command, code in (
        (RecallMany("nope", 0, 1), ErrorCode.TOPIC_NOT_FOUND),
        (RecallMany("t", 5, 5), ErrorCode.BAD_REQUEST),
    ):
        with pytest.raises(HorologError) as refused:
            broker.ask(command)
        assert refused.value.code is code
    shard = broker.shard
    shard.settings = shard.settings._replace(reserve_bytes=1 << 20)  # more than a segment has
    world.disk.capacity_bytes = world.disk.used_bytes() + 1_000
    with pytest.raises(HorologError) as refused:
        broker.ask(RecallMany("t", 0, EVER))
    assert refused.value.code is ErrorCode.DISK_FULL
    assert broker.ask(RecallMany("t", 0, EVER, dry_run=True)).matched == 10
    world.disk.capacity_bytes = None
    assert broker.ask(RecallMany("t", 0, EVER)).cancelled == 10


@pytest.mark.parametrize("cut", range(0, 30, 3))
def test_killed_in_between(world, broker, cut) -> None:
    """What was named in a committed record stays cancelled, the rest waits; nothing is both."""
    known = fill(world, 600, due_in=PLACES)
    answer = Answer(RecallMany("t", 0, EVER))
    broker.step([answer])
    for _ in range(cut):
        broker.step([])
    world.reopen(power_cut=True)
    broker = world.broker
    left = listed(world)
    assert left <= {row[:3] for row in known}
    assert {row for row in left if row[0] == "u"} == {row[:3] for row in known if row[0] == "u"}
    if answer.done:
        assert not any(row[0] == "t" for row in left)
    assert broker.ask(RecallMany("t", 0, EVER)).cancelled == sum(row[0] == "t" for row in left)
    assert broker.ask(DescribeBroker()).recalled == 600


def test_pieces_are_bounded_and_hand_over_goes_on(world, broker) -> None:
    """Small segments make small records: many turns, and messages that become due in between are handed over."""
    fill(world, 3_000, due_in=(9 * HOUR,))
    now = world.clock.wall_ms()
    soon = [
        encode(topic="u", body=b"x", message_id=f"s{i}", type=MessageType.DELAY, due_ms=now + 1 + i)
        for i in range(20)
    ]
    broker.ask(SendMessages("u", soon))
    answer = Answer(RecallMany("t", 0, EVER))
    core = broker.core
    most = 0
    turns = 0
    broker.step([answer])
    while not answer.done:
        world.clock.advance(1)
        before = core.shard.recalled
        broker.step([])
        broker.work_disk()
        most = max(most, core.shard.recalled - before)
        turns += 1
    assert answer.result.cancelled == 3_000
    assert turns > 4
    assert most <= 3 * core._decisions.recalls.bulk._rows_of_a_record()
    assert core.shard.handed_over > 0


def test_sources_are_exchanged_meanwhile(world, broker, monkeypatch) -> None:
    """Buffers become runs and runs are merged between the pieces; a dry run lets nothing be exchanged."""
    monkeypatch.setattr(bulk_recalls, "BULK_ROWS", 40)
    known = fill(world, 600, due_in=(2 * DAY, 3 * DAY, 40 * DAY, 400 * DAY))
    for dry_run in (True, False):
        answer = Answer(RecallMany("t", 0, EVER, dry_run=dry_run))
        broker.step([answer])
        extra = 0
        while not answer.done:
            extra += 1
            world.clock.advance(500)
            fill(world, 30, seed=extra + 10 * dry_run, due_in=(2 * DAY, 40 * DAY)) if (
                extra < 8
            ) else broker.step([])
            broker.work_disk()
        assert answer.result.matched == sum(row[0] == "t" for row in known)
        if dry_run:
            known += [(t, n, d, "") for t, n, d in listed(world) - {row[:3] for row in known}]
    assert {row for row in listed(world) if row in {k[:3] for k in known if k[0] == "t"}} == set()


def test_the_record() -> None:
    import numpy as np

    rows = np.zeros(3, RECALLED)
    rows["position"], rows["row"], rows["due_ms"] = [7, 8, 1 << 50], [0, 1, 2], [5, 6, 7]
    record = encode_recall_many(4, rows)
    found = decode_recall_many(record[16:])
    assert found.topic == 4
    assert found.messages.tolist() == rows.tolist()


def test_loaded_messages_are_not_handed_over(world, broker) -> None:
    """They are in the window already, and due in the turn in which the bulk recall comes."""
    fill(world, 200, due_in=(5_000,))
    world.clock.advance(4_000)
    broker.settle()
    world.clock.advance(70_000)
    answer = Answer(RecallMany("t", 0, EVER))
    broker.step([answer])
    broker.settle(500)
    names = seen(world)
    handed = sum("-t" in name for name in names)
    assert answer.result.cancelled + handed == 200
    assert answer.result.cancelled > 0
    assert sum("-u" in name for name in names) == 200


def test_damaged_entries_are_left_for_the_quarantine(world, broker) -> None:
    fill(world, 50, due_in=(2 * HOUR,))
    core = broker.core
    [hour] = [h for h in core.shard.delay.hours.values() if h.count]
    hour._index.write(64 * 3 + 48, b"\x63")  # the topic of entry 3
    hour._index_view.drop()
    matched = broker.ask(RecallMany("t", 0, EVER)).matched
    assert matched in (49, 50)
    assert int((hour.states[: hour.count] == EntryState.RECALLED).sum()) == matched


def test_a_turn_of_full_size(world) -> None:
    """BULK_ROWS rows fit into one frame of a real segment."""
    assert BULK_ROWS * RECALLED.itemsize < 1 << 20
    assert Input
