"""Long polls: what wakes them, what they cost those who do not wait for the same, and that nothing of them stays."""

from __future__ import annotations

import gc
import sys
from itertools import count as count_from

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import Turns
from work import bytecodes
from worlds import checkpoint

from horolog.errors import ErrorCode
from horolog.limits import (
    AUTO_RENEW_MS,
    CLIENT_EXPIRY_MS,
    CLIENTS_REMEMBERED_MAX,
    POLL_MAX_MS,
    RENEW_AHEAD_MS,
    RENEW_FIRST_MS,
)
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ClientGone,
    ClientSeen,
    CreateTopic,
    DescribeGroup,
    Receive,
    Received,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.ready.deadlines import Deadlines
from horolog.server.grpc_clients import Clients, ClientSettings

HOUR_MS = 3_600_000
_numbers = count_from(1)


@pytest.fixture
def turns(world) -> Turns:
    for name, queues in (("busy", 4), ("quiet", 40)):
        world.broker.ask(CreateTopic(name, TopicType.NORMAL, queues))
    return Turns(world)


def poll(
    group: str = "g",
    topic: str = "quiet",
    poll_ms: int = POLL_MAX_MS,
    *,
    batch: int = 1,
    tags: str = "*",
    client: str = "",
    invisible_ms: int = HOUR_MS,
) -> Receive:
    """`client`: with auto-renew."""
    auto_renew = bool(client)
    return Receive(group, topic, -1, tags, batch, invisible_ms, auto_renew, poll_ms, client or "c")


def send(topic: str = "quiet", count: int = 1, tag: str | None = None) -> SendMessages:
    names = [f"m{next(_numbers)}" for _ in range(count)]
    return SendMessages(
        topic, [encode(topic=topic, body=b"x", message_id=name, tag=tag) for name in names]
    )


def blocks() -> int:
    """Blocks of memory in use."""
    gc.collect()
    return sys.getallocatedblocks()


# --- nothing stays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
def test_empty_polls_leave_nothing_after(turns, ends: str) -> None:
    def rounds(n: int) -> None:
        for _ in range(n):
            tokens = [object() for _ in range(1_000)]
            turns.turn(*(poll(f"g{i % 10}") for i in range(1_000)), tokens=tokens)
            assert turns.broker.shard.ready.parked == 1_000
            if ends == "cancelled":
                turns.turn(*map(CancelReceive, tokens))
            else:
                turns.clock.advance(POLL_MAX_MS)
                turns.turn()
            assert turns.broker.shard.ready.parked == 0

    rounds(5)
    before = blocks()
    rounds(50)
    assert blocks() < before + 1_000, "50 000 polls"
    turns.broker.check_invariants()


def test_polls_beside_one_that_stays_leave_nothing_after(turns) -> None:
    turns.turn(poll())

    def rounds(n: int) -> None:
        for _ in range(n):
            tokens = [object() for _ in range(500)]
            turns.turn(*(poll() for _ in tokens), tokens=tokens)
            turns.turn(*map(CancelReceive, tokens))

    rounds(5)
    before = blocks()
    rounds(40)
    assert blocks() < before + 1_000, "20 000 polls"
    assert turns.broker.shard.ready.parked == 1


def test_clients_that_come_and_go_leave_nothing_after(turns) -> None:
    turns.turn(ClientSeen("first"))
    before = blocks()
    for at in range(0, 100_000, 1_000):
        turns.turn(*(ClientSeen(f"client-{i}") for i in range(at, at + 1_000)))
    assert blocks() < before + 1_000, "100 000 clients"
    for at in range(0, 2_000, 10):
        names = [f"client-{i}" for i in range(at, at + 10)]
        turns.turn(send(count=10))
        for received in turns.turn(*(poll(poll_ms=0, client=name) for name in names)):
            handles = [message.receipt_handle for message in received.messages]
            turns.turn(Ack("g", "quiet", handles))
    turns.clock.advance(3 * AUTO_RENEW_MS)
    turns.turn()
    turns.broker.check_invariants()
    assert not turns.broker._receives.renewals._clients


