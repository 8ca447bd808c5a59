"""Messages over the remoting door: sends of all kinds, pulls with and without waiting, offsets, queries, recalls."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import batch, bodies, layouts, pulling, sending, stored

from horolog.protocol.commands import TopicType
from horolog.protocol.queue_commands import DeleteGroup, GroupSettings, PutGroup
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame

# --- sends ------------------------------------------------------------------------------------------


def test_a_send_and_a_pull(tmp_path: Path) -> None:
    with remoting_door(tmp_path, advertised="127.0.0.1") as door, door.client() as client:
        door.create("orders")
        sent = client.done(
            Code.SEND_MESSAGE_V2,
            sending(
                e=2,
                h=7,
                properties={"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "ID1", "mine": "x"},
            ),
            b"hello",
        )
        assert sent.fields["queueId"] == "2"
        assert sent.fields["queueOffset"] == "0"
        assert sent.fields["transactionId"] == "ID1"
        assert (sent.fields["MSG_REGION"], sent.fields["TRACE_ON"]) == ("DefaultRegion", "true")
        answer = client.done(Code.PULL_MESSAGE, pulling(queueId=2))
        (message,) = layouts(answer.body)
        assert (message.body, message.topic, message.queue_id, message.flag) == (
            b"hello",
            "orders",
            2,
            7,
        )
        assert b"mine\x01x\x02" in message.properties
        assert answer.fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "1",
            "minOffset": "0",
            "maxOffset": "1",
        }
        # The id that the answer names is where the message lies, at the broker that is advertised.
        assert sent.fields["msgId"][:16] == "7F000001" + f"{10_911:08X}"
        position = int(sent.fields["msgId"][16:], 16)
        viewed = client.done(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders", "offset": position})
        assert viewed.body == answer.body


def test_the_long_header_and_a_batch_by_its_flag(tmp_path: Path) -> None:
    """As the C++ client sends everything."""
    fields = {
        "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 1, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": stored({"WAIT": "true"}),
        "reconsumeTimes": 0, "unitMode": "0", "batch": "1",
    }  # fmt: skip
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        body = batch((b"one", stored({"TAGS": "A"})), (b"two", ""))
        sent = client.done(Code.SEND_MESSAGE, fields, body)
        assert len(sent.fields["msgId"].split(",")) == 2
        assert bodies(client.done(Code.PULL_MESSAGE, pulling(queueId=1))) == [b"one", b"two"]


def test_sends_that_come_together_have_answers_of_their_own(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        requests = [
            client.request(Code.SEND_MESSAGE_V2, sending(e=n % 4), b"%d" % n, opaque=n)
            for n in range(1, 101)
        ]
        bad = client.request(Code.SEND_MESSAGE_V2, sending(), b"", opaque=0)
        unknown = client.request(Code.SEND_MESSAGE_V2, sending(e=9), b"x", opaque=200)
        client.send(*requests[:50], bad, unknown, *requests[50:])
        assert client.answer(0).code == Status.MESSAGE_ILLEGAL
        assert client.answer(200).code == Status.INVALID_PARAMETER
        answers = [client.answer(n) for n in range(1, 101)]
        assert {answer.code for answer in answers} == {0}
        assert [int(answer.fields["queueOffset"]) for answer in answers[::4]] == list(range(25))
        pulled = client.done(Code.PULL_MESSAGE, pulling(queueId=1))
        assert bodies(pulled) == [b"%d" % n for n in range(1, 101, 4)]


def test_a_scheduled_message_comes_when_it_is_due_and_can_be_recalled(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        due_ms = door.engine.clock.wall_ms() + 60_000
        properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "ID1"}
        sent = client.done(Code.SEND_MESSAGE_V2, sending(properties=properties), b"later")
        gone = client.done(
            Code.SEND_MESSAGE_V2, sending(properties=properties | {"UNIQ_KEY": "ID2"}), b"never"
        )
        recall = {"topic": "orders", "recallHandle": gone.fields["recallHandle"]}
        assert client.done(Code.RECALL_MESSAGE, recall).fields == {"msgId": "ID2"}
        again = client.call(Code.RECALL_MESSAGE, recall)
        assert again.code == Status.ILLEGAL_OPERATION
        assert again.remark.startswith("NOT_FOUND")
        assert client.call(Code.PULL_MESSAGE, pulling()).code == Status.PULL_NOT_FOUND
        door.advance(59_999)
        waiting = client.ask(Code.PULL_MESSAGE, pulling(sysFlag=6))
        client.call(Code.GET_BROKER_CLUSTER_INFO)
        assert waiting not in client._answers
        door.advance(1)
        answer = client.answer(waiting)
        assert bodies(answer) == [b"later"]
        late = client.call(
            Code.RECALL_MESSAGE, recall | {"recallHandle": sent.fields["recallHandle"]}
        )
        assert late.remark.startswith("ALREADY_DELIVERED")


def test_a_message_that_cancels_another_one_is_never_stored(tmp_path: Path) -> None:
    """As RocketMQ's timers: by id and due time, to the second; SEND_OK whatever was found."""

    def send(name: str, due_ms: int, **more: str) -> Frame:
        named = {"UNIQ_KEY": name, "TIMER_DELIVER_MS": str(due_ms), **more}
        return client.done(Code.SEND_MESSAGE_V2, sending(properties=named), name.encode())

    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        due_ms = (door.engine.clock.wall_ms() // 1_000 + 60) * 1_000
        for number in range(6):
            send(f"ID{number}", due_ms)
        cancelled = send("D0", due_ms, TIMER_DEL_UNIQKEY="ID0")
        assert cancelled.fields["msgId"] == "0"
        assert "recallHandle" not in cancelled.fields
        send("D1", due_ms, TIMER_DEL_UNIQKEY="orders+ID1")
        send("D2", due_ms - 999, TIMER_DEL_UNIQKEY="ID2")
        send("D3", due_ms - 1_000, TIMER_DEL_UNIQKEY="ID3")  # in another second
        send("D4", due_ms, TIMER_DEL_UNIQKEY="nobody")
        send("D5", due_ms, TIMER_DEL_UNIQKEY="")
        send("D6", due_ms, TIMER_DEL_UNIQKEY="ID0")  # again
        now = {"UNIQ_KEY": "N", "TIMER_DEL_UNIQKEY": "ID4"}
        client.done(Code.SEND_MESSAGE_V2, sending(properties=now), b"no due time: a message")
        level = {"UNIQ_KEY": "L", "TIMER_DEL_UNIQKEY": "ID4", "DELAY": "1"}
        client.done(Code.SEND_MESSAGE_V2, sending(properties=level), b"a level: a message")
        left_ms = due_ms - door.engine.clock.wall_ms()
        door.advance(left_ms - 10_000)
        late = {"UNIQ_KEY": "R", "TIMER_DELAY_SEC": "10", "TIMER_DEL_UNIQKEY": "ID5"}
        client.done(Code.SEND_MESSAGE_V2, sending(properties=late), b"relative")
        door.advance(20_000)
        pulled = bodies(client.done(Code.PULL_MESSAGE, pulling()))
        assert pulled == [b"no due time: a message", b"a level: a message", b"ID3", b"ID4"]
        unknown = sending("nowhere", properties={**late, "UNIQ_KEY": "U"})
        assert client.call(Code.SEND_MESSAGE_V2, unknown, b"x").code == Status.TOPIC_NOT_EXIST


def test_sends_that_cancel_come_among_others(tmp_path: Path) -> None:
    """Many at once, so they are read by what they have in common; and never in a batch."""
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        due_ms = door.engine.clock.wall_ms() + 60_000

        def sends(names: list[str], **more: str) -> list[Frame]:
            requests = []
            for number, name in enumerate(names):
                named = {"UNIQ_KEY": name, "TIMER_DELIVER_MS": str(due_ms)}
                named |= {key: value % number for key, value in more.items()}
                fields = sending(properties=named)
                requests.append(
                    client.request(Code.SEND_MESSAGE_V2, fields, name.encode(), opaque=number)
                )
            client.send(*requests)
            return [client.answer(number) for number in range(len(names))]

        for _ in range(3):
            assert not any(a.code for a in sends([f"ID{n}" for n in range(100)]))
            found = sends([f"D{n}" for n in range(100)], TIMER_DEL_UNIQKEY="ID%d")
            assert {(a.code, a.fields["msgId"]) for a in found} == {(0, "0")}
        both = {"UNIQ_KEY": "B", "TIMER_DELIVER_MS": str(due_ms), "TIMER_DEL_UNIQKEY": "ID1"}
        body = batch((b"one", stored(both)))
        refused = client.call(Code.SEND_BATCH_MESSAGE, sending(m=True), body)
        assert refused.code == Status.INVALID_PARAMETER
        assert "TIMER_DEL_UNIQKEY" in refused.remark
        door.advance(60_000)
        assert client.call(Code.PULL_MESSAGE, pulling()).code == Status.PULL_NOT_FOUND


def test_a_level_delays(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        client.done(Code.SEND_MESSAGE_V2, sending(properties={"DELAY": "3"}), b"in 10 s")
        door.advance(9_999)
        assert client.call(Code.PULL_MESSAGE, pulling()).code == Status.PULL_NOT_FOUND
        door.advance(1)
        assert bodies(client.done(Code.PULL_MESSAGE, pulling())) == [b"in 10 s"]


def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        client.ask(Code.SEND_MESSAGE_V2, sending(), b"one way", one_way=True)
        answer = client.call(Code.PULL_MESSAGE, pulling(sysFlag=6))
        assert bodies(answer) == [b"one way"]
        assert not client._answers


# --- topics that are not there ----------------------------------------------------------------------


def test_a_send_makes_a_topic_that_takes_everything(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        requests = [
            client.request(Code.SEND_MESSAGE_V2, sending("new", e=n, d=3), b"%d" % n, opaque=n)
            for n in range(3)
        ]
        client.send(*requests)
        assert [client.answer(n).code for n in range(3)] == [0, 0, 0]
        (queues,) = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "new"})["queueDatas"]
        assert queues["writeQueueNums"] == 3
        client.done(Code.SEND_MESSAGE_V2, sending("new", properties={"DELAY": "1"}), b"x")


def test_sends_that_come_while_their_topic_is_made_keep_their_order(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        for topic in [f"new-{n}" for n in range(8)]:
            for n in range(100):
                client.send(client.request(Code.SEND_MESSAGE_V2, sending(topic), b"x", opaque=n))
            offsets = [int(client.answer(n).fields["queueOffset"]) for n in range(100)]
            assert offsets == list(range(100))


def test_what_cancels_a_send_that_makes_its_topic_finds_it(tmp_path: Path) -> None:
    """Whether it comes right after it or while the topic is made."""
    later = {"TIMER_DELAY_SEC": "60"}
    with remoting_door(tmp_path) as door, door.client() as client:

        def request(topic: str, opaque: int, **more: str) -> Frame:
            fields = sending(topic, properties=later | more)
            return client.request(Code.SEND_MESSAGE_V2, fields, b"x", opaque=opaque)

        for n in range(8):
            made = request(f"new-{n}", 1, UNIQ_KEY="ID")
            cancel = request(f"new-{n}", 2, UNIQ_KEY="D", TIMER_DEL_UNIQKEY="ID")
            if n % 2:
                client.send(made, cancel)
            else:
                client.send(made)
                client.send(cancel)
            assert [client.answer(opaque).code for opaque in (1, 2)] == [0, 0]
        door.advance(60_000)
        for n in range(8):
            assert client.call(Code.PULL_MESSAGE, pulling(f"new-{n}")).code == Status.PULL_NOT_FOUND


def test_who_asks_for_no_queues_fails_alone_where_a_topic_is_made(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as other:
        wrong = client.ask(Code.SEND_MESSAGE_V2, sending("new", d="many"), b"x")
        assert client.answer(wrong).code == Status.INVALID_PARAMETER
        assert other.done(Code.SEND_MESSAGE_V2, sending("new"), b"x").fields["queueOffset"] == "0"


def test_without_auto_creation_only_topics_for_retries_are_made(tmp_path: Path) -> None:
    with remoting_door(tmp_path, auto_create=False) as door, door.client() as client:
        answer = client.call(Code.SEND_MESSAGE_V2, sending("new"), b"x")
        assert answer.code == Status.TOPIC_NOT_EXIST
        assert "new" in answer.remark
        door.submit(PutGroup("g"))
        for topic in ("%RETRY%g", "%DLQ%g", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn"):
            client.done(Code.SEND_MESSAGE_V2, sending(topic), b"x")
            (queues,) = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
            assert queues["writeQueueNums"] == 1


@pytest.mark.parametrize(
    "topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "no blank"]
)
def test_topics_that_no_client_may_send_to(tmp_path: Path, topic: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.SEND_MESSAGE_V2, sending(topic), b"x")
        assert answer.code == Status.INVALID_PARAMETER
        assert answer.remark.startswith("topic ")


# --- pulls ------------------------------------------------------------------------------------------


def filled(door: RemotingDoor, client: RemotingClient, count: int, tag: str = "A") -> None:
    """So many messages in queue 0 of `orders`."""
    door.create("orders", TopicType.NORMAL)
    client.send(
        *[
            client.request(
                Code.SEND_MESSAGE_V2,
                sending(properties={"TAGS": tag}),
                b"%d" % n,
                opaque=10_000 + n,
            )
            for n in range(count)
        ]
    )
    assert [client.answer(10_000 + n).code for n in range(count)] == [0] * count


@pytest.mark.parametrize(
    ("fields", "code", "next_offset"),
    [
        ({}, Status.SUCCESS, 3),
        ({"queueOffset": 2}, Status.SUCCESS, 3),
        ({"maxMsgNums": 2}, Status.SUCCESS, 2),
        ({"maxMsgNums": 0}, Status.SUCCESS, 1),  # of pull consumers in Go
        ({"subscription": "B"}, Status.PULL_RETRY_IMMEDIATELY, 3),
        ({"queueOffset": 3}, Status.PULL_NOT_FOUND, 3),
        ({"queueOffset": 4}, Status.PULL_OFFSET_MOVED, 3),
        ({"queueOffset": 4, "sysFlag": 5}, Status.PULL_OFFSET_MOVED, 0),  # of a push consumer
        ({"queueOffset": -1}, Status.PULL_OFFSET_MOVED, 0),
        ({"queueId": 1}, Status.PULL_NOT_FOUND, 0),
        ({"queueId": 1, "queueOffset": 5}, Status.PULL_OFFSET_MOVED, 0),
    ],
)
def test_what_a_pull_comes_upon(
    tmp_path: Path, fields: dict[str, object], code: Status, next_offset: int
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 3)
        answer = client.call(Code.LITE_PULL_MESSAGE, pulling(**fields))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (code, str(next_offset))
        assert bool(answer.body) == (code == Status.SUCCESS)


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"queueId": 4}, Status.INVALID_PARAMETER, "queue: 4"),
        ({"topic": "nobody"}, Status.TOPIC_NOT_EXIST, "topic"),
        ({"subscription": "||"}, Status.SUBSCRIPTION_PARSE_FAILED, "filter_expression"),
        ({"expressionType": "XPATH"}, Status.SUBSCRIPTION_PARSE_FAILED, "expressionType"),
        ({"expressionType": "SQL92"}, Status.SUBSCRIPTION_PARSE_FAILED, "filter_expression"),
        ({"sysFlag": 0}, Status.SUBSCRIPTION_NOT_EXIST, "subscription"),
        ({"maxMsgNums": -1}, Status.INVALID_PARAMETER, "maxMsgNums: -1; 0 to"),
        ({"queueOffset": "x"}, Status.INVALID_PARAMETER, "queueOffset: 'x' is no number"),
        ({"consumerGroup": "no blank"}, Status.INVALID_PARAMETER, "consumer group"),
    ],
)
def test_pulls_that_are_refused(
    tmp_path: Path, fields: dict[str, object], code: Status, why: str
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 1)
        answer = client.call(Code.PULL_MESSAGE, pulling(**fields))
        assert answer.code == code
        assert answer.remark.startswith(why)


