"""How long a receive waits: as it says, as its client's settings say, and no longer than its client stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_door import HEADERS, Door, message, sending, with_door

from horolog.limits import ATTEMPT_ID_MAX, FILTER_EXPRESSION_MAX, MIB
from horolog.protocol.commands import DescribeBroker
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_unary import SERVICE
from horolog.server.intake import Intake

OTHER = [("x-mq-client-id", "other"), ("x-mq-language", "JAVA")]
AWAIT = Duration(nanos=300_000_000)
LONG = Duration(seconds=20)
BYE = pb.NotifyClientTerminationRequest()


@asynccontextmanager
async def settled(
    door: Door, await_for: Duration | None, client_type: int = pb.SIMPLE_CONSUMER
) -> AsyncIterator[pb.TelemetryCommand]:
    """The answer to a consumer's settings, while its Telemetry stream is open."""
    method = door.channel.stream_stream(
        f"/{SERVICE}/Telemetry",
        request_serializer=pb.TelemetryCommand.SerializeToString,
        response_deserializer=pb.TelemetryCommand.FromString,
    )
    stream: Any = method(metadata=HEADERS)
    settings = pb.Settings(
        client_type=client_type,
        subscription=pb.Subscription(
            group=pb.Resource(name="g"), fifo=False, long_polling_timeout=await_for
        ),
    )
    await stream.write(pb.TelemetryCommand(settings=settings))
    yield await stream.read()
    stream.cancel()


async def waits(door: Door, **fields: Any) -> float:
    """Seconds until an empty receive is answered; it has 30 of them."""
    begun = asyncio.get_running_loop().time()
    frames = await door.receive(timeout_s=30, **fields)
    assert frames[0].status.code == pb.MESSAGE_NOT_FOUND
    return asyncio.get_running_loop().time() - begun


def test_an_older_client_waits_as_long_as_its_settings_say(tmp_path) -> None:
    """Java 5.0.3 says its await time over Telemetry only."""

    async def story(door: Door) -> None:
        async with settled(door, AWAIT) as answer:
            assert answer.settings.subscription.long_polling_timeout == AWAIT
            assert 0.25 < await waits(door, long_polling_timeout=None) < 10

    with_door(tmp_path, story)


def test_a_request_that_says_how_long_is_believed_before_the_settings(tmp_path) -> None:
    async def story(door: Door) -> None:
        async with settled(door, LONG):
            assert await waits(door, long_polling_timeout=Duration()) < 10
            assert 0.25 < await waits(door, long_polling_timeout=AWAIT) < 10

    with_door(tmp_path, story)


def test_settings_do_not_wait_beyond_the_deadline_of_the_call(tmp_path) -> None:
    async def story(door: Door) -> None:
        async with settled(door, LONG):
            frames = await door.receive(timeout_s=1.0, long_polling_timeout=None)
            assert frames[0].status.code == pb.MESSAGE_NOT_FOUND

    with_door(tmp_path, story)


@pytest.mark.parametrize("bad", [Duration(seconds=-1), Duration(nanos=1 << 30)])
def test_settings_with_a_nonsensical_await_time_are_refused(tmp_path, bad) -> None:
    async def story(door: Door) -> None:
        async with settled(door, bad) as answer:
            assert answer.status.code == pb.ILLEGAL_POLLING_TIME
            assert "long_polling_timeout" in answer.status.message

    with_door(tmp_path, story)


async def parked(door: Door, count: int) -> None:
    async with asyncio.timeout(10):
        while (await door.engine.submit(DescribeBroker())).parked_polls != count:
            pass


def test_polls_of_a_client_that_goes_are_answered_at_once(tmp_path) -> None:
    """A push consumer closes when its open polls are answered; those of others go on."""

    async def story(door: Door) -> None:
        polls = [
            asyncio.ensure_future(door.receive(timeout_s=30, long_polling_timeout=LONG, group=g))
            for g in ("g", "h", "g")
        ]
        other = asyncio.ensure_future(
            door.receive(timeout_s=30, headers=OTHER, long_polling_timeout=LONG)
        )
        await parked(door, 4)
        assert (await door.call("NotifyClientTermination", BYE)).status.code == pb.OK
        async with asyncio.timeout(10):
            for poll in polls:
                assert (await poll)[0].status.code == pb.MESSAGE_NOT_FOUND
        await parked(door, 1)
        await door.call("SendMessage", sending(message()))
        async with asyncio.timeout(10):
            assert (await other)[1].message.body == b"body"

    with_door(tmp_path, story)