def test_the_door_forgets_clients_that_nobody_hears_of() -> None:
    clients = Clients()
    before = blocks()
    for i in range(100_000):
        clients.store_settings(f"client-{i}", ClientSettings(1, i))
        if i % 2:
            clients.forget(f"client-{i}")
    clients.sweep()
    clients.store_settings("lives", ClientSettings(1, 7))
    assert clients.is_gone("client-99999")
    assert clients.poll_ms("client-99998") == 99_998
    clients.sweep()
    assert blocks() < before + 1_000, "100 000 clients"
    assert not clients.is_gone("client-99999")
    assert clients.poll_ms("lives") == 7
    assert clients.take_heartbeat("lives", 0)
    clients.sweep()
    clients.sweep()
    assert not clients.take_heartbeat("lives", 0)


def test_too_many_clients_push_out_those_not_heard_of_first() -> None:
    clients = Clients()
    clients.store_settings("quiet", ClientSettings(1, 5))
    clients.store_settings("loud", ClientSettings(1, 7))
    clients.sweep()
    assert clients.take_heartbeat("loud", 1)
    for i in range(CLIENTS_REMEMBERED_MAX + 10):
        clients.store_settings(f"one of many {i}", ClientSettings(1, 9))
    assert clients.poll_ms("quiet") is None
    assert clients.poll_ms("loud") == 7
    assert len(clients._known) == CLIENTS_REMEMBERED_MAX
    for i in range(CLIENTS_REMEMBERED_MAX + 10):
        clients.forget(f"one of many {i}")
    assert len(clients._known) == 1
    assert len(clients._gone) == CLIENTS_REMEMBERED_MAX


def test_a_lease_that_is_changed_for_ever_takes_no_more_memory(turns) -> None:
    turns.turn(send())
    handle = turns.turn(poll())[0].messages[0].receipt_handle

    def change(n: int) -> None:
        nonlocal handle
        for _ in range(n):
            handle = turns.turn(ChangeInvisible("g", "quiet", handle, HOUR_MS))[0].receipt_handle

    change(1_000)
    (queues,) = turns.broker.shard.ready.progress.values()
    assert max(len(progress.ends._heap) for progress in queues.values()) < 100


# --- what a turn looks at -------------------------------------------------------------------------


def cost(turns: Turns, *commands) -> int:
    """Bytecodes of such turns; the least, since a checkpoint may fall into one."""
    return min(bytecodes(lambda: turns.turn(*commands)) for _ in range(3))


def test_a_send_costs_the_same_whoever_waits_for_something_else(turns) -> None:
    turns.turn(send(), send("busy"))
    nobody = cost(turns, send("busy"))
    groups = [f"g{i}" for i in range(50)]
    for group in groups:
        leased, waits = turns.turn(poll(group, poll_ms=0), poll(group))
        assert len(leased.messages) == 1
        assert waits is None
    assert cost(turns, send("busy")) < nobody + 1_000, "50 × 40 queues wait for another topic"
    tokens = list(turns.broker.shard.ready.polls._waiters)
    turns.turn(*map(CancelReceive, tokens))
    assert cost(turns, send("busy")) < nobody + 1_000, "and have gone"


def test_a_message_wakes_a_poll_with_a_look_at_its_queue_only(world) -> None:
    turns = Turns(world)

    def cost_with(queues: int) -> int:
        topic = f"t{queues}"
        turns.turn(CreateTopic(topic, TopicType.NORMAL, queues))
        turns.turn(send(topic, queues))  # one in each queue
        turns.turn(poll("g", topic, batch=32), poll("g", topic, poll_ms=0, batch=32))
        spent = []
        for _ in range(3):
            turns.turn(poll("g", topic))
            spent.append(bytecodes(lambda: turns.turn(send(topic))))
            assert len(turns.answers) == 1
        return min(spent)

    assert cost_with(60) < cost_with(3) + 200


def test_a_lease_that_ends_costs_a_look_at_its_queue_only(turns) -> None:
    def cost_with(topic: str, queues: int) -> int:
        turns.turn(CreateTopic(topic, TopicType.NORMAL, queues))
        turns.turn(send(topic, queues))  # one in each queue
        for _ in range(0, queues, 32):
            turns.turn(poll("g", topic, poll_ms=0, batch=32))
        turns.turn(send(topic))
        turns.turn(poll("g", topic, poll_ms=0, invisible_ms=15_000))
        turns.turn(poll("g", topic))
        turns.clock.advance(14_000)
        for _ in range(8):
            turns.turn()  # a checkpoint is due, and writes some queues in each
        turns.clock.advance(1_000)
        spent = bytecodes(turns.turn)
        assert [len(received.messages) for received in turns.answers.values()] == [1]
        return spent

    assert cost_with("many", 64) < cost_with("few", 2) + 200


