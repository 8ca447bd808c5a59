"""Promotion on the broker: an hour of the lake comes back exactly once, whenever it is killed."""

from __future__ import annotations

from typing import Any

import pytest
from offloads import begin, exported, hour_after, open_world, pending
from worlds import changes_of, checkpoint, killed_at, take_all

from horolog.broker.adopt.staging import Begun
from horolog.delay.tier import Promotion
from horolog.errors import HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import Adopted, BeginAdoption
from horolog.protocol.commands import (
    CountPending,
    FindMessages,
    MessageState,
    MessageType,
    Recall,
    SendMessages,
)
from horolog.protocol.history_commands import MessageEvent, ShowMessage
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.tier_commands import (
    CommitOffload,
    DescribeTier,
    Elsewhere,
    ListRecalled,
    TierHour,
    TierRow,
)
from horolog.testing.sim_adoptions import Transaction


def made(topic: str, name: str, due_ms: int):
    return encode(
        topic=topic, body=b"x" * 40, message_id=name, type=MessageType.DELAY, due_ms=due_ms
    )


def in_lake(world) -> dict[str, tuple[str, int]]:
    """Three messages of two topics in each of five hours, beginning three days ahead, all in the lake."""
    start = hour_after(world, 3 * DAY_MS)
    sent: dict[str, tuple[str, int]] = {}
    for i in range(30):
        sent[f"m{i}"] = ("tu"[i % 2], start + i // 6 * HOUR_MS + i * 1_000)
    for topic in "tu":
        batch = [made(topic, name, due) for name, (of, due) in sent.items() if of == topic]
        world.broker.ask(SendMessages(topic, batch))
    view = begin(world, start)
    rows = exported(world, view)
    assert len(rows) == 30
    world.broker.ask(CommitOffload(view.offload_id, 30, "lake"))
    return sent


def waiting(world) -> list[TierHour]:
    return world.broker.ask(DescribeTier(1 << 50)).hours


def promote(
    world, hour: TierHour, sent: dict[str, tuple[str, int]], *, inline: bool, token: str = ""
) -> Adopted:
    """As `pipeline.promote` does it."""
    app = Promotion(hour.offload_id, hour.hour, hour.topic).app
    answer = world.broker.ask(BeginAdoption(app, hour.hour, hour.topic_name))
    if answer.already:
        return Adopted(True)
    token = token or f"{hour.topic:08x}{hour.hour:08x}"
    now = world.clock.wall_ms()
    transaction = Transaction(
        world.broker.place,
        Begun(token, app, hour.hour, hour.topic_name, now),
        answer.topic_id,
        answer.queues,
    )
    mine = [
        made(topic, name, due)
        for name, (topic, due) in sent.items()
        if topic == hour.topic_name and due // HOUR_MS == hour.hour
    ]
    transaction.begin()
    transaction.stage([mine])
    done = world.broker.ask(transaction.prepare(now, inline=inline))
    transaction.end()
    return done


@pytest.mark.parametrize("inline", [False, True])
def test_counts_never_change_and_all_come_once(make_world, inline) -> None:
    world = open_world(make_world)
    sent = in_lake(world)
    counts = world.broker.ask(CountPending()).rows
    for hour in waiting(world):
        assert promote(world, hour, sent, inline=inline).rows == hour.waiting == 3
        assert world.broker.ask(CountPending()).rows == counts
        assert promote(world, hour, sent, inline=inline).already
    assert waiting(world) == []
    world.reopen(power_cut=True)
    assert world.broker.ask(CountPending()).rows == counts
    world.clock.advance(4 * DAY_MS)
    world.broker.settle()
    assert sorted([*take_all(world), *take_all(world, topic="u")]) == sorted(sent)
    assert pending(world) == 0


@pytest.mark.parametrize("inline", [False, True])
def test_what_came_back_is_one_message_and_was_not_recalled(make_world, inline) -> None:
    world = open_world(make_world)
    sent = in_lake(world)

    def states(name: str) -> list[MessageState]:
        found = world.broker.ask(FindMessages(sent[name][0], name))
        shown = world.broker.ask(ShowMessage(sent[name][0], name))
        assert [view.state for view in shown.messages] == [view.state for view in found]
        assert not any(each.event is MessageEvent.RECALLED for each in shown.events)
        return [view.state for view in found]

    assert {tuple(states(name)) for name in sent} == {(MessageState.IN_TIER,)}
    for hour in waiting(world):
        promote(world, hour, sent, inline=inline)
    assert {tuple(states(name)) for name in sent} == {(MessageState.PENDING,)}
    world.reopen(power_cut=True)
    assert {tuple(states(name)) for name in sent} == {(MessageState.PENDING,)}
    world.clock.advance(4 * DAY_MS)
    world.broker.settle()
    assert {tuple(states(name)) for name in sent} == {(MessageState.DELIVERED,)}


def test_what_was_recalled_in_the_lake_is_said_to_be(make_world) -> None:
    world = open_world(make_world)
    sent = in_lake(world)
    (topic, due_ms), hour = sent["m0"], waiting(world)[0]
    row = TierRow(hour.offload_id, 4_242, 0, due_ms)
    looked = Elsewhere((row,), (hour.offload_id,))
    world.broker.ask(Recall(topic, "m0", due_ms, elsewhere=looked))
    del sent["m0"]
    for each in waiting(world):
        promote(world, each, sent, inline=True)
    assert [view.state for view in world.broker.ask(FindMessages(topic, "m0"))] == [
        MessageState.RECALLED
    ]


def test_only_what_waits_and_hours_in_their_order_are_taken(make_world) -> None:
    world = open_world(make_world)
    sent = in_lake(world)
    hours = waiting(world)
    later = next(hour for hour in hours if hour.hour > hours[0].hour)
    with pytest.raises(HorologError, match="must be promoted before"):
        promote(world, later, sent, inline=True)
    name, (topic, due_ms) = next(iter(sent.items()))
    less = {other: row for other, row in sent.items() if other != name}
    first = next(hour for hour in hours if hour.topic_name == topic)
    with pytest.raises(HorologError, match="2 rows, but 3 wait"):
        promote(world, first, less, inline=False, token="a" * 16)
    assert pending(world) == 30
    (number,) = {hour.offload_id for hour in hours}
    row = TierRow(number, 4_242, 0, due_ms)
    world.broker.ask(Recall(topic, name, due_ms, elsewhere=Elsewhere((row,), (number,))))
    assert world.broker.ask(ListRecalled(number)) == [(4_242, 0)]
    first = next(hour for hour in waiting(world) if hour.topic_name == topic)
    assert first.waiting == 2
    assert promote(world, first, less, inline=False, token="b" * 16).rows == 2
    assert world.broker.ask(ListRecalled(number)) == []
    assert pending(world) == 29


def story(world, sent: dict[str, tuple[str, int]], done: list[TierHour]) -> None:
    for i, hour in enumerate(waiting(world)):
        promote(world, hour, sent, inline=i % 3 == 0)
        done.append(hour)
        if i % 2:
            checkpoint(world)


def kill_at(make_world, nth: int, power_cut: bool) -> None:
    world = open_world(make_world)
    sent = in_lake(world)
    counts = world.broker.ask(CountPending()).rows
    done: list[Any] = []
    with killed_at(world.disk, nth):
        story(world, sent, done)
    world.reopen(power_cut=power_cut)
    world.broker.settle()
    assert world.broker.ask(CountPending()).rows == counts
    left_over = waiting(world)
    assert not {hour[:3] for hour in done} & {hour[:3] for hour in left_over}
    for hour in left_over:
        promote(world, hour, sent, inline=False, token=f"{nth:08x}{hour.topic}{hour.hour:07x}")
    assert world.broker.ask(CountPending()).rows == counts
    assert waiting(world) == []
    world.clock.advance(4 * DAY_MS)
    world.broker.settle()
    assert sorted([*take_all(world), *take_all(world, topic="u")]) == sorted(sent)


@pytest.mark.parametrize("step", [8, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_at_every_change(make_world, power_cut, step) -> None:
    """Kills at even changes, power cuts at odd ones; a part of them here, all of them where there is time."""
    world = open_world(make_world)
    sent = in_lake(world)
    with changes_of(world.disk) as seen:
        story(world, sent, [])
    assert len(seen) > 100
    for nth in range(power_cut, len(seen), step):
        kill_at(make_world, nth, power_cut)


@pytest.mark.parametrize(
    "app", ["promote", "promote:1", "promote::1", "promote:²:1", "promote:٣:1", "promote:1:2:3"]
)
def test_an_app_that_only_looks_like_a_promotion_is_none(app: str) -> None:
    """A client chooses the name; `promote::1` and `promote:²:1` ended the broker."""
    assert Promotion.of("promote:7:1", 5) == Promotion(7, 5, 1)
    assert Promotion.of(app, 5) is None
