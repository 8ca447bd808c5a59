"""Clients that vanish, garbage on the wire, ports and stops: nothing leaks and nothing falls over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from http2_frames import call_headers

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    DescribeGroup,
    Receive,
    Received,
    SendMessages,
    TopicType,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import Setting, Type
from horolog.protocol.http2.grpc_wire import framed
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.server.grpc_clients import Clients
from horolog.server.grpc_consume import ConsumerCalls
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

HEADERS = (("x-mq-client-id", "tester"), ("x-mq-language", "JAVA"))
DEADLINE_S = 20


def run(tmp_path: Path, story: Callable[[Engine], Awaitable[None]]) -> None:
    async def begin_and_end() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 24)
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


async def send(engine: Engine, count: int) -> None:
    messages = [encode(topic="t", body=b"x", message_id=f"m{i}") for i in range(count)]
    await engine.submit(SendMessages("t", messages))


def request(poll_s: int = 0) -> pb.ReceiveMessageRequest:
    """As a push consumer asks: its leases are renewed as long as it lives."""
    return pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="t"), id=-1),
        batch_size=32,
        auto_renew=True,
        long_polling_timeout=Duration(seconds=poll_s),
    )


async def attempts(engine: Engine) -> list[int]:
    """Delivery attempts of all that another client is given now."""
    receive = Receive("g", "t", -1, "*", 32, 30_000, False, 0, "other")
    return [m.attempt for m in (await engine.submit(receive)).messages]


class RawClient:
    """A client whose window has room for so many bytes of an answer, and who can go at any moment."""

    def __init__(self, port: int, window: int = 65_535) -> None:
        self._port = port
        self._window = window

    async def __aenter__(self) -> RawClient:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        settings = frames.settings({Setting.INITIAL_WINDOW_SIZE: self._window})
        self._writer.write(frames.PREFACE + settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def receive(self, asked: pb.ReceiveMessageRequest) -> None:
        """Ask, and wait for nothing."""
        head = call_headers(f"/{SERVICE}/ReceiveMessage")
        content = framed(asked.SerializeToString())
        self._writer.write(
            frames.frame(Type.HEADERS, frames.END_HEADERS, 1, head)
            + frames.frame(Type.DATA, frames.END_STREAM, 1, content)
        )

    def cancel(self) -> None:
        """Wait for no answer any more."""
        self._writer.write(frames.reset(1, Code.CANCEL))

    def ping(self) -> None:
        """Ask for a sign that all of this was heard."""
        self._writer.write(frames.frame(Type.PING, 0, 0, bytes(8)))

    async def kinds(self) -> set[int]:
        """Of the frames that have come."""
        heard = await self.reader.read(65_536)
        found = set()
        while heard:
            found.add(heard[3])
            heard = heard[9 + int.from_bytes(heard[:3], "big") :]
        return found

    def open_window(self, size: int) -> None:
        """Take so many bytes more."""
        self._writer.write(frames.window_update(1, size))


async def until(engine: Engine, leased: int = 0, parked: int = 0) -> None:
    """Return when so many messages are leased and so many polls wait."""
    while True:
        polls = (await engine.submit(DescribeBroker())).parked_polls
        try:
            (queue,) = await engine.submit(DescribeGroup("g", "t"))
        except HorologError:
            continue  # nobody has asked yet
        if (queue.leased, polls) == (leased, parked):
            return


def with_port(tmp_path: Path, story: Callable[[Engine, int], Awaitable[None]]) -> None:
    async def begin_and_end(engine: Engine) -> None:
        front = GrpcFront(engine)
        try:
            await story(engine, await front.start())
        finally:
            await front.stop(0)

    run(tmp_path, begin_and_end)


async def until_given_back(engine: Engine, count: int) -> None:
    """Return when the messages are for others again; they are told of within a second of simulated time."""
    while not (got := await attempts(engine)):
        await engine.advance(1_000)
    assert got == [2] * count


@pytest.mark.parametrize("window", [0, 5, 300], ids=["nothing", "a bit", "a part"])
@pytest.mark.parametrize("how", ["cancel", "hang up"])
def test_messages_that_were_not_taken_over_are_for_others_soon(tmp_path, window, how) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, window) as client:
            client.receive(request())
            await until(engine, leased=3)
            assert await attempts(engine) == []
            if how == "cancel":
                client.cancel()
                await until_given_back(engine, 3)
                return
        await until_given_back(engine, 3)

    with_port(tmp_path, story)


def test_an_answer_that_waits_for_its_client_keeps_no_messages_beside_its_bytes(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, 0) as client:
            client.receive(request())
            await until(engine, leased=3)
            await engine.until_quiet()
            gc.collect()
            assert not [each for each in gc.get_objects() if isinstance(each, Received)]
            client.cancel()
            await until_given_back(engine, 3)

    with_port(tmp_path, story)


def test_messages_that_were_taken_over_late_stay_with_the_client(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, 5) as client:
            client.receive(request())
            await until(engine, leased=3)
            client.open_window(100_000)
            while b"grpc-status" not in await client.reader.read(65_536):
                pass
        await engine.advance(1_000)
        assert await attempts(engine) == []

    with_port(tmp_path, story)


def test_a_client_that_goes_while_its_receive_is_carried_out(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 2)
        async with RawClient(port) as client:
            client.receive(request())
            client.cancel()
            client.ping()
            while frames.Type.PING not in await client.kinds():
                pass
        assert await attempts(engine) == [1, 1], "nobody was given a lease meanwhile"

    with_port(tmp_path, story)


class LateCall:
    """A call whose caller waits no longer when its answer comes, and has not said so."""

    header = staticmethod(lambda _name: "late")
    is_open = True
    on_dropped = None

    def __init__(self) -> None:
        self.left_ms = [5_000, 0]
        self.status = -1

    def remaining_ms(self) -> int:
        return self.left_ms.pop(0)

    def begin_poll(self) -> None:
        """It may wait."""

    def fail(self, status: int, why: str) -> None:
        self.status = status


def test_a_receive_that_is_answered_after_its_deadline_is_returned(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await send(engine, 2)
        call: Any = LateCall()
        ConsumerCalls(engine, Clients()).receive(request(), call)
        await until_given_back(engine, 2)
        assert call.status == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]

    run(tmp_path, story)


def test_a_poll_whose_client_goes_takes_no_message(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        async with RawClient(port) as client:
            client.receive(request(15))
            await until(engine, parked=1)
            client.cancel()
            await until(engine)
        await send(engine, 1)
        assert await attempts(engine) == [1]

    with_port(tmp_path, story)


def on_the_wire(
    tmp_path: Path, story: Callable[[Engine, grpc.aio.Channel, int], Awaitable[None]]
) -> None:
    async def begin_and_end(engine: Engine) -> None:
        front = GrpcFront(engine)
        port = await front.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await story(engine, channel, port)
        finally:
            await front.stop(0)

    run(tmp_path, begin_and_end)


GARBAGE = b"\xff" * 40


def test_garbage_on_streams_ends_that_stream_with_a_clear_error(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        telemetry = channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=HEADERS)
        await telemetry.write(GARBAGE)
        assert await telemetry.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "malformed" in await telemetry.details()
        for name in ("ReceiveMessage", "PullMessage"):
            stream = channel.unary_stream(f"/{SERVICE}/{name}")(GARBAGE, metadata=HEADERS)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "malformed" in (caught.value.details() or "")
        answer = await channel.unary_unary(f"/{SERVICE}/Heartbeat")(
            pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString(), metadata=HEADERS
        )
        assert pb.HeartbeatResponse.FromString(answer).status.code == pb.OK

    on_the_wire(tmp_path, story)


def mutated(random: Random, content: bytes) -> bytes:
    """The bytes with a few of them changed, cut off or said twice; sometimes just noise."""
    if random.random() < 0.2:
        return random.randbytes(random.randrange(60))
    changed = bytearray(content)
    for _ in range(random.randrange(4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    start, end = sorted(random.randrange(len(changed) + 1) for _ in range(2))
    return bytes(random.choice([changed, changed[:end], changed + changed[start:end]]))


RESOURCES = {"group": pb.Resource(name="g"), "topic": pb.Resource(name="t")}
SAMPLES = {
    "QueryRoute": pb.QueryRouteRequest(topic=RESOURCES["topic"]),
    "Heartbeat": pb.HeartbeatRequest(group=RESOURCES["group"], client_type=pb.PUSH_CONSUMER),
    "QueryAssignment": pb.QueryAssignmentRequest(**RESOURCES),
    "SendMessage": pb.SendMessageRequest(
        messages=[
            pb.Message(
                topic=RESOURCES["topic"],
                user_properties={"a": "b"},
                body=b"body",
                system_properties=pb.SystemProperties(
                    message_id="m", tag="t", keys=["k"], delivery_timestamp=Timestamp(seconds=7)
                ),
            )
        ]
    ),
    "AckMessage": pb.AckMessageRequest(
        entries=[pb.AckMessageEntry(message_id="m", receipt_handle="h")], **RESOURCES
    ),
    "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest(
        receipt_handle="h", invisible_duration=Duration(seconds=20), **RESOURCES
    ),
    "RecallMessage": pb.RecallMessageRequest(
        topic=RESOURCES["topic"],
        recall_handle=encode_recall_handle(RecallHandle("t", "broker-a", 5, "id", 96)),
    ),
    "NotifyClientTermination": pb.NotifyClientTerminationRequest(group=RESOURCES["group"]),
}


def test_no_request_can_bring_it_down(tmp_path) -> None:
    """Whatever comes: an answer with a status, or a refusal of what is not protobuf; never an internal error."""
    random = Random(3)

    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        for _ in range(60):
            for name, sample in SAMPLES.items():
                content = mutated(random, sample.SerializeToString())
                call = channel.unary_unary(f"/{SERVICE}/{name}")(content, metadata=HEADERS)
                try:
                    answer = getattr(pb, f"{name}Response").FromString(await call)
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (name, content)
                    assert "malformed" in (error.details() or "")
                    continue
                assert answer.status.code, (name, content)
                assert answer.status.code not in (pb.INTERNAL_ERROR, pb.INTERNAL_SERVER_ERROR)
        for _ in range(60):
            content = mutated(random, request().SerializeToString())
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(
                content, metadata=HEADERS, timeout=0.4
            )
            first = b""
            try:
                first = await stream.read()
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, content
                continue
            status = pb.ReceiveMessageResponse.FromString(first).status
            assert status.code not in (0, pb.INTERNAL_SERVER_ERROR), content

    on_the_wire(tmp_path, story)


def test_all_clients_may_come_back_in_the_same_moment(tmp_path) -> None:
    """More calls than a connection may have at a time wait in the client, and all are answered."""

    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        beat = channel.unary_unary(f"/{SERVICE}/Heartbeat")
        asked = pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString()
        answers = await asyncio.gather(*[beat(asked, metadata=HEADERS) for _ in range(4_000)])
        assert {pb.HeartbeatResponse.FromString(a).status.code for a in answers} == {pb.OK}

    on_the_wire(tmp_path, story)


def test_an_unknown_method_is_unimplemented(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/BrewCoffee")(b"", metadata=HEADERS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    on_the_wire(tmp_path, story)


def test_telemetry_of_nobody_is_refused(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        telemetry = channel.stream_stream(f"/{SERVICE}/Telemetry")()
        await telemetry.write(pb.TelemetryCommand().SerializeToString())
        assert await telemetry.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "x-mq-client-id" in await telemetry.details()

    on_the_wire(tmp_path, story)


def test_a_port_in_use_is_named_by_its_flag(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        with pytest.raises(HorologError) as caught:
            await GrpcFront(engine, port=port).start()
        assert caught.value.code is ErrorCode.CONFIG
        assert caught.value.field == "--grpc-port"
        assert str(port) in caught.value.message

    on_the_wire(tmp_path, story)


def test_a_topic_without_scheduled_messages_has_nothing_to_recall(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        await engine.submit(CreateTopic("plain", TopicType.NORMAL, 1))
        codes = {}
        for topic in ("plain", "t"):
            wanted = pb.RecallMessageRequest(
                topic=pb.Resource(name=topic),
                recall_handle=encode_recall_handle(RecallHandle(topic, "broker-a", 5, "id", 96)),
            )
            raw = await channel.unary_unary(f"/{SERVICE}/RecallMessage")(
                wanted.SerializeToString(), metadata=HEADERS
            )
            codes[topic] = pb.RecallMessageResponse.FromString(raw).status.code
        assert codes == {
            "plain": pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "t": pb.MESSAGE_NOT_FOUND,
        }

    on_the_wire(tmp_path, story)


def test_a_broken_invariant_is_answered_in_the_protocols_own_way(tmp_path) -> None:
    class Broken:
        """An engine that cannot even take a command."""

        on_answers: ClassVar[list[Any]] = []
        before_turn: Any = None

        def submit(self, command: object) -> Any:
            raise RuntimeError("no")

    async def story(engine: Engine) -> None:
        front = GrpcFront(Broken())  # type: ignore[arg-type]
        port = await front.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            raw = await channel.unary_unary(f"/{SERVICE}/NotifyClientTermination")(
                b"", metadata=HEADERS
            )
            status = pb.NotifyClientTerminationResponse.FromString(raw).status
            assert status.code == pb.INTERNAL_SERVER_ERROR
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(
                request().SerializeToString(), metadata=HEADERS
            )
            frames = [pb.ReceiveMessageResponse.FromString(frame) async for frame in stream]
            assert [frame.status.code for frame in frames] == [pb.INTERNAL_SERVER_ERROR]
        await front.stop(0)

    run(tmp_path, story)