def test_renewals_cost_what_is_renewed(turns) -> None:
    none = cost(turns)
    turns.turn(send(count=500))
    for _ in range(16):
        turns.turn(poll(batch=32, poll_ms=0, client="c"))
    assert cost(turns) < none + 200, "500 leases are not to be renewed yet"


# --- what wakes a poll ----------------------------------------------------------------------------


def test_a_poll_is_woken_when_a_lease_of_its_group_ends(turns) -> None:
    turns.turn(send())
    turns.turn(poll(poll_ms=0, invisible_ms=15_000))
    turns.turn(poll("g"), poll("other", invisible_ms=1))
    assert turns.last.wake_in_ms <= 15_000
    turns.clock.advance(14_999)
    turns.turn()
    assert not turns.answers
    assert turns.last.wake_in_ms == 1
    turns.clock.advance(1)
    turns.turn()
    assert [len(received.messages) for received in turns.answers.values()] == [1]


def test_nobody_is_woken_for_a_lease_that_nobody_waits_for(turns) -> None:
    turns.turn(send())
    idle = turns.last.wake_in_ms
    turns.turn(poll(poll_ms=0, invisible_ms=10_000))
    assert turns.broker.shard.ready.polls.next_at() is None
    token = object()
    turns.turn(poll(), tokens=[token])
    at = turns.clock.monotonic_ms() + 10_000
    assert turns.broker.shard.ready.polls.next_at() == at
    turns.turn(CancelReceive(token))
    assert turns.broker.shard.ready.polls.next_at() is None
    assert turns.last.wake_in_ms == idle


def test_a_poll_is_woken_by_a_message_that_was_returned(turns) -> None:
    turns.turn(send())
    handle = turns.turn(poll(poll_ms=0))[0].messages[0].receipt_handle
    turns.turn(poll())
    turns.turn(ChangeInvisible("g", "quiet", handle, 0))
    assert turns.broker.shard.ready.polls.next_at() == turns.clock.monotonic_ms() + 200
    turns.clock.advance(200)
    turns.turn()
    assert [received.messages[0].attempt for received in turns.answers.values()] == [2]


def test_the_first_that_waits_is_the_first_that_is_served(turns) -> None:
    tokens = ["a", "b", "c"]
    turns.turn(poll(), poll(tags="x"), poll(), tokens=tokens)
    turns.turn(send())
    assert list(turns.answers) == ["a"]
    turns.turn(send())
    assert list(turns.answers) == ["c"]
    turns.turn(send(tag="x"))
    assert list(turns.answers) == ["b"]


def test_leases_of_a_client_that_lives_are_renewed_in_time(turns) -> None:
    turns.turn(send())
    turns.turn(poll(poll_ms=0, client="c"))
    lease_at = turns.clock.monotonic_ms()
    renewals = turns.broker._receives.renewals
    assert renewals.next_at() == lease_at + RENEW_FIRST_MS
    turns.clock.advance(RENEW_FIRST_MS)
    turns.turn()
    renew_at = lease_at + RENEW_FIRST_MS + AUTO_RENEW_MS - RENEW_AHEAD_MS
    assert renewals.next_at() == renew_at
    for _ in range(20):
        turns.clock.advance(renewals.next_at() - turns.clock.monotonic_ms())
        turns.turn(ClientSeen("c"))
        turns.broker.check_invariants()
        assert turns.turn(poll(poll_ms=0))[0] == Received([])
    turns.clock.advance(CLIENT_EXPIRY_MS + AUTO_RENEW_MS)
    turns.turn()
    turns.clock.advance(AUTO_RENEW_MS)
    assert turns.turn(poll(poll_ms=0))[0].messages[0].attempt == 2
    assert renewals.next_at() is None


