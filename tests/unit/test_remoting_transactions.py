"""Transactions of 4.x clients over a real door: half messages, END_TRANSACTION, CHECK_TRANSACTION_STATE."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import batch, sending, stored

from horolog.limits import STORED_PROPERTIES_MAX
from horolog.protocol.commands import Ack, Receive, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Flag, Frame
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.transaction_commands import CheckDue
from horolog.server.remoting import link as link_module
from horolog.server.remoting.link import RemotingLink

HALF = {"UNIQ_KEY": "A1", "TRAN_MSG": "true", "PGROUP": "pg"}
PREPARED, COMMIT, ROLLBACK = 4, 8, 12


@pytest.fixture
def door(tmp_path: Path) -> Iterator[RemotingDoor]:
    with remoting_door(tmp_path) as made:
        made.create("orders", queues=1)
        yield made


@pytest.fixture
def client(door: RemotingDoor) -> Iterator[RemotingClient]:
    with door.client() as made:
        yield made


def begin(client: RemotingClient, known: dict[str, str] = HALF, **fields: Any) -> Frame:
    return client.done(Code.SEND_MESSAGE_V2, sending(properties=known, f=PREPARED, **fields), b"1")


def end(client: RemotingClient, half: Frame, said: int, **fields: Any) -> Frame:
    """As a Java client reads the answer to a half message."""
    return client.call(
        Code.END_TRANSACTION,
        {
            "producerGroup": "pg",
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": int(half.fields["msgId"][16:], 16),
            "commitOrRollback": said,
            "fromTransactionCheck": False,
            "msgId": half.fields["transactionId"],
            "transactionId": half.fields["transactionId"],
            **fields,
        },
    )


def consumed(door: RemotingDoor, topic: str = "orders") -> list[layout.Stored]:
    found = door.submit(Receive("g", topic, -1, "*", 32, 60_000, False, 0, "c")).messages
    door.submit(Ack("g", topic, [each.receipt_handle for each in found]))
    return [layout.decode(each.layout) for each in found]


@pytest.mark.parametrize(
    ("said", "is_half"), [("true", True), ("True", True), ("TRUE", True), ("truer", False)]
)
def test_a_half_message_is_marked_as_java_reads_a_boolean(door, client, said, is_half) -> None:
    known = HALF | {"TRAN_MSG": said}
    half = client.done(Code.SEND_MESSAGE_V2, sending(properties=known), b"1")
    assert len(consumed(door)) == (not is_half)
    if is_half:
        assert end(client, half, COMMIT).code == Status.SUCCESS
        (found,) = consumed(door)
        assert properties.decode(found.properties)["TRAN_MSG"] == said


def test_a_half_message_is_seen_when_it_is_committed(door, client) -> None:
    half = begin(client)
    assert half.fields["transactionId"] == "A1"
    assert "recallHandle" not in half.fields
    assert consumed(door) == []
    for _ in range(2):
        assert end(client, half, COMMIT).code == Status.SUCCESS
    (found,) = consumed(door)
    assert found.body == b"1"
    assert found.prepared_offset == int(half.fields["msgId"][16:], 16)
    known = properties.decode(found.properties)
    assert (known["PGROUP"], known["TRAN_MSG"]) == ("pg", "true"), "for Java's getTransactionId()"
    assert end(client, half, ROLLBACK).code == Status.SYSTEM_ERROR


def test_what_is_rolled_back_never_comes_and_neither_does_what_is_unknown(door, client) -> None:
    half, other = begin(client), begin(client, HALF | {"UNIQ_KEY": "A2"})
    assert int(other.fields["queueOffset"]) == int(half.fields["queueOffset"]) + 1
    assert end(client, half, ROLLBACK).code == Status.SUCCESS
    assert end(client, other, 0).code == Status.SUCCESS
    assert consumed(door) == []


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 99}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "no such transaction"),
    ],
)
def test_an_end_that_does_not_fit(door, client, wrong, remark) -> None:
    answer = end(client, begin(client), COMMIT, **wrong)
    assert (answer.code, remark in answer.remark) == (Status.SYSTEM_ERROR, True)
    assert consumed(door) == []


@pytest.mark.parametrize("known", [{"DELAY": "2"}, {"TIMER_DELAY_MS": "5000"}])
def test_delays_count_from_the_commit(door, client, known) -> None:
    half = begin(client, HALF | known)
    door.advance(60_000)
    assert end(client, half, COMMIT).code == Status.SUCCESS
    door.advance(4_999)
    assert consumed(door) == []
    door.advance(1)
    assert len(consumed(door)) == 1


def test_a_producer_group_is_asked(door, client) -> None:
    half = begin(client)
    door.advance(6_000)
    asked = client.push()
    assert asked.code == Code.CHECK_TRANSACTION_STATE
    assert asked.is_one_way
    fields = asked.fields
    assert fields["tranStateTableOffset"] == half.fields["queueOffset"]
    assert int(fields["commitLogOffset"]) == int(half.fields["msgId"][16:], 16)
    assert fields["offsetMsgId"] == half.fields["msgId"]
    assert (fields["topic"], fields["msgId"]) == ("orders", "A1")
    message = layout.decode(asked.body)
    known = properties.decode(message.properties)
    assert (message.topic, message.body) == ("orders", b"1")
    assert message.position == int(fields["commitLogOffset"])
    assert (known["PGROUP"], known["TRANSACTION_CHECK_TIMES"]) == ("pg", "1")
    assert end(client, half, COMMIT, fromTransactionCheck=True).code == Status.SUCCESS
    assert len(consumed(door)) == 1


def test_a_check_without_room_for_its_count_is_sent_without_it(door, client) -> None:
    begin(client, HALF | {"filler": "x" * (STORED_PROPERTIES_MAX - 90)})
    door.advance(6_000)
    message = layout.decode(client.push().body)
    assert len(message.properties) <= STORED_PROPERTIES_MAX
    assert properties.decode(message.properties)["PGROUP"] == "pg"


def test_a_check_waits_for_a_producer_of_the_group(door, client) -> None:
    with door.client() as sender:
        half = begin(sender)
    while door.within(lambda: door.front.producers.has(CheckDue(0, "orders", "pg"))):
        client.done(Code.HEART_BEAT, body={"clientID": "other", "producerDataSet": []})
    door.advance(60_000)
    assert client.pushed == []
    group = {"groupName": "pg"}
    client.done(Code.HEART_BEAT, body={"clientID": "c1", "producerDataSet": [group]})
    assert client.push().fields["transactionId"] == half.fields["transactionId"]


def test_a_sender_that_left_before_its_half_message_was_stored_is_not_kept(door) -> None:
    """Sends are gathered until the next turn, and the connection may end meanwhile."""
    fields = {name: str(value) for name, value in sending(properties=HALF, f=PREPARED).items()}

    def send_and_leave() -> weakref.ref[RemotingLink]:
        link = RemotingLink(None, door.front)
        door.front.sends_received(link, [Frame(Code.SEND_MESSAGE_V2, 1, Flag(0), fields, b"1")])
        link.connection_ended()
        return weakref.ref(link)

    left = door.within(send_and_leave)
    door.advance(6_000)
    gc.collect()
    assert left() is None


def test_a_producer_that_reads_nothing_is_not_asked_and_nothing_is_counted(
    door, client, monkeypatch
) -> None:
    begin(client)
    due = CheckDue(0, "orders", "pg")
    assert door.within(lambda: door.front.producers.has(due))
    monkeypatch.setattr(link_module, "UNREAD_BYTES_MAX", -1)
    assert not door.within(lambda: door.front.producers.has(due))


def test_a_transaction_is_made_with_the_topic_or_in_one_of_any_type(door, client) -> None:
    half = begin(client, b="made")
    assert end(client, half, COMMIT).code == Status.SUCCESS
    assert len(consumed(door, "made")) == 1
    door.create("plain", TopicType.NORMAL)
    half = begin(client, b="plain")
    assert end(client, half, COMMIT).code == Status.SUCCESS
    assert len(consumed(door, "plain")) == 1
    retried = client.call(Code.SEND_MESSAGE_V2, sending(properties=HALF, b="%RETRY%g"), b"1")
    assert retried.code == Status.INVALID_PARAMETER


def test_a_consumer_sends_a_committed_message_back_with_all_its_properties(door, client) -> None:
    half = begin(client)
    assert end(client, half, COMMIT).code == Status.SUCCESS
    (found,) = consumed(door)
    known = properties.decode(found.properties) | {"DELAY": "1", "RETRY_TOPIC": "orders"}
    fields = sending(properties=known, b="%RETRY%g", f=PREPARED, j=1)
    assert client.call(Code.SEND_MESSAGE_V2, fields, b"1").code == Status.SUCCESS
    door.advance(1_000)
    (again,) = consumed(door, "%RETRY%g")
    assert again.reconsume_times == 1


def test_a_batch_has_no_messages_of_transactions(door, client) -> None:
    body = batch((b"1", stored({"UNIQ_KEY": "B1"})), (b"2", stored(HALF)))
    refused = client.call(Code.SEND_BATCH_MESSAGE, sending(m=True), body)
    assert (refused.code, "TRAN_MSG" in refused.remark) == (Status.INVALID_PARAMETER, True)
    assert consumed(door) == []
