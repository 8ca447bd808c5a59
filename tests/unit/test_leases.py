"""Leases of a queue beside a plain dict: what a checkpoint was given stays as it was, whatever comes after it."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import send, take_all

from horolog.broker.life.consumers_copy import ConsumersCopy
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease, Leases
from horolog.ready.ready import Ready
from horolog.testing.sim_broker import SimBroker

PART = 256
OFFSETS = st.sampled_from([0, 1, 7, PART - 1, PART, PART + 1, 5 * PART, 5 * PART + 3, 1 << 40])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), OFFSETS),
        st.tuples(st.just("update"), st.sets(OFFSETS, min_size=1)),
        st.tuples(st.just("pop"), OFFSETS),
        st.tuples(st.just("clear")),
        st.tuples(st.just("freeze")),
    ),
    max_size=30,
)


def lease(grant: int) -> Lease:
    return Lease(1, grant, 9, 8, 7)


@given(STEPS)
def test_what_was_frozen_stays_as_it_was(steps: list[tuple[Any, ...]]) -> None:
    leases, model = Leases(), {}
    kept: list[tuple[list[Any], dict[int, Lease]]] = []
    for number, (word, *rest) in enumerate(steps):
        match word:
            case "set":
                leases[rest[0]] = model[rest[0]] = lease(number)
            case "update":
                some = {offset: lease(number) for offset in rest[0]}
                leases.update(some)
                model |= some
            case "pop":
                assert leases.pop(rest[0]) == model.pop(rest[0], None)
            case "clear":
                leases.clear()
                model.clear()
            case "freeze":
                kept.append((leases.frozen(), dict(model)))
        leases.check_invariants()
        assert dict(leases.items()) == model
        assert sorted(leases) == sorted(model)
        assert len(leases) == len(model)
        assert leases.has_any([0, PART]) == bool({0, PART} & model.keys())
        for offset in (0, PART, 5 * PART):
            assert leases.get(offset) == model.get(offset)
            assert (offset in leases) == (offset in model)
        for parts, expected in kept:
            found: dict[int, Lease] = {}
            for part in parts:
                found |= part
            assert found == expected


def test_only_parts_that_change_are_copied_and_once() -> None:
    leases = Leases()
    for offset in range(3 * PART):
        leases[offset] = lease(offset)
    first, second, third = leases.frozen()
    del leases[PART]
    del leases[PART + 1]
    again = leases.frozen()
    assert [again[0] is first, again[1] is second, again[2] is third] == [True, False, True]
    assert len(second) == PART
    assert len(again[1]) == PART - 2


def test_a_copy_has_all_of_progress_as_columns() -> None:
    ready = Ready()
    for queue in range(3):
        progress = ready.progress_of(1, 2, queue)
        leases = {offset: lease(offset) for offset in range(0, 3_000, 1 + queue)}
        progress.lease_all(leases, 9, Event.RECORD)
        progress.skip_to(3_000, set())
        progress.consume_leased([2 * (1 + queue)], Event.ACK)
    ready.progress_of(1, 2, 1).lease(
        0, lease(5)._replace(client_id="c", renew_until=100_000), Event.RECORD
    )
    before = ConsumersCopy.of(ready)
    expected = {name: rows.tolist() for name, rows in ConsumersCopy.of(ready).columns().items()}
    for queue in range(3):
        ready.progress_of(1, 2, queue).commit(2_000)
    found = before.columns()
    assert {name: rows.tolist() for name, rows in found.items()} == expected
    assert expected["progress"] == [(1, 2, 0, 0, 3_000), (1, 2, 1, 0, 3_000), (1, 2, 2, 0, 3_000)]
    assert len(expected["leases"]) == 2_999 + 1_499 + 999
    assert np.unique(found["leases"]["queue"]).tolist() == [0, 1, 2]
    assert (1, 2, 0, 1, 2_999, 2_999, 8, 7) in expected["leases"]
    assert expected["held"] == [(1, 2, 1, 0, 0, 60_000)]
    assert found["clients"].tobytes() == b'["c"]'
    assert (1, 2, 0, 2) in expected["acked"]
    assert all(len(run) == 5 for run in map(tuple, expected["acked_runs"]))


@pytest.mark.parametrize("power_cut", [False, True])
def test_acks_after_the_position_of_a_checkpoint_are_not_in_it(world, power_cut: bool) -> None:
    """Decided, then half of the leases are acknowledged, and only then is it written."""
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    messages = [encode(topic="t", body=b"x", message_id=f"m{i}") for i in range(20)]
    broker.ask(SendMessages("t", messages))
    take = Receive("g", "t", -1, "*", 20, 60_000, False, 0, "c")
    handles = [each.receipt_handle for each in broker.ask(take).messages]
    broker.request_checkpoint()
    broker.ask(Ack("g", "t", handles[::2]))
    broker.settle()
    world.reopen(power_cut=power_cut)
    progress = world.broker.shard.ready.progress_if_any(1, 1, 0)
    assert sorted(progress.leases) == list(range(1, 20, 2))
    world.broker.ask(Ack("g", "t", handles[1::2]))
    assert (progress.floor, len(progress.leases)) == (20, 0)


def older_copy(world):
    """A world to come on the disk as it is now."""
    copy = type(world)()
    copy.disk, copy.clock = deepcopy((world.disk, world.clock))
    copy.broker = SimBroker(Random(1), copy.disk, copy.clock, "sync", 65_536)
    return copy


def test_p2_a_handle_of_a_lost_message_takes_no_other_one_that_has_its_place(world) -> None:
    """An older copy of the directory, as a backup or a disk without its last writes is, and a consumer that lived on."""
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send(world, "kept", 1)
    assert take_all(world) == ["kept0"]
    older = older_copy(world)
    send(world, "lost", 1)
    take = Receive("g", "t", -1, "*", 20, 60_000, False, 0, "c")
    handle = world.broker.ask(take).messages[0].receipt_handle
    world, void = older, ErrorCode.INVALID_RECEIPT_HANDLE
    for _ in range(2):  # in the epoch of the other message, and in one that comes after it
        world.reopen()
        send(world, "new", 1)
        (refused,) = world.broker.ask(Ack("g", "t", [handle])).refused
        assert (refused.code, "is lost" in refused.message) == (void, True)
        with pytest.raises(HorologError, match="is lost"):
            world.broker.ask(ChangeInvisible("g", "t", handle, 60_000))
    assert take_all(world) == ["new0"]


def test_a_handle_outlives_the_record_of_its_grant(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send(world, "m", 3)
    older = older_copy(world)
    take = Receive("g", "t", -1, "*", 20, 60_000, False, 0, "c")
    handles = [each.receipt_handle for each in world.broker.ask(take).messages]
    world = older
    world.reopen()
    world.broker.ask(Receive("g", "t", -1, "*", 1, 1_000, False, 0, "c"))  # the group is there
    assert world.broker.ask(Ack("g", "t", handles[1:])).refused == [None, None]
    world.reopen(power_cut=True)  # the acks are logged, though no lease of theirs is known
    world.clock.advance(1_000)
    assert take_all(world) == ["m0"]


def test_retention_passes_over_queues_that_a_group_has_consumed_so_far() -> None:
    """Of 30 000 queues with progress, nearly all: to update their deadlines took 40 ms."""
    watched: list[tuple[int, int, int]] = []

    class Watching(Ready):
        def watch(self, group: int, topic: int, queue: int) -> None:
            watched.append((group, topic, queue))
            super().watch(group, topic, queue)

    ready = Watching()
    for group, floor in enumerate((9, 10, 11)):
        ready.progress_of(group, 2, 0).commit(floor)
    ready.drop_below({(2, 0): 10})
    assert [ready.progress_of(group, 2, 0).floor for group in range(3)] == [10, 10, 11]
    assert watched == [(0, 2, 0)]
    assert ready.dropped[0, 2] == 1
