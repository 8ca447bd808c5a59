"""What the public suites for 5.x clients compare, as RocketMQ's proxy has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_unary import SERVICE


def test_an_empty_text_is_none(tmp_path: Path) -> None:
    """As in RocketMQ: some clients always send tag and message group."""

    async def story(door: Door) -> None:
        for topic in ("normal", "mixed"):
            made = message(topic, tag="", message_group="", keys=["", "k", ""])
            (entry,) = (await door.call("SendMessage", sending(made))).entries
            assert entry.status.code == pb.OK, entry.status
            got = (await door.receive(topic=topic))[1].message.system_properties
            assert (got.HasField("tag"), got.HasField("message_group")) == (False, False)
            assert (list(got.keys), got.message_type) == (["k"], pb.NORMAL)

    with_door(tmp_path, story)


def test_what_official_clients_show_of_a_message(tmp_path: Path) -> None:
    """The id as transaction id too, and group and trace among the properties, which may be sent back."""

    async def story(door: Door) -> None:
        made = message("fifo", message_group="g", trace_context="t", user={"color": "red"})
        for _ in range(2):
            (entry,) = (await door.call("SendMessage", sending(made))).entries
            assert entry.status.code == pb.OK, entry.status
            assert entry.transaction_id == entry.message_id == made.system_properties.message_id
            got = (await door.receive(topic="fifo"))[1].message
            assert dict(got.user_properties) == {
                "color": "red",
                "__SHARDINGKEY": "g",
                "TRACE_CONTEXT": "t",
            }
            made = message(
                "fifo",
                message_group="g",
                trace_context="t",
                message_id="id-2",
                user={**got.user_properties, "__transactionId__": "of another message"},
            )
        late = message("delay", message_id="later", delivery_timestamp=door.due(1_000))
        bad = message("delay", message_id="never")
        answer = await door.call("SendMessage", sending(late, bad))
        assert [each.transaction_id for each in answer.entries] == ["later", ""]

    with_door(tmp_path, story)


def test_what_comes_again_is_not_filtered_again(tmp_path: Path) -> None:
    """Unlike in RocketMQ, where a group that changes its subscription loses what it had in hand."""

    async def story(door: Door) -> None:
        topic, group = pb.Resource(name="mixed"), pb.Resource(name="g")
        made = message(tag="old"), message(message_id="id-2", tag="old")
        assert (await door.call("SendMessage", sending(made[0]))).status.code == pb.OK
        wanted = {"filter_expression": pb.FilterExpression(type=pb.TAG, expression="old")}
        got = (await door.receive(**wanted))[1].message.system_properties
        soon = pb.ChangeInvisibleDurationRequest(
            topic=topic, group=group, receipt_handle=got.receipt_handle, message_id=got.message_id
        )
        soon.invisible_duration.FromMilliseconds(0)
        assert (await door.call("ChangeInvisibleDuration", soon)).status.code == pb.OK
        assert (await door.call("SendMessage", sending(made[1]))).status.code == pb.OK
        await door.engine.advance(200)
        wanted["filter_expression"].expression = "new"
        again = [each.message for each in await door.receive(**wanted) if each.HasField("message")]
        assert [each.system_properties.message_id for each in again] == ["id-1"]
        assert again[0].system_properties.delivery_attempt == 2

    with_door(tmp_path, story)


def test_an_ack_names_its_code(tmp_path: Path) -> None:
    """Clients show the sentence of the whole answer, and the suites look for the name in it."""

    async def story(door: Door) -> None:
        topic, group = pb.Resource(name="mixed"), pb.Resource(name="g")
        made = message()
        assert (await door.call("SendMessage", sending(made))).status.code == pb.OK
        got = (await door.receive())[1].message.system_properties
        good = pb.AckMessageEntry(message_id="id-1", receipt_handle=got.receipt_handle)
        bad = pb.AckMessageEntry(message_id="id-1", receipt_handle="nonsense")
        for entries, name in (([bad], "INVALID_RECEIPT_HANDLE"), ([good, bad], "MULTIPLE_RESULTS")):
            request = pb.AckMessageRequest(topic=topic, group=group, entries=entries)
            status = (await door.call("AckMessage", request)).status
            assert pb.Code.Name(status.code) == name
            assert status.message.startswith(f"{name}: ")

    with_door(tmp_path, story)


def test_a_refused_change_gives_the_handle_back(tmp_path: Path) -> None:
    """Java's client keeps the handle of any answer, so without it the message could not be acknowledged."""

    async def story(door: Door) -> None:
        topic, group = pb.Resource(name="mixed"), pb.Resource(name="g")
        await door.call("SendMessage", sending(message()))
        handle = (await door.receive())[1].message.system_properties.receipt_handle
        request = pb.ChangeInvisibleDurationRequest(
            topic=topic,
            group=group,
            receipt_handle=handle,
            invisible_duration=Duration(seconds=13 * 3_600),
        )
        refused = await door.call("ChangeInvisibleDuration", request)
        assert refused.status.code == pb.ILLEGAL_INVISIBLE_TIME
        entry = pb.AckMessageEntry(message_id="id-1", receipt_handle=refused.receipt_handle)
        acked = pb.AckMessageRequest(topic=topic, group=group, entries=[entry])
        assert (await door.call("AckMessage", acked)).status.code == pb.OK

    with_door(tmp_path, story)


