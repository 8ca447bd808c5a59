"""Acks that come in one chunk of a connection are one command, and answered as if each had come alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration
from tests.support.asked import note_asked
from tests.support.grpc_peer import Peer, head, run

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import Ack
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.loop import Engine
from horolog.server.ticket import Ticket

SENT = 24
SEND, RECEIVE, ACK = map(head, ("SendMessage", "ReceiveMessage", "AckMessage"))
Request = tuple[bytes, bytes]  # header block and message


class Given(NamedTuple):
    """What a group received."""

    message_id: str
    handle: str


def send(topic: str, count: int) -> Request:
    messages = [
        pb.Message(
            topic=pb.Resource(name=topic),
            system_properties=pb.SystemProperties(message_id=f"01AB{number:028X}"),
            body=b"x",
        )
        for number in range(count)
    ]
    return SEND, pb.SendMessageRequest(messages=messages).SerializeToString()


def receive(group: str) -> Request:
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="mixed")),
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
        batch_size=32,
        invisible_duration=Duration(seconds=60),
    )
    return RECEIVE, request.SerializeToString()


def ack(group: str, *given: Given, topic: str = "mixed") -> Request:
    entries = [pb.AckMessageEntry(message_id=name, receipt_handle=at) for name, at in given]
    request = pb.AckMessageRequest(
        group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
    )
    return ACK, request.SerializeToString()


def messages_of(body: bytes) -> list[pb.Message]:
    """The messages of a ReceiveMessage answer."""
    found = []
    while body:
        stop = PREFIX_BYTES + int.from_bytes(body[1:PREFIX_BYTES], "big")
        answer = pb.ReceiveMessageResponse.FromString(body[PREFIX_BYTES:stop])
        body = body[stop:]
        if answer.HasField("message"):
            found.append(answer.message)
    return found


async def prepare(door: Door, front: GrpcFront) -> tuple[list[Given], list[Given]]:
    """Send messages; what two groups receive of them."""
    peer = Peer(door, front)
    peer.say(peer.call(*send("mixed", SENT)))
    await peer.answers(1)
    peer.say(peer.call(*receive("one")) + peer.call(*receive("two")))
    *_, one, two = [body for _, _, body in await peer.answers(3)]
    first, second = (
        [
            Given(message.system_properties.message_id, message.system_properties.receipt_handle)
            for message in messages_of(body)
        ]
        for body in (one, two)
    )
    assert len(first) == len(second) == SENT
    return first, second


def calls_of(one: list[Given], two: list[Given]) -> list[Request]:
    return [
        ack("one", one[0]),
        ack("one", one[1], one[2]),
        ack("two", two[0]),
        ack("one", one[0]),  # again
        ack("one", Given(one[3].message_id, "A" * 60)),  # no handle
        ack("one", two[4]),  # of another group
        ack("one", one[5], Given(one[6].message_id, "B" * 60), one[7]),
        ack("one", Given("", one[8].handle)),
        ack("nobody", one[9]),
        ack("bad group", one[9]),
        ack("one", one[9], topic="nowhere"),
        ack("one", one[9], topic="bad topic"),
        ack("one", one[9], topic="delay"),
        ack("one"),
        (ACK, b"\xff\xff"),
        (head("AckMessage", b""), ack("one", one[10])[1]),
        (head("Heartbeat"), pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER).SerializeToString()),
        ack("two", two[1]),
        ack("one", one[11]),
    ]


def without_handles(answers: Sequence[tuple[bytes, bytes, bytes]]) -> list[Any]:
    found = []
    for status, why, raw in answers:
        answer = pb.AckMessageResponse.FromString(raw[PREFIX_BYTES:])
        for entry in answer.entries:
            entry.receipt_handle = str(len(entry.receipt_handle))
        found.append((status, why, answer))
    return found


def test_each_is_answered_as_if_it_had_come_alone(tmp_path: Path) -> None:
    async def together(_: Engine, door: Door, front: GrpcFront) -> Any:
        calls = calls_of(*await prepare(door, front))
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(*each) for each in calls]))
        return await peer.answers(len(calls))

    async def alone(_: Engine, door: Door, front: GrpcFront) -> Any:
        calls = calls_of(*await prepare(door, front))
        peer = Peer(door, front)
        for count, each in enumerate(calls, 1):
            peer.say(peer.call(*each))
            found = await peer.answers(count)
        return found

    found = run(tmp_path / "together", together)
    assert without_handles(found) == without_handles(run(tmp_path / "alone", alone))
    codes = [answer.status.code for _, _, answer in without_handles(found)]
    assert codes.count(pb.OK) >= 7
    assert {
        pb.MULTIPLE_RESULTS,
        pb.INVALID_RECEIPT_HANDLE,
        pb.TOPIC_NOT_FOUND,
        pb.CLIENT_ID_REQUIRED,
        pb.ILLEGAL_CONSUMER_GROUP,
        pb.ILLEGAL_TOPIC,
    } <= set(codes)


def test_acks_of_a_group_and_topic_are_one_command_and_come_first(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        one, two = await prepare(door, front)
        asked = note_asked(engine)
        peer = Peer(door, front)
        calls = [receive("one")]
        for mine, other in zip(one, two, strict=True):
            calls += [ack("one", mine), ack("two", other)]
        peer.say(b"".join([peer.call(*each) for each in calls]))
        while len(peer.bodies) < len(calls) - 1:  # the receive waits
            await peer.change()
        first, second, third = asked
        assert first == Ack("one", "mixed", [given.handle for given in one])
        assert second == Ack("two", "mixed", [given.handle for given in two])
        assert not isinstance(third, Ack)
        for given, raw in zip(one, [peer.bodies[3 + 4 * n] for n in range(SENT)], strict=True):
            (entry,) = pb.AckMessageResponse.FromString(raw[PREFIX_BYTES:]).entries
            assert (entry.message_id, entry.receipt_handle) == given
            assert entry.status.code == pb.OK

    run(tmp_path, story)


def test_a_refusal_of_the_command_is_the_answer_to_each(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        one, _ = await prepare(door, front)
        full = HorologError(ErrorCode.TOO_MANY_REQUESTS, "broker: full", field="broker")
        engine.inputs.put = lambda _: full  # type: ignore[method-assign]
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(*ack("one", given)) for given in one]))
        for _, _, answer in without_handles(await peer.answers(SENT)):
            assert answer.status.code == pb.TOO_MANY_REQUESTS

    run(tmp_path, story)


def test_a_mistake_of_ours_is_the_answer_to_each_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        one, _ = await prepare(door, front)
        ask = engine.ask

        def broken(command: Any, then: Callable[[object], None]) -> Ticket:
            raise RuntimeError("broken")

        engine.ask = broken  # type: ignore[method-assign]
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(*ack("one", given)) for given in one[:3]]))
        for _, _, answer in without_handles(await peer.answers(3)):
            assert answer.status.code == pb.INTERNAL_SERVER_ERROR
        engine.ask = ask  # type: ignore[method-assign]
        peer.say(peer.call(*ack("one", one[3])))
        *_, (_, _, answer) = without_handles(await peer.answers(4))
        assert answer.status.code == pb.OK

    run(tmp_path, story)