def test_a_poll_after_its_clients_good_bye_does_not_wait(tmp_path) -> None:
    """A client may ask once more while it closes; one that comes back waits again."""

    async def story(door: Door) -> None:
        await door.call("NotifyClientTermination", BYE)
        assert await waits(door, long_polling_timeout=LONG) < 10
        await door.call(
            "Heartbeat",
            pb.HeartbeatRequest(client_type=pb.SIMPLE_CONSUMER, group=pb.Resource(name="g")),
        )
        again = asyncio.ensure_future(door.receive(timeout_s=30, long_polling_timeout=LONG))
        await parked(door, 1)
        await door.call("SendMessage", sending(message()))
        async with asyncio.timeout(10):
            assert (await again)[1].message.body == b"body"

    with_door(tmp_path, story)


def test_without_room_for_a_lease_a_receive_says_too_many_requests(tmp_path) -> None:
    """At once without an await time, at its end with one; and whoever acknowledges makes room."""

    async def story(door: Door) -> None:
        door.engine.broker.shard.ready.leases_max = 2
        await door.call("SendMessage", sending(*(message(message_id=f"id-{i}") for i in range(3))))
        taken = [each.message for each in await door.receive() if each.HasField("message")]
        assert len(taken) == 2
        for await_for in (Duration(), AWAIT):
            frames = await door.receive(long_polling_timeout=await_for)
            assert [each.status.code for each in frames] == [pb.TOO_MANY_REQUESTS]
            assert "2 messages are leased" in frames[0].status.message
        entry = pb.AckMessageEntry(
            message_id="id-0", receipt_handle=taken[0].system_properties.receipt_handle
        )
        names = {"group": pb.Resource(name="g"), "topic": pb.Resource(name="mixed")}
        await door.call("AckMessage", pb.AckMessageRequest(**names, entries=[entry]))
        rest = [each.message for each in await door.receive() if each.HasField("message")]
        assert len(rest) == 1

    with_door(tmp_path, story)


def test_a_poll_that_waits_keeps_nothing_of_a_large_request(tmp_path) -> None:
    """The bytes of one would count as under way for 20 s, and beyond 64 MiB of them nothing is read from anybody."""
    unknown = b"\x9a\x06" + b"\x80\x80\x20"  # field 99, 512 KiB of bytes
    intake = Intake()

    async def story(door: Door) -> None:
        polling = pb.ReceiveMessageRequest(
            group=pb.Resource(name="g"),
            message_queue=pb.MessageQueue(topic=pb.Resource(name="mixed"), id=-1),
            invisible_duration=Duration(seconds=30),
            long_polling_timeout=LONG,
        )
        method = door.channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        raw = polling.SerializeToString() + unknown + bytes(MIB // 2)
        waiting: Any = method(raw, metadata=HEADERS, timeout=30)
        await parked(door, 1)
        assert intake.under_way == 0
        intake.check_invariants()
        await door.call("SendMessage", sending(message()))
        async with asyncio.timeout(10):
            found = [frame async for frame in waiting]
        assert found[1].message.topic == pb.Resource(name="mixed")
        assert found[1].message.body == b"body"
        assert intake.under_way == 0
        intake.check_invariants()

    with_door(tmp_path, story, intake=intake)


def test_what_a_poll_keeps_is_bounded(tmp_path) -> None:
    async def story(door: Door) -> None:
        for fields, code in (
            ({"attempt_id": "a" * ATTEMPT_ID_MAX}, pb.MESSAGE_NOT_FOUND),
            ({"attempt_id": "a" * (ATTEMPT_ID_MAX + 1)}, pb.BAD_REQUEST),
            ({"filter_expression": of_tag(FILTER_EXPRESSION_MAX)}, pb.MESSAGE_NOT_FOUND),
            (
                {"filter_expression": of_tag(FILTER_EXPRESSION_MAX + 1)},
                pb.ILLEGAL_FILTER_EXPRESSION,
            ),
        ):
            (found, *_) = await door.receive(**fields)
            assert found.status.code == code, (fields.keys(), found)

    def of_tag(length: int) -> pb.FilterExpression:
        return pb.FilterExpression(type=pb.TAG, expression="t" * length)

    with_door(tmp_path, story)