def test_what_a_client_held_that_says_goodbye_is_visible_a_second_later(turns) -> None:
    turns.turn(send(count=3))
    turns.turn(poll(poll_ms=0, client="x"), poll(poll_ms=0, client="d"), poll(poll_ms=0))
    turns.turn(poll(batch=3))
    turns.turn(ClientGone("x"))
    turns.clock.advance(1_000)
    turns.turn()
    assert [len(received.messages) for received in turns.answers.values()] == [1]


def test_a_question_about_a_group_leaves_nothing_behind(turns) -> None:
    turns.turn(send("busy"))
    turns.turn(poll("g", "busy", 0))
    queues = turns.turn(DescribeGroup("g", "quiet"))[0]
    assert [queue.ack_floor for queue in queues] == [0] * 40
    assert all(topic == 1 for _, topic in turns.broker.shard.ready.progress)


# --- the most leases --------------------------------------------------------------------------------


def test_without_room_for_a_lease_a_receive_says_so(turns) -> None:
    turns.broker.shard.ready.leases_max = 10
    turns.turn(send(count=12))
    (received,) = turns.turn(poll(poll_ms=0, batch=32, invisible_ms=30_000))
    assert len(received.messages) == 10
    (refused,) = turns.turn(poll(poll_ms=0))
    assert refused.code is ErrorCode.TOO_MANY_REQUESTS
    assert refused.retriable
    assert turns.turn(poll("g", "busy", 0)) == [Received([])], "nothing is kept back there"
    turns.broker.check_invariants()
    turns.clock.advance(30_000)
    (again,) = turns.turn(poll(poll_ms=0, batch=32))
    assert len(again.messages) == 10, "what is given out again takes no room"
    turns.turn(Ack("g", "quiet", [message.receipt_handle for message in again.messages[:1]]))
    assert len(turns.turn(poll(poll_ms=0, batch=32))[0].messages) == 1
    turns.broker.check_invariants()


def test_a_poll_waits_for_room(turns) -> None:
    turns.broker.shard.ready.leases_max = 2
    turns.turn(send(count=3))
    (received,) = turns.turn(poll(poll_ms=0, batch=2))
    turns.turn(poll("other", poll_ms=5_000), poll(poll_ms=5_000), poll("g", "busy", 5_000))
    turns.turn(send(count=3))
    assert not turns.answers, "it is the end of a poll that says so"
    assert turns.broker.shard.ready.parked == 3
    turns.turn(Ack("g", "quiet", [received.messages[0].receipt_handle]))
    assert [len(received.messages) for received in turns.answers.values()] == [1]
    turns.clock.advance(5_000)
    turns.turn()
    refused, empty = turns.answers.values()
    assert refused.code is ErrorCode.TOO_MANY_REQUESTS
    assert empty == Received([])
    turns.broker.check_invariants()


def test_a_restart_counts_the_leases_that_there_are(world) -> None:
    world.broker.ask(CreateTopic("quiet", TopicType.NORMAL, 4))
    world.broker.ask(send(count=9))
    world.broker.ask(poll(poll_ms=0, batch=7))
    checkpoint(world)
    world.broker.ask(poll(poll_ms=0, batch=1))
    assert world.broker.shard.ready.leased == 8
    world.reopen()
    assert world.broker.shard.ready.leased == 8
    world.broker.settle()


# --- deadlines --------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "drop", "take"]), st.integers(0, 9), st.integers(0, 50)),
        max_size=200,
    )
)
def test_deadlines_against_a_dict(steps: list[tuple[str, int, int]]) -> None:
    deadlines, model = Deadlines[int](), dict[int, int]()
    for what, key, at in steps:
        if what == "set":
            deadlines.set(key, at)
            model.pop(key, None)
            model[key] = at
        elif what == "drop":
            assert deadlines.drop(key) == (model.pop(key, None) is not None)
        else:
            due = sorted((k for k, v in model.items() if v <= at), key=lambda k: model[k])
            assert deadlines.take(at) == due
            model = {k: v for k, v in model.items() if k not in due}
        assert dict(deadlines.items()) == model
        assert deadlines.first() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
        assert deadlines.at(key) == model.get(key)
        deadlines.check_invariants()


def test_deadlines_that_are_moved_for_ever_take_no_more_memory() -> None:
    deadlines = Deadlines[int]()
    for i in range(20_000):
        deadlines.set(i % 7, i)
        deadlines.check_invariants()
    assert len(deadlines._heap) < 100
