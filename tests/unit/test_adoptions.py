"""Adopted runs: transactions of files that somebody else wrote, committed by one record of the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from offloads import SMALL
from worlds import adopted_files, checkpoint, take_all

from horolog.broker.adopt import adoptions
from horolog.broker.adopt.staging import Begun
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, FIND_MAX, HOUR_MS, MAX_DELAY_MS
from horolog.protocol.adoption_commands import Adopt, Adopted, BeginAdoption, DescribeAdoption
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DeleteTopic,
    DescribeBroker,
    FindMessages,
    ListPending,
    MessageState,
    MessageType,
    Recall,
    RecallByKey,
    RecallMany,
    RecallStatus,
    Reschedule,
    RescheduleStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.history_commands import MessageEvent, ShowMessage
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_adoptions import Transaction
from horolog.testing.sim_broker import Answer


def made(message_id: str, due_ms: int, **more):
    return encode(
        topic="t",
        body=b"x" * 50,
        message_id=message_id,
        type=MessageType.DELAY,
        due_ms=due_ms,
        **more,
    )


def open_world(make_world, queues: int = 1, **settings):
    world = make_world(segment_bytes=262_144)
    world.broker.settings = world.broker.settings._replace(
        far=SMALL, **{"retention_ms": MAX_DELAY_MS, **settings}
    )
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, queues))
    return world


def begun(world, version: int = 1, app: str = "load", token: str = "") -> Transaction:
    token = token or f"{version:016x}"
    answer = world.broker.ask(BeginAdoption(app, version, "t"))
    assert not answer.already
    now = world.clock.wall_ms()
    transaction = Transaction(
        world.broker.place, Begun(token, app, version, "t", now), answer.topic_id, answer.queues
    )
    transaction.begin()
    return transaction


def adopt(world, parts, version: int = 1, app: str = "load", *, inline: bool = False) -> Adopted:
    """Begin, stage, commit: as the server does it."""
    transaction = begun(world, version, app)
    transaction.stage(parts)
    done = world.broker.ask(transaction.prepare(world.clock.wall_ms(), inline=inline))
    transaction.end()
    return done


def named(delays: list[int], now: int, first: int = 0):
    return [made(f"m{first + i}", now + delay) for i, delay in enumerate(delays)]


@pytest.mark.parametrize("inline", [False, True])
def test_overdue_near_and_years_ahead(make_world, inline) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    delays = [MAX_DELAY_MS, -5_000, 3_000, -DAY_MS, 0, 9_000, 25 * HOUR_MS, 400 * DAY_MS]
    done = adopt(world, [named(delays[:4], now), named(delays[4:], now, 4)], inline=inline)
    assert (done.already, done.rows, done.files) == (False, 8, 0 if inline else 2)
    assert take_all(world) == ["m3", "m1", "m4"]
    assert bool(adopted_files(world)) is not inline
    assert world.broker.ask(CountPending("t")).total == 5
    for delay, expected in sorted(zip(delays, range(8), strict=True))[3:]:
        world.clock.advance(now + delay - world.clock.wall_ms() - 1)
        world.broker.settle(2_000)
        assert take_all(world) == []
        world.clock.advance(1)
        world.broker.settle()
        assert take_all(world) == [f"m{expected}"]
    assert world.broker.ask(DescribeBroker()).pending == 0


@pytest.mark.parametrize("inline", [False, True])
def test_a_version_is_adopted_once(make_world, inline) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    transaction = begun(world, 5)
    transaction.stage([named([5_000, 6_000], now)])
    command = transaction.prepare(now, inline=inline)
    assert world.broker.ask(command).rows == 2
    for again in (command, command):
        assert world.broker.ask(again).already
        world.reopen(power_cut=True)
    assert world.broker.ask(DescribeAdoption("load")).version == 5
    assert world.broker.ask(DescribeAdoption("other")).version == -1
    checkpoint(world)
    world.reopen(power_cut=True)
    assert world.broker.ask(BeginAdoption("load", 5, "t")).already
    assert world.broker.ask(BeginAdoption("load", 4, "t")).already
    assert not world.broker.ask(BeginAdoption("load", 6, "t")).already
    assert world.broker.ask(CountPending()).total == 2


def test_an_empty_transaction_is_recorded(make_world) -> None:
    world = open_world(make_world)
    done = adopt(world, [])
    assert (done.already, done.rows, done.files) == (False, 0, 0)
    assert done.position > 0
    world.reopen(power_cut=True)
    assert world.broker.ask(DescribeAdoption("load")).version == 1


def test_two_commits_of_a_version_in_one_turn(make_world) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    first = begun(world, 1, token="a" * 16)
    second = begun(world, 1, token="b" * 16)
    commands = []
    for transaction in (first, second):
        transaction.stage([named([HOUR_MS], now)])
        commands.append(transaction.prepare(now))
    answers = [world.broker.ask(command) for command in commands]
    assert [answer.already for answer in answers] == [False, True]
    second.undo()
    first.end()
    world.reopen(power_cut=True)
    assert world.broker.ask(CountPending()).total == 1
    assert len(adopted_files(world)) == 1


def test_order_within_a_millisecond(make_world) -> None:
    """Half of an hour in one millisecond, over several files, with sends before, between and after."""
    world = open_world(make_world)
    now = world.clock.wall_ms()
    due = now + 30 * HOUR_MS
    expected = []

    def send(name: str) -> None:
        world.broker.ask(SendMessages("t", [made(name, due)]))
        expected.append(name)

    send("first")
    for version in range(3):
        parts = [
            [made(f"v{version}p{part}r{row}", due) for row in range(200 if version == 1 else 700)]
            for part in range(3)
        ]
        adopt(world, parts, version, inline=version == 1)
        expected += [message.message_id for part in parts for message in part]
        send(f"sent{version}")
        if version == 1:
            checkpoint(world)
            world.reopen(power_cut=True)
    others = [[made(f"o{row}", due - 1_800_000 + row * 500) for row in range(900)]]
    adopt(world, others, 9)
    world.clock.advance(29 * HOUR_MS)
    world.broker.settle(2_000)
    world.clock.advance(HOUR_MS)
    world.broker.settle(5_000)
    assert take_all(world) == [f"o{row}" for row in range(900)] + expected


def test_recall_reschedule_find_list_and_counts(make_world) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    delays = [3_000, 4_000, 2 * HOUR_MS, 30 * DAY_MS, 30 * DAY_MS + 1, 90 * DAY_MS, 91 * DAY_MS]
    adopt(world, [[*named(delays, now), made("tagged", now + 92 * DAY_MS, tag="A")]])

    def recall(number: int) -> RecallStatus:
        return world.broker.ask(Recall("t", f"m{number}", now + delays[number])).status

    assert recall(0) is RecallStatus.CANCELLED
    assert recall(0) is RecallStatus.NOT_FOUND
    moved = world.broker.ask(Reschedule("t", "m3", now + delays[3], now + 5_000))
    assert moved.status is RescheduleStatus.RESCHEDULED
    window = RecallMany("t", now + 89 * DAY_MS, now + 93 * DAY_MS, "A")
    assert world.broker.ask(window).cancelled == 1
    for _ in range(2):
        assert world.broker.ask(CountPending()).total == 6
        listed = world.broker.ask(ListPending(0, 1 << 50, limit=100))
        assert [m.message_id for m in listed] == ["m1", "m3", "m2", "m4", "m5", "m6"]
        (found,) = world.broker.ask(FindMessages("t", message_id="m5"))
        assert (found.state, found.due_ms) == (MessageState.PENDING, now + delays[5])
        (gone,) = world.broker.ask(FindMessages("t", message_id="m0"))
        assert gone.state is MessageState.RECALLED
        checkpoint(world)
        world.reopen(power_cut=True)
    assert world.broker.ask(RecallMany("t", now + DAY_MS, now + 31 * DAY_MS)).cancelled == 1
    world.clock.advance(92 * DAY_MS)
    world.broker.settle(2_000)
    assert take_all(world) == ["m1", "m3", "m2", "m5", "m6"]
    assert recall(5) is RecallStatus.ALREADY_DELIVERED
    assert [m.state for m in world.broker.ask(FindMessages("t", message_id="m5"))] == [
        MessageState.DELIVERED
    ]


def test_a_recall_waits_for_a_commit_that_is_under_way(make_world) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    transaction = begun(world)
    transaction.stage([named([HOUR_MS], now)])
    commit = Answer(transaction.prepare(now))
    recall = Answer(Recall("t", "m0", now + HOUR_MS))
    world.broker.step([recall, commit])
    world.broker.settle()
    other = Answer(Recall("t", "m0", now + HOUR_MS))
    world.broker.step([other])
    world.broker.settle()
    assert [recall.result.status, other.result.status] in (
        [RecallStatus.CANCELLED, RecallStatus.NOT_FOUND],
        [RecallStatus.NOT_FOUND, RecallStatus.CANCELLED],
    )


def adopt_with_keys(world, rows: int, step_ms: int):
    """Two files: messages with the key `other`, due in a day; three with `order-7`, a step apart; a bare one."""
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    plain = [made(f"p{row}", now + DAY_MS + row, keys=["other"]) for row in range(rows)]
    wanted = [made(f"w{i}", now + (i + 1) * step_ms, keys=["a", "order-7"]) for i in range(3)]
    return adopt(world, [[*plain, *wanted[:2]], [wanted[2], made("bare", now + DAY_MS)]])


@pytest.mark.parametrize("rows", [3, 5_000])
def test_recall_by_key_finds_adopted_messages(make_world, rows) -> None:
    """No index has their keys: they are looked at in pieces, over several turns if there are many."""
    world = make_world(segment_bytes=1 << 22)
    now = world.clock.wall_ms()
    adopt_with_keys(world, rows, DAY_MS)
    world.broker.ask(SendMessages("t", [made("sent", now + DAY_MS, keys=["order-7"])]))
    assert world.broker.ask(Recall("t", "w1", now + 2 * DAY_MS)).status is RecallStatus.CANCELLED
    found = world.broker.ask(RecallByKey("t", "order-7"))
    assert sorted(each.message_id for each in found) == ["sent", "w0", "w2"]
    assert {each.status for each in found} == {RecallStatus.CANCELLED}
    assert world.broker.ask(RecallByKey("t", "nobody")) == []
    assert world.broker.ask(CountPending()).total == rows + 1
    if rows > 128:
        with pytest.raises(HorologError) as refused:
            world.broker.ask(RecallByKey("t", "other"))
        assert refused.value.field == "key"
    world.reopen(power_cut=True)
    world.clock.advance(5 * DAY_MS)
    world.broker.settle(5_000)
    assert sorted(take_all(world)) == sorted(["bare", *(f"p{row}" for row in range(rows))])


@pytest.mark.parametrize("rows", [3, 5_000])
def test_a_look_up_by_key_shows_adopted_messages_that_wait(make_world, rows) -> None:
    """As it shows others: what it finds in pieces is told once, also when it is handed over."""
    world = make_world(segment_bytes=1 << 22)
    now = world.clock.wall_ms()
    adopted = adopt_with_keys(world, rows, HOUR_MS)
    sent = world.broker.ask(
        SendMessages("t", [made("sent", now + DAY_MS, keys=["order-7"]), made("w0", now + DAY_MS)])
    )
    found = world.broker.ask(FindMessages("t", key="order-7"))
    assert [each.message_id for each in found] == ["w0", "w1", "w2", "sent"]
    assert {each.origin for each in found} == {adopted.position, sent.origins[0]}
    assert {each.state for each in found} == {MessageState.PENDING}
    assert found[0] == next(
        each
        for each in world.broker.ask(FindMessages("t", "w0"))
        if each.origin == adopted.position
    )
    assert world.broker.ask(FindMessages("t", key="nobody")) == []
    world.clock.advance(HOUR_MS)
    world.broker.settle()
    assert world.broker.ask(Recall("t", "w1", now + 2 * HOUR_MS)).status is RecallStatus.CANCELLED
    left = {each.message_id: each.state for each in world.broker.ask(FindMessages("t", key="a"))}
    assert left == {"w0": MessageState.DELIVERED, "w2": MessageState.PENDING}
    if rows > FIND_MAX:
        with pytest.raises(HorologError) as refused:
            world.broker.ask(FindMessages("t", key="other"))
        assert refused.value.field == "key"
    for odd in (FindMessages("t", "w0", "a"), FindMessages("t")):
        with pytest.raises(HorologError) as refused:
            world.broker.ask(odd)
        assert refused.value.field == "message_id"


def test_a_token_that_comes_again_touches_nothing(make_world, monkeypatch) -> None:
    """An app may be forgotten, and begin once more under the same token: what it had committed stays as it was."""
    monkeypatch.setattr(adoptions, "ADOPTION_APPS_MAX", 1)
    world = open_world(make_world)
    now = world.clock.wall_ms()
    adopt(world, [named([HOUR_MS, 2 * HOUR_MS], now)])
    adopt(world, [], app="other")
    assert world.broker.ask(DescribeAdoption("load")).version == -1
    for first, is_committed in ((10, False), (20, True)):
        world.clock.advance(1)
        again = begun(world)
        again.stage([named([HOUR_MS], now, first)])
        command = again.prepare(now)
        assert len(adopted_files(world)) == 2
        if is_committed:
            assert not world.broker.ask(command).already
            again.end()
        else:
            again.undo()
        world.reopen(power_cut=True)
    world.clock.advance(3 * HOUR_MS)
    world.broker.settle(2_000)
    assert sorted(take_all(world)) == ["m0", "m1", "m20"]


@pytest.mark.parametrize("inline", [False, True])
def test_other_rows_under_a_committed_name_are_refused(make_world, inline) -> None:
    """After a power cut, from the log and from a checkpoint; who has no fingerprint is answered as ever."""
    world = open_world(make_world)
    now = world.clock.wall_ms()
    transaction = begun(world, 5)
    transaction.stage([named([5_000, 6_000], now)])
    command = replace(transaction.prepare(now, inline=inline), fingerprint="t: 2 rows")
    assert world.broker.ask(command).rows == 2
    for reopen in (None, world.reopen, lambda: (checkpoint(world), world.reopen(power_cut=True))):
        if reopen is not None:
            reopen()
        assert world.broker.ask(DescribeAdoption("load")) == (5, "t: 2 rows")
        for version in (4, 5):
            assert world.broker.ask(BeginAdoption("load", version, "t", "t: 2 rows")).already
            assert world.broker.ask(BeginAdoption("load", version, "t")).already
            for other in (
                BeginAdoption("load", version, "t", "t: 3 rows"),
                replace(command, version=version, fingerprint="t: 3 rows"),
            ):
                with pytest.raises(HorologError) as refused:
                    world.broker.ask(other)
                assert refused.value.code is ErrorCode.FORBIDDEN
                assert refused.value.message == (
                    "fingerprint: 'load' has committed version 5 as 't: 2 rows', and this is 't: 3 rows'; "
                    "nothing is changed: other rows need another name"
                )
        assert world.broker.ask(command).already
    assert not world.broker.ask(BeginAdoption("load", 6, "t", "t: 3 rows")).already
    assert world.broker.ask(CountPending()).total == 2


def test_a_record_without_a_fingerprint_is_compared_with_nothing(make_world) -> None:
    """As older logs have it; the next version brings one."""
    world = open_world(make_world)
    assert adopt(world, [], 1).rows == 0
    world.reopen(power_cut=True)
    assert world.broker.ask(BeginAdoption("load", 1, "t", "any")).already
    assert world.broker.ask(Adopt("load", 2, "t", fingerprint="one")).rows == 0
    for version, fingerprint, code in (
        (2, "two", ErrorCode.FORBIDDEN),
        (3, "x" * 256, ErrorCode.BAD_REQUEST),
    ):
        with pytest.raises(HorologError) as refused:
            world.broker.ask(BeginAdoption("load", version, "t", fingerprint))
        assert (refused.value.code, refused.value.field) == (code, "fingerprint")


@pytest.mark.parametrize("inline", [False, True])
def test_rows_of_a_deleted_topic_are_not_those_of_its_successor(make_world, inline: bool) -> None:
    world = open_world(make_world)
    now = world.clock.wall_ms()
    transaction = begun(world)
    transaction.stage([named([5_000, 9_000], now)])
    command = transaction.prepare(now, inline=inline)
    world.broker.ask(DeleteTopic("t"))
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    with pytest.raises(HorologError, match="deleted and created again") as refused:
        world.broker.ask(command)
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_REQUEST, "topic")
    adopt(world, [named([5_000], now)], version=2, inline=inline)
    world.clock.advance(10_000)
    world.broker.settle()
    assert take_all(world) == ["m0"]


def test_a_history_goes_on_when_the_frame_of_its_adoption_has_rotted(make_world) -> None:
    """It was read whole, and is in memory still."""
    world = open_world(make_world)
    adopt(world, [named([40 * DAY_MS], world.clock.wall_ms())])
    before = world.broker.ask(ShowMessage("t", "m0"))
    assert before.complete
    assert [each.event for each in before.events] == [MessageEvent.ACCEPTED]
    origin = before.messages[0].origin
    world.disk.flip("shard-00/log/00000000000000000000.log", origin + 20, 3, 6)
    after = world.broker.ask(ShowMessage("t", "m0"))
    assert (after.complete, after.events) == (False, [])
    assert after.messages == before.messages
