"""Access over remoting: who may ask what, and what others are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.access_files import ACCESS, access_file, signed
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door

from horolog.access.guard import Guard
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame, Serializer
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.transaction_commands import CheckDue
from horolog.server.remoting.access import NEEDS


@pytest.fixture
def door(tmp_path: Path) -> Iterator[RemotingDoor]:
    with remoting_door(tmp_path, guard=Guard(access_file(tmp_path))) as opened:
        for name in ("orders", "out-1", "in-1", "other"):
            opened.create(name, queues=1)
        yield opened


def ask(
    client: RemotingClient,
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
    *,
    who: str = "app",
    secret: str = "",
    **frame: Any,
) -> Frame:
    return client.call(code, signed(fields, body, who, secret), body, **frame)


def send(topic: str) -> dict[str, str]:
    return {
        "a": "group", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def pull(topic: str, group: str) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


@pytest.mark.parametrize("serializer", list(Serializer))
def test_sends_need_pub(door: RemotingDoor, serializer: Serializer) -> None:
    with door.client(serializer=serializer) as client:
        assert ask(client, 310, send("orders"), b"one").code == Status.SUCCESS
        refused = ask(client, 310, send("in-1"), b"two")
        assert refused.code == Status.NO_PERMISSION
        assert "User:app has no permission to access Topic:in-1, PUB" in refused.remark
        assert ask(client, 310, send("other"), b"x", who="operator").code == Status.SUCCESS
        found = ask(client, 11, pull("orders", "app-1"))
        assert found.code == Status.SUCCESS
        assert b"one" in found.body
        assert b"two" not in found.body


def test_checks_count_only_for_those_who_may_send(tmp_path: Path) -> None:
    """A client that claims a producer group, and may not send, would use up the checks of its transactions."""
    reader = '[identities.reader]\nsecret = "reader-secret"\ntopics = { "orders" = "SUB" }\n'
    guard = Guard(access_file(tmp_path, ACCESS + reader))
    with remoting_door(tmp_path, guard=guard) as door:
        door.create("orders", queues=1)
        half = send("orders") | {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"}
        with door.client() as sender:
            assert ask(sender, 310, half, b"one").code == Status.SUCCESS
        with door.client() as claims, door.client() as sends:
            claim_group(claims, "reader", "reader-secret")
            due = CheckDue(0, "orders", "pg")
            while door.within(lambda: door.front.producers.has(due)):
                # Until the sender is known to be gone
                claim_group(claims, "reader", "reader-secret")
            for _ in range(20):  # more often than a transaction is checked
                door.advance(300_000)
            claim_group(sends, "app", "app-secret")
            known = properties.decode(layout.decode(sends.push().body).properties)
            assert known["TRANSACTION_CHECK_TIMES"] == "1"
            assert claims.pushed == []


def test_checks_are_for_those_who_may_send_as_the_access_file_says_now(tmp_path: Path) -> None:
    """Also of a connection of which nothing was heard since the file was read again."""
    guard = Guard(access_file(tmp_path))
    due = CheckDue(0, "orders", "pg")
    with remoting_door(tmp_path, guard=guard) as door, door.client() as producer:
        claim_group(producer, "app", "")
        assert door.within(lambda: door.front.producers.has(due))
        for changed in (('"orders" = "PUB|SUB"', '"orders" = "SUB"'), ("app-secret", "new-secret")):
            access_file(tmp_path, ACCESS.replace(*changed))
            guard.reload()
            assert not door.within(lambda: door.front.producers.has(due)), changed
        access_file(tmp_path)
        guard.reload()
        assert door.within(lambda: door.front.producers.has(due))


def test_a_body_that_is_read_leniently_needs_the_same_rights(door: RemotingDoor) -> None:
    body = b'{"clientID":"\xd6","consumerDataSet":[{"groupName":"%b"}]}'
    with door.client() as client:
        refused = ask(client, Code.HEART_BEAT, {}, body % b"others")
        assert refused.code == Status.NO_PERMISSION
        assert "Group:others" in refused.remark
        assert ask(client, Code.HEART_BEAT, {}, body % b"app-1").code == Status.SUCCESS


def claim_group(client: RemotingClient, who: str, secret: str) -> None:
    group = {"groupName": "pg"}
    body = orjson.dumps({"clientID": who, "producerDataSet": [group], "consumerDataSet": []})
    done = ask(client, Code.HEART_BEAT, {}, body, who=who, secret=secret)
    assert done.code == Status.SUCCESS, done.remark


def test_routes_without_a_key_are_answered_if_the_file_allows_it(tmp_path: Path) -> None:
    """Go's pull consumers sign nothing that they ask the name server, and RocketMQ's looks at no key."""
    guard = Guard(access_file(tmp_path, "unsigned_routes = true\n" + ACCESS))
    route, orders = Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}
    with remoting_door(tmp_path, guard=guard) as door, door.client() as client:
        door.create("orders", queues=1)
        assert client.call(route, orders).code == Status.SUCCESS
        assert client.call(route, orders | {"OnsChannel": "ALIYUN"}).code == Status.SUCCESS
        assert client.call(route, {"topic": "unknown"}).code == Status.TOPIC_NOT_EXIST
        assert client.call(310, send("orders"), b"x").code == Status.NO_PERMISSION
        assert client.call(11, pull("orders", "app-1")).code == Status.NO_PERMISSION
        assert ask(client, route, orders, secret="wrong-secret").code == Status.NO_PERMISSION
        assert client.call(Code.GET_BROKER_CLUSTER_INFO).code == Status.NO_PERMISSION
        access_file(tmp_path)
        guard.reload()
        assert client.call(route, orders).code == Status.NO_PERMISSION
        keyless = client.call(route, orders | {"OnsChannel": "ALIYUN"})
        assert keyless.code == Status.NO_PERMISSION
        assert "AccessKey: missing" in keyless.remark


def test_who_is_not_known_is_refused(door: RemotingDoor) -> None:
    with door.client() as client:
        unsigned = client.call(310, send("orders"), b"x")
        assert unsigned.code == Status.NO_PERMISSION
        assert "AccessKey: missing" in unsigned.remark
        wrong = ask(client, 310, send("orders"), b"x", secret="wrong-secret")
        assert wrong.code == Status.NO_PERMISSION
        assert "check signature failed" in wrong.remark
        fields = signed(send("orders"), b"x", "app")
        assert client.call(310, fields, b"y").code == Status.NO_PERMISSION  # another body
        fields["e"] = "1"
        assert client.call(310, fields, b"x").code == Status.NO_PERMISSION  # another queue
        fields["Signature"] = "no base64"
        assert client.call(310, fields, b"x").code == Status.NO_PERMISSION
        away = ask(client, 310, send("orders"), b"x", who="elsewhere")
        assert "not accepted from 127.0.0.1" in away.remark
        assert client.call(999_999, {}).code == Status.REQUEST_CODE_NOT_SUPPORTED


def test_a_run_of_sends_is_checked_one_by_one(door: RemotingDoor) -> None:
    """Sends whose headers are alike are read as runs; a signature of another body does not pass in one."""
    with door.client() as client:
        good = signed(send("orders"), b"same", "app")
        frames = [
            client.request(310, good, b"same" if number % 10 else b"evil", opaque=number)
            for number in range(300)
        ]
        client.send(*frames)
        codes = [client.answer(number).code for number in range(300)]
        assert codes == [
            Status.SUCCESS if number % 10 else Status.NO_PERMISSION for number in range(300)
        ]
        body = ask(client, 11, pull("orders", "app-1")).body
        assert b"evil" not in body


def test_signed_sends_are_read_by_their_shape_and_a_forged_one_is_found(
    door: RemotingDoor,
) -> None:
    with door.client() as client:
        frames = []
        for number in range(500):
            fields = send("orders") | {"i": f"UNIQ_KEY\x01{number:032}\x02"}
            fields = signed(fields, b"good", "app")
            if number % 100 == 7:
                fields["i"] = f"UNIQ_KEY\x01{number + 1_000:032}\x02"
            frames.append(client.request(310, fields, b"good", opaque=number))
        client.send(*frames[:100])
        client.send(*frames[100:])
        codes = [client.answer(number).code for number in range(500)]
        denied = [number for number, code in enumerate(codes) if code == Status.NO_PERMISSION]
        assert denied == [7, 107, 207, 307, 407]
        assert codes.count(Status.SUCCESS) == 495
        others = [
            client.request(310, signed(send("in-1"), b"x", "app"), b"x", opaque=number)
            for number in range(500, 700)
        ]
        client.send(*others)
        codes = [client.answer(number).code for number in range(500, 700)]
        assert set(codes) == {Status.NO_PERMISSION}
        (reader,) = {
            link._reader for link in door.within(lambda: list(door.front.doors["broker"]._links))
        }
        assert any(shape.is_signed for shape in reader._known)


def test_pulls_offsets_and_members_need_group_and_topic(door: RemotingDoor) -> None:
    with door.client() as client:
        for topic, group in (("out-1", "app-1"), ("in-1", "other"), ("in-secret", "app-1")):
            refused = ask(client, 11, pull(topic, group))
            assert refused.code == Status.NO_PERMISSION, (topic, group)
        offset = {"consumerGroup": "other", "topic": "orders", "queueId": "0"}
        for code in (14, 15):
            assert ask(client, code, offset).code == Status.NO_PERMISSION
        for code in (29, 30, 31):
            look = {"topic": "other", "queueId": "0", "timestamp": "0"}
            assert ask(client, code, look).code == Status.NO_PERMISSION
        assert ask(client, 30, {"topic": "in-1", "queueId": "0"}).code == Status.SUCCESS


def heartbeat(group: str, topic: str) -> bytes:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    retry = {**subscription, "topic": f"%RETRY%{group}"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription, retry],
    }
    producer = {"groupName": "any"}
    return orjson.dumps(
        {"clientID": "c", "producerDataSet": [producer], "consumerDataSet": [consumer]}
    )


def test_heartbeats_locks_and_batches_are_checked_by_their_bodies(door: RemotingDoor) -> None:
    with door.client() as client:
        assert ask(client, 34, {}, heartbeat("app-1", "in-1")).code == Status.SUCCESS
        assert ask(client, 34, {}, heartbeat("other", "in-1")).code == Status.NO_PERMISSION
        assert ask(client, 34, {}, heartbeat("app-1", "out-1")).code == Status.NO_PERMISSION
        lock = orjson.dumps(
            {
                "consumerGroup": "app-1",
                "clientId": "c",
                "mqSet": [{"topic": "other", "brokerName": "broker-a", "queueId": 0}],
            }
        )
        assert ask(client, 41, {}, lock).code == Status.NO_PERMISSION


def test_routes_of_templates_are_for_everybody(door: RemotingDoor) -> None:
    with door.client() as client:
        for topic in ("TBW102", "DefaultCluster", "in-1", "out-1"):
            assert ask(client, 105, {"topic": topic}).code == Status.SUCCESS, topic
        assert ask(client, 105, {"topic": "other"}).code == Status.NO_PERMISSION


def test_the_route_of_the_reply_topic_is_for_everybody(door: RemotingDoor) -> None:
    """Whoever answers a request asks for it first, and without TBW102 has no other way to send the answer."""
    with door.client() as client:
        assert ask(client, 105, {"topic": "DefaultCluster_REPLY_TOPIC"}).code == Status.SUCCESS
        to_topic = ask(client, 310, send("DefaultCluster_REPLY_TOPIC"), b"no reply")
        assert to_topic.code == Status.NO_PERMISSION


def test_a_topic_that_may_be_sent_to_may_be_made(door: RemotingDoor) -> None:
    with door.client() as client:
        assert ask(client, 310, send("out-new"), b"x").code == Status.SUCCESS
        assert ask(client, 310, send("new"), b"x").code == Status.NO_PERMISSION


def test_what_is_read_by_position_must_be_of_a_topic_that_may_be_read(door: RemotingDoor) -> None:
    with door.client() as client:
        other = ask(client, 310, send("other"), b"private", who="operator")
        mine = ask(client, 310, send("orders"), b"mine")
        at = {
            name: str(int(answer.fields["msgId"][16:], 16))
            for name, answer in (("other", other), ("mine", mine))
        }
        assert b"mine" in ask(client, 33, {"offset": at["mine"]}).body
        refused = ask(client, 33, {"offset": at["other"]})
        assert (refused.code, refused.body) == (Status.NO_PERMISSION, b"")
        back = {"group": "app-1", "delayLevel": "0", "offset": at["other"]}
        assert ask(client, 36, back).code == Status.NO_PERMISSION
        assert b"private" in ask(client, 33, {"offset": at["other"]}, who="operator").body


def test_half_messages_are_shown_to_who_may_send_to_their_topic(door: RemotingDoor) -> None:
    """Whoever says it is of the producer group would be asked otherwise."""
    half = send("other") | {"f": "4", "i": "UNIQ_KEY\x01A1\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02"}
    beat = orjson.dumps({"clientID": "c", "producerDataSet": [{"groupName": "pg"}]})
    with door.client() as nosy, door.client() as rightful:
        with door.client() as sender:
            assert ask(sender, 310, half, b"private", who="operator").code == Status.SUCCESS
        assert ask(nosy, 34, {}, beat).code == Status.SUCCESS
        door.advance(61_000)
        ask(nosy, 30, {"topic": "in-1", "queueId": "0"})
        assert not nosy.pushed
        beat = beat.replace(b'"c"', b'"d"')
        assert ask(rightful, 34, {}, beat, who="operator").code == Status.SUCCESS
        door.advance(61_000)
        assert b"private" in rightful.push().body
        ask(nosy, 30, {"topic": "in-1", "queueId": "0"})
        assert not nosy.pushed


def test_who_may_not_send_to_a_topic_ends_none_of_its_transactions(door: RemotingDoor) -> None:
    """Old clients name no topic with the end; where half messages lie, and their numbers, can be guessed."""
    is_half = {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"}
    with door.client() as client:
        sent = ask(client, 310, send("other") | is_half, b"private", who="operator").fields
        end = {
            "producerGroup": "pg",
            "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": str(int(sent["msgId"][-16:], 16)),
        }
        for how in ("8", "12", "0"):
            for named in ({}, {"topic": "other"}):
                refused = ask(client, 37, end | named | {"commitOrRollback": how})
                assert refused.code == Status.NO_PERMISSION, (how, named, refused.remark)
        elsewhere = {**end, "commitLogOffset": "1", "commitOrRollback": "8"}
        assert ask(client, 37, elsewhere).code == Status.SYSTEM_ERROR
        commit = end | {"commitOrRollback": "8"}
        assert ask(client, 37, commit, who="operator").code == Status.SUCCESS
        sent = ask(client, 310, send("orders") | is_half, b"mine").fields
        commit |= {"tranStateTableOffset": sent["queueOffset"]}
        commit |= {"commitLogOffset": str(int(sent["msgId"][-16:], 16))}
        assert ask(client, 37, commit).code == Status.SUCCESS


def test_administration_is_for_administrators(door: RemotingDoor) -> None:
    with door.client() as client:
        asked = {
            Code.UPDATE_AND_CREATE_TOPIC: {"topic": "t", "readQueueNums": "1", "perm": "6"},
            Code.GET_ALL_TOPIC_CONFIG: {},
            Code.GET_BROKER_CLUSTER_INFO: {},
            Code.DELETE_TOPIC_IN_BROKER: {"topic": "orders"},
            Code.GET_CONSUME_STATS: {"consumerGroup": "app-1"},
        }
        for code, fields in asked.items():
            refused = ask(client, code, dict(fields))
            assert refused.code == Status.NO_PERMISSION, code.name
            assert "administrator" in refused.remark
        assert ask(client, Code.GET_BROKER_CLUSTER_INFO, {}, who="operator").code == 0


def test_a_field_that_old_clients_add_after_signing(door: RemotingDoor) -> None:
    with door.client() as client:
        query = {
            "topic": "in-1", "key": "k", "maxNum": "1", "beginTimestamp": "0",
            "endTimestamp": "9999999999999",
        }  # fmt: skip
        fields = signed(query, b"", "app")
        later = client.call(12, {**fields, "_UNIQUE_KEY_QUERY": "true"})
        assert later.code == Status.QUERY_NOT_FOUND
        wrong = client.call(12, {**fields, "_ANOTHER": "true"})
        assert wrong.code == Status.NO_PERMISSION


def test_routes_that_are_signed_with_a_constant_that_is_not_sent(door: RemotingDoor) -> None:
    """Alibaba Cloud's ons-client signs the fields of its class, a constant among them."""
    route = {"topic": "orders", "OnsChannel": "ALIYUN"}
    sent = signed(route | {"split": "\x01"}, b"", "app")
    del sent["split"]
    with door.client() as client:
        assert client.call(Code.GET_ROUTEINFO_BY_TOPIC, sent).code == Status.SUCCESS
        refused = client.call(Code.GET_ROUTEINFO_BY_TOPIC, sent | {"topic": "other"})
        assert "check signature failed" in refused.remark
        sends = signed(send("orders") | {"OnsChannel": "ALIYUN"}, b"x", "app")
        assert client.call(310, sends, b"x").code == Status.SUCCESS


def test_routes_that_name_the_channel_of_ons_and_sign_what_they_send(door: RemotingDoor) -> None:
    """The C++ client of 4.x."""
    fields = {"topic": "orders", "OnsChannel": "ALIYUN"}
    with door.client() as client:
        assert ask(client, 105, fields).code == Status.SUCCESS
        assert ask(client, 105, fields, secret="forged").code == Status.NO_PERMISSION
        from_here = ask(client, 105, fields, who="elsewhere")
        assert "'elsewhere' is not accepted from 127.0.0.1" in from_here.remark


def test_nothing_that_is_answered_is_forgotten(door: RemotingDoor) -> None:
    """Of what the table lacks only administrators' work is left."""
    theirs = {code for code in door.front.codes if code not in NEEDS}
    assert not {code for code in theirs if code.name.startswith(("SEND", "PULL", "POP", "ACK"))}
    assert Code.SEND_MESSAGE_V2 in NEEDS