def test_a_group_that_may_not_consume_gets_nothing(tmp_path: Path) -> None:
    """A group that is not known yet may."""
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 1)
        client.done(Code.PULL_MESSAGE, pulling())
        door.submit(PutGroup("g", GroupSettings(consume_enable=False)))
        answer = client.call(Code.PULL_MESSAGE, pulling())
        assert answer.code == Status.NO_PERMISSION
        assert "g" in answer.remark


def test_a_pull_of_a_group_without_a_heartbeat_is_one_command(tmp_path: Path) -> None:
    """It was refused for the group and asked again, which took another turn."""
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 1)
        before = door.within(lambda: door.engine.meters.commands.total)
        client.done(Code.PULL_MESSAGE, pulling())
        assert door.within(lambda: door.engine.meters.commands.total) == before + 1


def test_a_pull_waits_on_when_its_group_is_deleted(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        door.submit(PutGroup("g"))
        waiting = client.ask(Code.PULL_MESSAGE, pulling(sysFlag=6))
        client.call(Code.GET_BROKER_CLUSTER_INFO)
        door.submit(DeleteGroup("g"))
        client.done(Code.SEND_MESSAGE_V2, sending(), b"x")
        assert bodies(client.answer(waiting)) == [b"x"]


def test_a_pull_goes_by_the_subscription_of_the_heartbeat(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 2)
        subscription = {"topic": "orders", "subString": "B", "subVersion": 5}
        consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
        client.done(Code.HEART_BEAT, body={"clientID": "c", "consumerDataSet": [consumer]})
        answer = client.call(Code.PULL_MESSAGE, pulling(sysFlag=0, subVersion=5))
        assert answer.code == Status.PULL_RETRY_IMMEDIATELY
        newer = client.call(Code.PULL_MESSAGE, pulling(sysFlag=0, subVersion=6))
        assert newer.code == Status.SUBSCRIPTION_NOT_LATEST


def test_a_group_that_may_not_broadcast_does_not_consume_so(tmp_path: Path) -> None:
    """As `mqadmin updateSubGroup` sets a group without `-d true`."""
    with remoting_door(tmp_path) as door, door.client() as client:
        filled(door, client, 1)
        door.submit(PutGroup("g", GroupSettings(broadcast_enable=False)))
        for model, code in (("BROADCASTING", Status.NO_PERMISSION), ("CLUSTERING", Status.SUCCESS)):
            consumer = {
                "groupName": "g",
                "messageModel": model,
                "subscriptionDataSet": [{"topic": "orders", "subString": "*"}],
            }
            client.done(Code.HEART_BEAT, body={"clientID": "c", "consumerDataSet": [consumer]})
            answer = client.call(Code.PULL_MESSAGE, pulling(sysFlag=0))
            assert answer.code == code, answer.remark


def test_a_waiting_pull_ends_in_time(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        answer = client.call(Code.PULL_MESSAGE, pulling(sysFlag=6, suspendTimeoutMillis=20))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Status.PULL_NOT_FOUND, "0")


def test_a_connection_that_ends_takes_its_waiting_pulls_along(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as other:
        door.create("orders")
        with door.client() as client:
            for _ in range(5):
                client.ask(Code.PULL_MESSAGE, pulling(sysFlag=6))
            client.call(Code.GET_BROKER_CLUSTER_INFO)
            assert door.within(lambda: door.engine.broker.shard.ready.parked) == 5
        while door.within(lambda: door.engine.broker.shard.ready.parked):
            other.call(Code.GET_BROKER_CLUSTER_INFO)
        assert not door.within(lambda: bool(door.front._pull._waiting))


def test_when_the_oldest_message_of_a_queue_was_stored(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        asked = {"topic": "orders", "queueId": 0}
        code = Code.GET_EARLIEST_MSG_STORETIME
        assert client.done(code, asked).fields["timestamp"] == "-1"
        stored_ms = door.within(door.engine.clock.wall_ms)
        client.done(Code.SEND_MESSAGE_V2, sending(), b"x")
        door.advance(5_000)
        client.done(Code.SEND_MESSAGE_V2, sending(), b"y")
        assert client.done(code, asked).fields["timestamp"] == str(stored_ms)
        assert client.call(code, asked | {"queueId": 1}).code == Status.INVALID_PARAMETER
