"""Long requests are answered in parts: a turn does a bounded piece, counted here, and others go on."""

from __future__ import annotations

import asyncio

import numpy as np
import orjson
import pytest
from turns import Turns
from work import bytecodes

from horolog.admin.answers import listed
from horolog.broker import pages, pending_lists
from horolog.broker.recall import look_ups
from horolog.broker.recall.look_ups import find_in_parts
from horolog.delay.far.compaction import FarSettings
from horolog.delay.pending import ListingPlace, PageLoad
from horolog.limits import DAY_MS, SECOND_MS, TURN_FOUND_MAX, TURN_SEARCHES_MAX
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    FindMessages,
    ListPending,
    ListTopics,
    MessageState,
    MessageType,
    ReadQueue,
    Recall,
    Reschedule,
    SendMessages,
    TopicType,
    TopicView,
)
from horolog.protocol.history_commands import PagePending, PendingPlace
from horolog.protocol.queue_commands import CommitOffsets, CountLags, ListGroups, SearchOffset
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.server.resets import offsets_of

STEPS = 50
EVER = 1 << 50
KEYED = 4 * TURN_FOUND_MAX
NEAR, FAR = 60 * SECOND_MS, 3 * DAY_MS


def schedule(world, after_ms: int, count: int, first: int = 0, topic: str = "t") -> list[str]:
    """Schedule messages for one second, the last one sent is due first; return ids in due order."""
    due = (world.clock.wall_ms() + after_ms) // SECOND_MS * SECOND_MS
    for at in range(first, first + count, 30):
        messages = [
            encode(
                topic=topic,
                body=b"x" * 20,
                message_id=f"m{i}",
                type=MessageType.DELAY,
                due_ms=due + 999 - i,
            )
            for i in range(at, min(at + 30, first + count))
        ]
        world.broker.ask(SendMessages(topic, messages))
    return [f"m{i}" for i in reversed(range(first, first + count))]


@pytest.fixture
def crowded(world, monkeypatch):
    """A broker whose lists look at few messages in a turn."""
    monkeypatch.setattr(pending_lists, "LOAD_CHUNK", STEPS)
    for topic in "tu":
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 1))
    return world


def answer_to(turns: Turns, command, between=lambda: None) -> tuple[object, int]:
    """Run turns until a command is answered; return its result, and how many turns that took."""
    token = object()
    (result,) = turns.turn(command, tokens=[token])
    for count in range(2, 1_000):
        if result is not None:
            return result, count
        between()
        turns.turn()
        result = turns.answers.get(token)
    raise AssertionError("never answered")


def ids(messages) -> list[str]:
    return [each.message_id for each in messages]


@pytest.mark.parametrize("after_ms", [NEAR, FAR])
def test_a_crowded_second_is_listed_over_several_turns(crowded, after_ms: int) -> None:
    wanted = schedule(crowded, after_ms, 600)
    others = schedule(crowded, after_ms, 30, 800, "u")
    turns = Turns(crowded)
    listed, count = answer_to(turns, ListPending(0, EVER, "", 7))
    assert ids(listed) == others[:7]
    assert count >= 600 // STEPS // 2, "a step of the core here is two turns"
    page, count = answer_to(turns, PagePending(PendingPlace(0), EVER, "t", limit=3))
    assert ids(page.messages) == wanted[:3]
    assert count >= 600 // STEPS // 2
    page, _ = answer_to(turns, PagePending(page.next, EVER, "t", limit=3))
    assert ids(page.messages) == wanted[3:6]
    listed, _ = answer_to(turns, ListPending(0, EVER, "t", 1_000))
    assert ids(listed) == wanted


def test_many_lists_share_the_work_of_a_turn(crowded) -> None:
    schedule(crowded, NEAR, 600)
    turns = Turns(crowded)
    turns.turn()
    one = bytecodes(lambda: turns.turn(ListPending(0, EVER, "t", 5)))
    many = [ListPending(0, EVER, "t", 5) for _ in range(20)]
    assert bytecodes(lambda: turns.turn(*many)) < 3 * one


