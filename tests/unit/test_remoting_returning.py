"""4.x consumers that are back after a restart, before their first heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.sent import send
from tests.unit.test_remoting_members import QUEUE, join, of

from horolog.limits import REPORT_BYTES_MAX
from horolog.protocol.queue_commands import CommitOffsets
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Flag, Frame
from horolog.protocol.remoting.heartbeat import Subscription
from horolog.server.remoting import asked as asked_module
from horolog.server.remoting import returning
from horolog.server.remoting.asked import AskedSubscriptions
from horolog.server.remoting.returning import ReturningConsumers

PULL = {  # of a push consumer: it names no filter, and commits what it has consumed
    "consumerGroup": "workers",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 2,
    "suspendTimeoutMillis": 15_000,
    "commitOffset": 0,
    "subVersion": 7,
}
COMMIT = {"consumerGroup": "workers", "topic": "orders", "queueId": 0, "commitOffset": 0}
MEMBERS = {"consumerGroup": "workers"}


def running_info(*subscriptions: dict[str, Any]) -> bytes:
    """What a client of Java answers: its queues are keys that are objects."""
    queues = object_keys.table([(QUEUE, {"commitOffset": 0, "locked": False})])
    return orjson.dumps({"mqTable": queues, "subscriptionSet": list(subscriptions)})


ORDERS = {"topic": "orders", "subString": "TagA", "subVersion": 7, "expressionType": "TAG"}


@contextmanager
def with_message(tmp_path: Path) -> Iterator[tuple[RemotingDoor, RemotingClient]]:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        send(door, "orders", b"hello", tag="TagA")
        yield door, client
        door.within(door.front.node.asked.check_invariants)


def test_a_pull_before_the_heartbeat_uses_what_the_client_answers(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        first, second = client.ask(Code.PULL_MESSAGE, PULL), client.ask(Code.PULL_MESSAGE, PULL)
        question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        assert question.fields["consumerGroup"] == "workers"
        assert question.fields["clientId"].startswith("127.0.0.1:")
        assert question.fields["jstackEnable"] == "false"
        client.reply(question, body=running_info(ORDERS))
        for opaque in (first, second):
            answer = client.answer(opaque)
            assert answer.code == Status.SUCCESS, answer.remark
            assert b"hello" in answer.body
        client.done(Code.PULL_MESSAGE, PULL)
        assert client.pushed == []  # it is asked once


def test_a_pull_in_one_chunk_with_the_answer_is_not_refused(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        first = client.ask(Code.PULL_MESSAGE, PULL)
        question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        second = client.request(Code.PULL_MESSAGE, PULL, opaque=first + 1)
        reply = Frame(Status.SUCCESS, question.opaque, Flag.ANSWER, {}, running_info(ORDERS))
        client.send(reply, second)
        for opaque in (first, second.opaque):
            answer = client.answer(opaque)
            assert answer.code == Status.SUCCESS, answer.remark


def test_an_answer_in_one_chunk_with_the_heartbeat_is_not_kept(tmp_path: Path) -> None:
    with with_message(tmp_path) as (door, client):
        opaque = client.ask(Code.PULL_MESSAGE, PULL)
        question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        reply = Frame(Status.SUCCESS, question.opaque, Flag.ANSWER, {}, running_info(ORDERS))
        heartbeat = client.request(Code.HEART_BEAT, body={"clientID": "c1"}, opaque=opaque + 1)
        client.send(reply, heartbeat)
        assert client.answer(heartbeat.opaque).code == Status.SUCCESS
        door.within(door.front.node.asked.check_invariants)


def test_the_filter_that_the_client_answers_applies(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        opaque = client.ask(Code.PULL_MESSAGE, PULL)
        other = {**ORDERS, "subString": "TagB"}
        client.reply(of(client, Code.GET_CONSUMER_RUNNING_INFO), body=running_info(other))
        assert client.answer(opaque).code == Status.PULL_RETRY_IMMEDIATELY


@pytest.mark.parametrize(
    ("code", "body", "refusal"),
    [
        (Status.SYSTEM_ERROR, b"", Status.SUBSCRIPTION_NOT_EXIST),
        (Status.SUCCESS, b"", Status.SUBSCRIPTION_NOT_EXIST),
        (Status.SUCCESS, b'{"subscriptionSet":7}', Status.SUBSCRIPTION_NOT_EXIST),
        (Status.SUCCESS, running_info({"topic": 7}), Status.SUBSCRIPTION_NOT_EXIST),
        (Status.SUCCESS, running_info({"topic": "other"}), Status.SUBSCRIPTION_NOT_EXIST),
        (Status.SUCCESS, running_info({**ORDERS, "subVersion": 6}), Status.SUBSCRIPTION_NOT_LATEST),
        (
            Status.SUCCESS,
            running_info({**ORDERS, "expressionType": "SQL92", "subString": "a >"}),
            Status.SUBSCRIPTION_PARSE_FAILED,
        ),
        (
            Status.SUCCESS,
            running_info(ORDERS) + b" " * REPORT_BYTES_MAX,
            Status.SUBSCRIPTION_NOT_EXIST,
        ),
    ],
)
def test_an_answer_that_does_not_help_refuses_the_pull(
    tmp_path: Path, code: Status, body: bytes, refusal: Status
) -> None:
    with with_message(tmp_path) as (_, client):
        opaque = client.ask(Code.PULL_MESSAGE, PULL)
        client.reply(of(client, Code.GET_CONSUMER_RUNNING_INFO), code, body)
        assert client.answer(opaque).code == refusal
        assert client.call(Code.PULL_MESSAGE, PULL).code == refusal
        assert client.pushed == []


def test_a_client_that_does_not_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_module, "_ANSWER_S", 0.01)
    with with_message(tmp_path) as (_, client):
        assert client.call(Code.PULL_MESSAGE, PULL).code == Status.SUBSCRIPTION_NOT_EXIST


def test_the_heartbeat_answers_too(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        opaque = client.ask(Code.PULL_MESSAGE, PULL)
        of(client, Code.GET_CONSUMER_RUNNING_INFO)
        join(client, "c1")
        assert client.answer(opaque).code == Status.SUCCESS


def newer(version: int) -> dict[str, Any]:
    return {**PULL, "subVersion": version}


def test_a_pull_that_is_newer_than_the_heartbeat_uses_what_the_client_answers(
    tmp_path: Path,
) -> None:
    """Java leaves the heartbeat of a rebalance out while its timer sends one, for 30 s."""
    with with_message(tmp_path) as (_, client):
        join(client, "c1")
        for version in (8, 9):
            opaque = client.ask(Code.PULL_MESSAGE, newer(version))
            question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
            client.reply(question, body=running_info({**ORDERS, "subVersion": version}))
            assert client.answer(opaque).code == Status.SUCCESS
        client.pushed.clear()
        client.done(Code.PULL_MESSAGE, newer(9))
        assert client.pushed == []  # it is asked once a version


def test_a_pull_that_is_newer_than_the_answer_is_refused_and_not_asked_about_again(
    tmp_path: Path,
) -> None:
    with with_message(tmp_path) as (_, client):
        join(client, "c1")
        opaque = client.ask(Code.PULL_MESSAGE, newer(8))
        client.reply(of(client, Code.GET_CONSUMER_RUNNING_INFO), body=running_info(ORDERS))
        assert client.answer(opaque).code == Status.SUBSCRIPTION_NOT_LATEST
        client.pushed.clear()
        assert client.call(Code.PULL_MESSAGE, newer(8)).code == Status.SUBSCRIPTION_NOT_LATEST
        assert client.pushed == []


def test_pulls_of_many_versions_wait_for_two_answers_at_most(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        join(client, "c1")
        waiting = [client.ask(Code.PULL_MESSAGE, newer(version)) for version in (8, 9, 10, 11)]
        question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        client.reply(question, body=running_info({**ORDERS, "subVersion": 8}))
        assert client.answer(waiting[0]).code == Status.SUCCESS
        question = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        client.reply(question, body=running_info({**ORDERS, "subVersion": 10}))
        codes = [client.answer(opaque).code for opaque in waiting[1:]]
        assert codes == [Status.SUCCESS, Status.SUCCESS, Status.SUBSCRIPTION_NOT_LATEST]
        client.pushed.clear()
        client.done(Code.PULL_MESSAGE, newer(10))
        assert client.pushed == []


def test_nothing_is_kept_of_a_client_that_has_gone(tmp_path: Path) -> None:
    with with_message(tmp_path) as (door, client):
        with door.client() as other:
            other.ask(Code.PULL_MESSAGE, PULL)
            of(other, Code.GET_CONSUMER_RUNNING_INFO)
        client.done(Code.HEART_BEAT, body={"clientID": "c1"})
        deadline = 2_000
        while door.within(lambda: len(door.front.node.asked._asked)) and deadline:
            deadline -= 1
        assert deadline


def test_subscriptions_that_take_too_much_memory_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_module, "SUBSCRIPTIONS_BYTES_MAX", 100)
    with with_message(tmp_path) as (_, client):
        opaque = client.ask(Code.PULL_MESSAGE, PULL)
        client.reply(of(client, Code.GET_CONSUMER_RUNNING_INFO), body=running_info(ORDERS))
        assert client.answer(opaque).code == Status.SUBSCRIPTION_NOT_EXIST


def test_no_more_clients_are_asked_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_module, "CLIENTS_REMEMBERED_MAX", 0)
    asked = AskedSubscriptions()
    link: Any = object()
    assert asked.ask(link, "workers", 0) is None
    assert asked.get(link, "workers", "orders") is None


# --- who shares the queues ------------------------------------------------------------------------


@contextmanager
def restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemotingDoor]:
    """A broker that had a group before it stopped; all its clients have connected again."""
    monkeypatch.setattr(returning, "_COMMITS_MS", 0)
    with remoting_door(tmp_path) as door:
        door.create("orders", queues=1)
        door.submit(CommitOffsets("workers", "orders", {0: 0}))
    with remoting_door(tmp_path) as door:
        yield door
        door.within(door.front.node.returning.check_invariants)


def test_nobody_shares_the_queues_before_all_that_commit_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restarted(tmp_path, monkeypatch) as door, door.client() as one, door.client() as two:
        two.done(Code.UPDATE_CONSUMER_OFFSET, COMMIT)
        join(one, "c1")
        asked = {"topic": "orders", "consumerGroup": "workers", "clientId": "c1"}
        asked |= {"strategyName": "AVG", "messageModel": "CLUSTERING"}
        for client in (one, two):
            refused = client.call(Code.GET_CONSUMER_LIST_BY_GROUP, MEMBERS)
            assert refused.code == Status.SYSTEM_ERROR
            assert "has sent no heartbeat yet" in refused.remark
            later = client.json(Code.QUERY_ASSIGNMENT, body=asked)
            assert later == {"messageQueueAssignments": None}, "its client asks again"
        other = one.call(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "others"})
        assert "has no client" in other.remark
        one.pushed.clear()
        join(two, "c2")
        of(one, Code.NOTIFY_CONSUMER_IDS_CHANGED)
        found = one.json(Code.GET_CONSUMER_LIST_BY_GROUP, MEMBERS)
        assert sorted(found["consumerIdList"]) == ["c1", "c2"]


def test_a_client_that_has_gone_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restarted(tmp_path, monkeypatch) as door, door.client() as one:
        with door.client() as two:
            two.done(Code.UPDATE_CONSUMER_OFFSET, COMMIT)
            join(one, "c1")
            of(one, Code.NOTIFY_CONSUMER_IDS_CHANGED)
        of(one, Code.NOTIFY_CONSUMER_IDS_CHANGED)
        assert one.json(Code.GET_CONSUMER_LIST_BY_GROUP, MEMBERS) == {"consumerIdList": ["c1"]}


def test_a_broker_without_groups_awaits_nobody(tmp_path: Path) -> None:
    with with_message(tmp_path) as (_, client):
        client.done(Code.UPDATE_CONSUMER_OFFSET, COMMIT)
        join(client, "c1")
        assert client.json(Code.GET_CONSUMER_LIST_BY_GROUP, MEMBERS) == {"consumerIdList": ["c1"]}


def test_all_groups_wait_for_commits_and_some_for_heartbeats() -> None:
    awaited = ReturningConsumers()
    link: Any = object()
    awaited.add(link, "workers")
    assert not awaited.has("workers", 0)  # nothing was stopped
    awaited.await_all(1_000)
    awaited.add(link, "workers")
    awaited.add(link, "workers")
    assert awaited.has("anything", 6_999)
    assert awaited.all_for_ms(5_000) == 2_000
    assert not awaited.has("anything", 7_000)
    assert awaited.has("workers", 35_999)
    awaited.check_invariants()
    assert not awaited.has("workers", 36_000)
    awaited.add(link, "workers")
    assert awaited.forget(link) == set()
    assert not awaited.has("workers", 36_001)
    awaited.check_invariants()


# --- stops ----------------------------------------------------------------------------------------


def test_a_stop_refuses_pulls_that_wait_and_pulls_that_come(tmp_path: Path) -> None:
    """Clients of Java 4.x would wait for the answer of a connection that just ends for 30 s."""
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        join(client, "c1")
        waiting = client.ask(Code.PULL_MESSAGE, PULL)
        client.done(Code.HEART_BEAT, body={"clientID": "c1"})  # so the pull waits
        door.within(door.front._pull.stop)
        for answer in (client.answer(waiting), client.call(Code.PULL_MESSAGE, PULL)):
            assert answer.code == Status.SYSTEM_BUSY
            assert answer.remark == "the broker is stopping; pull again later"


def test_a_stop_does_not_refuse_pulls_of_cpp_which_would_come_again_at_once(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        join(client, "c1", language="CPP")
        waiting = client.ask(Code.PULL_MESSAGE, PULL, language="CPP")
        client.call(Code.HEART_BEAT, body={"clientID": "c1"}, language="CPP")  # so the pull waits
        door.within(door.front._pull.stop)
        send(door, "orders", b"hello", tag="TagA")
        assert client.answer(waiting).code == Status.SUCCESS
        assert client.call(Code.PULL_MESSAGE, PULL, language="CPP").code == Status.SUCCESS


def test_the_subscription_of_a_heartbeat_comes_first(tmp_path: Path) -> None:
    with with_message(tmp_path) as (door, client):
        join(client, "c1")
        assert client.call(Code.PULL_MESSAGE, PULL).code == Status.SUCCESS
        found = door.within(lambda: door.front.node.registry.subscription("workers", "orders"))
        assert found == Subscription("orders", "TagA || TagB", "TAG", 7)
