"""Locks of orderly consumers: one client at a time, for 60 s after it was last asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.remoting_door import remoting_door

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.queue_locks import LockedQueue, QueueLocks

ONE, TWO = LockedQueue("orders", "broker-a", 1), LockedQueue("orders", "broker-a", 2)


def test_a_lock_is_its_owners_until_it_is_over() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "a", [ONE, TWO], 0) == [ONE, TWO]
    assert locks.lock("g", "b", [ONE], 0) == []
    assert locks.lock("other", "b", [ONE], 0) == [ONE]
    assert locks.lock("g", "a", [ONE], 20_000) == [ONE]
    assert locks.lock("g", "b", [ONE, TWO], 79_999) == [TWO], "the other was asked for at 20 s"
    assert locks.lock("g", "b", [ONE], 80_000) == [ONE]
    locks.unlock("g", "a", [ONE])
    assert locks.lock("g", "a", [ONE], 80_000) == [], "it is not its own any more"
    locks.unlock("g", "b", [ONE])
    assert locks.lock("g", "a", [ONE], 80_000) == [ONE]


def test_whether_a_group_is_orderly() -> None:
    locks = QueueLocks()
    assert not locks.is_orderly("g", 0)
    locks.lock("g", "a", [ONE], 0)
    assert locks.is_orderly("g", 59_999)
    assert not locks.is_orderly("g", 60_000)
    locks.sweep(60_000)
    assert locks._groups == {}


QUEUES = st.lists(st.sampled_from([ONE, TWO]), max_size=2, unique=True)
STEPS = st.lists(
    st.tuples(st.sampled_from("lus"), st.sampled_from("ab"), QUEUES, st.integers(0, 40_000)),
    max_size=40,
)


@given(STEPS)
def test_locks_are_as_a_plain_model_says(
    steps: list[tuple[str, str, list[LockedQueue], int]],
) -> None:
    locks, now_ms = QueueLocks(), 0
    model: dict[LockedQueue, tuple[str, int]] = {}
    for what, client, queues, wait_ms in steps:
        now_ms += wait_ms
        if what == "l":
            mine = []
            for queue in queues:
                owner, since = model.get(queue, (client, 0))
                if owner == client or now_ms - since >= 60_000:
                    model[queue] = client, now_ms
                    mine.append(queue)
            assert locks.lock("g", client, queues, now_ms) == mine
        elif what == "u":
            for queue in queues:
                if model.get(queue, ("",))[0] == client:
                    del model[queue]
            locks.unlock("g", client, queues)
        else:
            locks.sweep(now_ms)
        locks.check_invariants()
        held = any(now_ms - since < 60_000 for _, since in model.values())
        assert locks.is_orderly("g", now_ms) == held


def test_clients_lock_and_unlock(tmp_path: Path) -> None:
    queue = {"topic": "orders", "brokerName": "broker-a", "queueId": 1}
    wanted = {"consumerGroup": "g", "clientId": "a", "onlyThisBroker": False, "mqSet": [queue]}
    other = wanted | {"clientId": "b"}
    with remoting_door(tmp_path) as door, door.client() as client:
        assert client.json(Code.LOCK_BATCH_MQ, body=wanted) == {"lockOKMQSet": [queue]}
        assert client.json(Code.LOCK_BATCH_MQ, body=other) == {"lockOKMQSet": []}
        client.done(Code.UNLOCK_BATCH_MQ, body=wanted)
        assert client.json(Code.LOCK_BATCH_MQ, body=other) == {"lockOKMQSet": [queue]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "consumerGroup: missing"),
        ({"consumerGroup": "g", "clientId": "c"}, "mqSet: no list"),
        ({"consumerGroup": "g", "clientId": "c", "mqSet": [{}]}, "mqSet: an entry is no queue"),
        (
            {"consumerGroup": "g", "clientId": "c", "mqSet": [{"queueId": 1}]},
            "topic: missing",
        ),
    ],
)
def test_a_lock_that_is_none_is_refused(tmp_path: Path, body: object, why: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.LOCK_BATCH_MQ, body=body)
        assert answer.code == 29
        assert answer.remark.startswith(why)
