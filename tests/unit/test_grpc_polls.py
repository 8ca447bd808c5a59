"""How long a receive waits: as it says, as its client's settings say, and no longer than its client stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_door import HEADERS, Door, message, sending, with_door

from horolog.protocol.commands import DescribeBroker
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_unary import SERVICE

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
