"""Order as a client over gRPC sees it: its settings, its queues, what it gets and when."""

from __future__ import annotations

from typing import Any

from grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door

from horolog.protocol.commands import ChangeTopic, CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.server.grpc_unary import SERVICE

ORDERLY = GroupSettings(orderly=True)


async def settings_for(door: Door, group: str, kind: int, headers: Any = HEADERS) -> pb.Settings:
    stream = door.channel.stream_stream(
        f"/{SERVICE}/Telemetry",
        request_serializer=pb.TelemetryCommand.SerializeToString,
        response_deserializer=pb.TelemetryCommand.FromString,
    )(metadata=headers)
    wanted = pb.Settings(
        client_type=kind, subscription=pb.Subscription(group=pb.Resource(name=group))
    )
    await stream.write(pb.TelemetryCommand(settings=wanted))
    answer = await stream.read()
    await stream.done_writing()
    return answer.settings


async def assigned(door: Door, group: str) -> list[int]:
    request = pb.QueryAssignmentRequest(
        topic=pb.Resource(name="steps"), group=pb.Resource(name=group), endpoints=ENDPOINTS
    )
    answer = await door.call("QueryAssignment", request)
    assert answer.status.code == pb.OK
    return [each.message_queue.id for each in answer.assignments]


def test_a_client_learns_whether_its_group_consumes_in_order(tmp_path) -> None:
    async def story(door: Door) -> None:
        await door.engine.submit(CreateTopic("steps", TopicType.FIFO, 3))
        await door.engine.submit(PutGroup("in-order", ORDERLY))
        await door.engine.submit(PutGroup("free", GroupSettings()))
        for kind in (pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER):
            assert (await settings_for(door, "in-order", kind)).subscription.fifo
            assert not (await settings_for(door, "free", kind)).subscription.fifo
            assert not (await settings_for(door, "unknown", kind)).subscription.fifo
        assert await assigned(door, "in-order") == [0, 1, 2]
        assert await assigned(door, "free") == await assigned(door, "unknown") == [-1]

    with_door(tmp_path, story)


def test_the_go_client_receives_one_message_at_a_time_in_order(tmp_path) -> None:
    """Of more it would consume the next ones while a failed one waits."""
    go = [("x-mq-client-id", "tester"), ("x-mq-language", "GO")]

    async def story(door: Door) -> None:
        await door.engine.submit(PutGroup("in-order", ORDERLY))
        for group, headers, batch in (
            ("in-order", go, 1),
            ("in-order", HEADERS, 32),
            ("free", go, 32),
        ):
            settings = await settings_for(door, group, pb.PUSH_CONSUMER, headers)
            assert settings.subscription.receive_batch_size == batch, (group, headers)

    with_door(tmp_path, story)


def test_a_group_in_order_gets_what_may_go(tmp_path) -> None:
    async def story(door: Door) -> None:
        await door.engine.submit(CreateTopic("steps", TopicType.FIFO, 2))
        await door.engine.submit(PutGroup("g", ORDERLY))
        for name in ("a1", "b1", "a2", "b2"):
            sent = message("steps", message_id=name, message_group=name[0])
            assert (await door.call("SendMessage", sending(sent))).status.code == pb.OK

        async def take(**more) -> dict[str, pb.Message]:
            frames = await door.receive(topic="steps", **more)
            got = [frame.message for frame in frames if frame.HasField("message")]
            return {each.system_properties.message_id: each for each in got}

        first = await take(batch_size=1, attempt_id="one")
        ((name, found),) = first.items()
        group, other = name[0], "ab"["ab".index(name[0]) ^ 1]
        system = found.system_properties
        assert (system.message_group, system.message_type) == (group, pb.FIFO)
        assert list(await take()) == [f"{other}1", f"{other}2"]
        assert not await take()
        again = await take(batch_size=1, attempt_id="one")
        assert list(again) == [name], "its answer was lost"
        system = again[name].system_properties
        assert system.delivery_attempt == 1
        acked = await door.call(
            "AckMessage",
            pb.AckMessageRequest(
                group=pb.Resource(name="g"),
                topic=pb.Resource(name="steps"),
                entries=[pb.AckMessageEntry(message_id=name, receipt_handle=system.receipt_handle)],
            ),
        )
        assert acked.status.code == pb.OK
        assert list(await take()) == [f"{group}2"]
        await door.engine.submit(ChangeTopic("steps", 4))
        assert not await take()

    with_door(tmp_path, story)