def test_an_unknown_topic_has_rocketmqs_words(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        request = pb.QueryRouteRequest(topic=pb.Resource(name="nowhere"), endpoints=ENDPOINTS)
        status = (await door.call("QueryRoute", request)).status
        assert status.code == pb.TOPIC_NOT_FOUND
        words = "CODE: 17  DESC: No topic route info in name server for the topic: nowhere"
        assert words in status.message

    with_door(tmp_path, story)


def test_a_crowd_starts_at_once_on_what_was_made_just_before(tmp_path: Path) -> None:
    """As suites do whose tests run in parallel: a connection, a topic and a group for each; nobody waits or fails."""

    async def begin(door: Door, name: str) -> None:
        headers = [("x-mq-client-id", name), ("x-mq-language", "JAVA")]
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(door.target, options=options) as channel:
            one = Door(door.engine, channel, door.front)
            await door.engine.submit(CreateTopic(name, TopicType.NORMAL, 8))
            topic, group = pb.Resource(name=name), pb.Resource(name=f"of-{name}")
            asked = pb.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)
            routed = await one.call("QueryRoute", asked, headers)
            assert (routed.status.code, len(routed.message_queues)) == (pb.OK, 8)
            stream = channel.stream_stream(
                f"/{SERVICE}/Telemetry",
                request_serializer=pb.TelemetryCommand.SerializeToString,
                response_deserializer=pb.TelemetryCommand.FromString,
            )(metadata=headers)
            settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
            settings.subscription.group.CopyFrom(group)
            settings.subscription.subscriptions.add(topic=topic)
            await stream.write(pb.TelemetryCommand(settings=settings))
            assert (await stream.read()).HasField("settings")
            wait = Duration(seconds=5)
            poll = asyncio.create_task(
                one.receive(
                    headers=headers, topic=name, group=group.name, long_polling_timeout=wait
                )
            )
            sent = await one.call("SendMessage", sending(message(name)), headers)
            assert sent.status.code == pb.OK
            assert (await poll)[1].message.body == b"body"
            stream.cancel()

    async def story(door: Door) -> None:
        await asyncio.gather(*(begin(door, f"t{number}") for number in range(100)))

    with_door(tmp_path, story)


@pytest.mark.parametrize("kind", [pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER])
def test_consumers_of_lite_topics_are_refused(tmp_path: Path, kind: pb.ClientType) -> None:
    """As ordinary ones they would take the messages of the topic that their lite topics are in."""

    async def story(door: Door) -> None:
        stream = door.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )(metadata=HEADERS)
        subscription = pb.Subscription(group=pb.Resource(name="g"))
        settings = pb.Settings(client_type=kind, subscription=subscription)
        await stream.write(pb.TelemetryCommand(settings=settings))
        assert (await stream.read()).status.code == pb.NOT_IMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError, match="lite topics are not supported"):
            await stream.read()

    with_door(tmp_path, story)