def test_a_list_leaves_out_what_is_recalled_meanwhile(crowded) -> None:
    wanted = schedule(crowded, NEAR, 600)
    turns = Turns(crowded)
    due = crowded.broker.ask(ListPending(0, EVER, "t", 1))[0].due_ms
    recalls = iter([Recall("t", wanted[i], due + i) for i in range(3)])

    def recall_next() -> None:
        turns.turn(*[each for each in [next(recalls, None)] if each])

    listed, _ = answer_to(turns, ListPending(0, EVER, "t", 5), recall_next)
    assert ids(listed) == wanted[3:8]


def test_a_list_begins_again_when_sources_are_exchanged(make_world) -> None:
    world = make_world()
    far = FarSettings(buffer_bytes=50_000)
    world.broker.settings = world.broker.settings._replace(far=far)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    wanted = schedule(world, FAR, 200)
    delay = world.broker.shard.delay
    load = PageLoad(delay, ListingPlace(0), EVER, None, 5)
    assert not load.walk(10)[1]
    schedule(world, 2 * FAR, 400)
    world.broker.settle()
    assert delay.far.runs, "the buffer that was read has become a run"
    while not load.walk(10)[1]:
        pass
    page = load.page(1 << 20)
    assert [_id(each) for each in page.records] == wanted[:5]


