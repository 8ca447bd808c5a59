"""That the invariants of a shard and of its parts can fail: each is broken by hand, and says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest
from worlds import made

from horolog.broker import relations
from horolog.broker.applied import Applied
from horolog.broker.broker import Broker
from horolog.delay.state import EntryState
from horolog.delay.tier import Step
from horolog.lake.core.stages import Stage
from horolog.lake.core.state import Offload
from horolog.limits import DAY_MS
from horolog.log.segment import Write
from horolog.protocol.commands import (
    CreateTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.transaction_commands import SendHalf
from horolog.testing.sim_broker import Answer


@pytest.fixture
def broker(world) -> Broker:
    """A broker with a visible, a leased, a loaded, a near and a far message."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    now = world.clock.wall_ms()
    dues = {"now": 0, "more": 0, "soon": now + 5_000, "near": now + 60_000, "far": now + 3 * DAY_MS}
    batch = [made(name, due) for name, due in dues.items()]
    world.broker.ask(SendMessages("t", batch))
    world.broker.ask(Receive("g", "t", -1, "*", 1, 60_000, False, 0, "c"))
    half = encode(topic="t", body=b"x", message_id="half", type=MessageType.TRANSACTION)
    world.broker.ask(SendHalf("t", [half]))
    core = world.broker.core
    core.check_invariants()
    relations.check_rows(core.shard)
    return core


def queue_of(broker: Broker):
    return broker.shard.topics.get("t").queues[0]


def lose_a_unit(broker: Broker) -> None:
    queue_of(broker).length += 1


def lose_an_assigned_offset(broker: Broker) -> None:
    broker.shard.topics.get("t").tails[0] += 1


def rename_a_topic(broker: Broker) -> None:
    broker.shard.topics.get("t").name = "u"


def give_out_what_is_not_there(broker: Broker) -> None:
    broker.shard.ready.progress_of(1, 1, 0).next = queue_of(broker).length + 1


def commit_what_was_not_appended(broker: Broker) -> None:
    broker.shard.log.commit_position = broker.shard.log.end + 1


def promise_more_than_is_committed(broker: Broker) -> None:
    broker.shard.log.durable_position = broker.shard.log.commit_position + 1


def lose_a_write(broker: Broker) -> None:
    broker.shard.log._writes.append(Write(broker.shard.log.end - 64, b"x"))


def checkpoint_ahead(broker: Broker) -> None:
    broker.shard.checkpoint_position = broker.shard.applied + 1


def forget_a_second(broker: Broker) -> None:
    heapq.heappop(broker.shard.wheel._seconds_heap)


def load_beyond(broker: Broker) -> None:
    broker.shard.wheel.loaded_until = 0


def mix_a_slot(broker: Broker) -> None:
    slot = next(iter(broker.shard.wheel._slots.values()))
    slot._runs.append((np.array([2, 1]), np.array([1, 2])))


def open_two_offloads(broker: Broker) -> None:
    lake = broker.shard.tier
    for number in (1, 2):
        lake.offloads[number] = Offload(number, "a", 0, Stage.FROZEN)
    lake.next = 3


def count_what_no_table_has(broker: Broker) -> None:
    broker.shard.tier._counts.put((9, 1, 1), 1)


def let_two_steps_meet(broker: Broker) -> None:
    for _ in range(2):
        step = Step({"step": "abort", "number": 1}, b"")
        broker.shard.uncommitted.append(Applied(broker.shard.log.end, [], None, [], step=step))


def freeze_for_nobody(broker: Broker) -> None:
    broker.shard.delay.far.seal()
    broker.shard.delay.far.buffers[0].frozen = True


def take_space_back(broker: Broker) -> None:
    broker.disk._turn_bytes = 1 << 40


def lose_a_checkpoint(broker: Broker) -> None:
    broker.checkpoints._life = type(broker.checkpoints._life).CAPTURED


def forget_an_open_transaction(broker: Broker) -> None:
    broker.shard.halves.open.clear()


def never_look_after_one_again(broker: Broker) -> None:
    broker.shard.halves._looks.clear()


@pytest.mark.parametrize(
    "broken",
    [
        lose_a_unit,
        lose_an_assigned_offset,
        rename_a_topic,
        give_out_what_is_not_there,
        commit_what_was_not_appended,
        promise_more_than_is_committed,
        lose_a_write,
        checkpoint_ahead,
        forget_a_second,
        load_beyond,
        mix_a_slot,
        open_two_offloads,
        count_what_no_table_has,
        let_two_steps_meet,
        freeze_for_nobody,
        take_space_back,
        lose_a_checkpoint,
        forget_an_open_transaction,
        never_look_after_one_again,
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_part_is_reported(broker, broken: Callable[[Broker], None]) -> None:
    broken(broker)
    with pytest.raises(AssertionError):
        broker.check_invariants()


def mark_and_forget(broker: Broker) -> None:
    hour = next(iter(broker.shard.delay.hours.values()))
    hour.mark_inflight(np.array([0]), EntryState.RECALLING)


def pass_over(broker: Broker) -> None:
    broker.shard.wheel._slots.clear()
    broker.shard.wheel._seconds_heap.clear()


def load_twice(broker: Broker) -> None:
    slot = next(iter(broker.shard.wheel._slots.values()))
    slot._runs.append(slot._runs[0])


@pytest.mark.parametrize(
    "broken", [mark_and_forget, pass_over, load_twice], ids=lambda broken: broken.__name__
)
def test_a_message_out_of_place_is_reported(broker, broken) -> None:
    broken(broker)
    with pytest.raises(AssertionError):
        relations.check_rows(broker.shard)


def test_every_step_of_a_simulated_broker_is_checked(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.shard.topics.get("t").name = "u"
    with pytest.raises(AssertionError):
        world.broker.step([Answer(CreateTopic("v", TopicType.MIXED, 1))])