def test_a_page_has_a_bound_in_bytes(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    wanted = schedule(world, NEAR, 10)
    load = PageLoad(world.broker.shard.delay, ListingPlace(0), EVER, None, 10)
    while not load.walk(100)[1]:
        pass
    size = len(load.page(1).records[0])
    assert [_id(each) for each in load.page(3 * size).records] == wanted[:3]
    assert load.page(3 * size).next is not None


@pytest.fixture
def keyed(world):
    """A broker with messages of one key, for four turns of a look-up; its clock does not move."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due = world.clock.wall_ms() + NEAR
    for i in range(KEYED):
        kind = MessageType.DELAY
        made = encode(topic="t", body=b"x", message_id=f"m{i}", type=kind, due_ms=due, keys=["k"])
        world.broker.ask(SendMessages("t", [made]))
    return world


def test_a_key_of_many_messages_is_looked_up_over_several_turns(keyed) -> None:
    turns = Turns(keyed)
    found, count = answer_to(turns, FindMessages("t", key="k"))
    assert ids(found) == [f"m{i}" for i in range(KEYED)]
    assert count >= 3, "a step of the core here is two turns"
    one = bytecodes(lambda: turns.turn(FindMessages("t", key="k")))
    many = [FindMessages("t", key="k") for _ in range(20)]
    assert bytecodes(lambda: turns.turn(*many)) < 3 * one


def test_a_look_up_by_key_shows_what_is_moved_meanwhile(keyed) -> None:
    turns = Turns(keyed)
    due = keyed.broker.ask(FindMessages("t", "m0"))[0].due_ms
    moves = iter([Reschedule("t", "m0", due, due + 7_000)])

    def move_next() -> None:
        turns.turn(*[each for each in [next(moves, None)] if each])

    found, _ = answer_to(turns, FindMessages("t", key="k"), move_next)
    states = [(each.state, each.due_ms) for each in found if each.message_id == "m0"]
    assert states == [(MessageState.MOVED, due), (MessageState.PENDING, due + 7_000)]
    assert len(found) == KEYED + 1


def _id(record: memoryview) -> str:
    stored = properties.decode(bytes(layout.properties_of(record[HEAD_BYTES:])))
    return stored[properties.UNIQ_KEY]


def test_a_client_that_searches_many_queues_does_not_fill_a_turn(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    world.broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="m")]))
    turns = Turns(world)
    tokens = [object() for _ in range(9)]
    given = turns.turn(*[SearchOffset("t", 0, 0)] * 9, tokens=tokens)
    assert 1 <= sum(each is not None for each in given) <= 2 * TURN_SEARCHES_MAX
    found = {token: each for token, each in zip(tokens, given, strict=True) if each is not None}
    for _ in range(9):
        turns.turn()
        found |= turns.answers
    assert found == dict.fromkeys(tokens, 0)


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        (ListTopics(with_pending=False), 4),
        (ListGroups(), 3),
        (CountLags([("g0", "t0"), ("g1", "t1")]), 2),
        (ReadQueue("t0", 0, 0, 10, 10_000), 5),
    ],
    ids=lambda each: type(each).__name__,
)
def test_many_pages_of_a_list_do_not_fill_a_turn(world, monkeypatch, page, rows: int) -> None:
    """Each was answered in the turn in which it came: 30 lists of all topics took 90 ms of it."""
    monkeypatch.setattr(pages, "TURN_LISTED_MIN", 2 * rows)
    for i in range(4):
        world.broker.ask(CreateTopic(f"t{i}", TopicType.NORMAL, 1))
    for i in range(3):
        world.broker.ask(CommitOffsets(f"g{i}", f"t{i}", {0: 0}))
    messages = [encode(topic="t0", body=b"x", message_id=f"m{i}") for i in range(5)]
    world.broker.ask(SendMessages("t0", messages))
    turns = Turns(world)
    tokens = [object() for _ in range(9)]
    given = turns.turn(*[page] * 9, tokens=tokens)
    assert sum(each is not None for each in given) == 4, "a turn here is two steps of the core"
    found = [each for each in given if each is not None]
    for _ in range(2):
        turns.turn()
        found += turns.answers.values()
    assert len(found) == 9
    assert all(each == found[0] for each in found)
    assert len(getattr(found[0], "records", found[0])) == rows


def test_large_messages_of_a_key_take_more_turns(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    for i in range(4):
        made = encode(topic="t", body=b"x" * 40_000, message_id=f"m{i}", keys=["k"])
        world.broker.ask(SendMessages("t", [made]))
    parts = find_in_parts(world.broker.shard, FindMessages("t", key="k"))
    few = len(list(parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look_ups, "TURN_READ_BYTES", 50_000)
        parts = find_in_parts(world.broker.shard, FindMessages("t", key="k"))
        assert len(list(parts)) == few + 3


class _OneByOne:
    """An engine that answers searches of queues, and counts how many wait at once."""

    def __init__(self) -> None:
        self.waiting = self.most = 0

    def submit(self, command) -> asyncio.Future:
        future = asyncio.get_running_loop().create_future()
        self.waiting += 1
        self.most = max(self.most, self.waiting)

        def answer() -> None:
            self.waiting -= 1
            future.set_result(command.queue_id)

        asyncio.get_running_loop().call_soon(answer)
        return future


def test_a_reset_to_a_time_searches_one_queue_in_a_turn() -> None:
    engine = _OneByOne()
    topic = TopicView("t", TopicType.NORMAL, 9, [1] * 9, 0, [0] * 9)
    found = asyncio.run(offsets_of(engine, topic, 5, None))
    assert found == {queue: queue for queue in range(9)}
    assert engine.most == 1


def test_long_lists_become_json_piece_by_piece() -> None:
    seen: list[int] = []

    async def listing() -> bytes:
        others = []
        task = asyncio.ensure_future(listed(range(1_000), lambda each: seen.append(each) or [each]))
        while not task.done():
            others.append(len(seen))
            await asyncio.sleep(0)
        assert max(np.diff(others)) <= 256
        return orjson.dumps({"rows": await task})

    assert orjson.loads(asyncio.run(listing())) == {"rows": [[i] for i in range(1_000)]}
    few: list[int] = []

    async def computed() -> None:
        items = (few.append(i) or i for i in range(40))
        task = asyncio.ensure_future(listed(items, str, at_once=4))
        seen = [0]
        while not task.done():
            await asyncio.sleep(0)
            seen.append(len(few))
        assert max(np.diff(seen)) == 4, "an item is computed when its turn comes"

    asyncio.run(computed())
    assert orjson.dumps({"rows": asyncio.run(listed([], str))}) == b'{"rows":[]}'
