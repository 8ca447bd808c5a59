"""Sends that come in one chunk of a connection are stored together, and answered as if each had come alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.grpc_peer import Peer, head, run

from horolog.errors import ErrorCode, HorologError
from horolog.limits import PROPERTIES_MAX
from horolog.protocol.commands import SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import (
    WINDOW_INITIAL,
    Type,
)
from horolog.protocol.rocketmq.recall_handle import decode_recall_handle
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.loop import Engine
from horolog.server.ticket import Ticket

DUE_S = 1_900_000_000
TOO_LATE = Timestamp(seconds=4_000_000_000)

SEND = head("SendMessage")


def message(number: int, topic: str = "mixed", **system: Any) -> pb.Message:
    fields = {
        "message_id": f"01AB{number:028X}",
        "born_timestamp": Timestamp(seconds=1_700_000_000, nanos=5_000_000),
        "born_host": "here",
        **system,
    }
    return pb.Message(
        topic=pb.Resource(name=topic),
        system_properties=pb.SystemProperties(**fields),
        body=b"body %d" % number,
    )


def later(number: int, topic: str = "mixed", **system: Any) -> pb.Message:
    due = Timestamp(seconds=DUE_S, nanos=number * 1_000_000)
    return message(number, topic, delivery_timestamp=due, message_type=pb.DELAY, **system)


def send(*messages: pb.Message) -> tuple[bytes, bytes]:
    """A call: header block and request."""
    return SEND, pb.SendMessageRequest(messages=messages).SerializeToString()


def large(number: int) -> pb.Message:
    found = message(number)
    found.user_properties["k"] = "v" * PROPERTIES_MAX
    return found


CALLS = [
    send(later(1)),
    send(message(2)),
    send(message(3, message_group="g")),
    send(later(4, "nowhere")),
    send(later(5, "delay")),
    send(message(6, "delay")),  # of another type than the topic's
    send(later(7), message(8)),
    send(later(1)),  # again
    send(large(9)),
    (SEND, b"\xff\xff"),
    (head("SendMessage", b""), send(later(10))[1]),
    (head("Heartbeat"), pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString()),
    (head("Nothing"), b""),
    send(later(11, "bad topic")),
    send(later(12, message_id="ä")),
    send(later(13, message_group="g")),
    send(message(14, "nowhere")),
    send(message(17, delivery_timestamp=TOO_LATE)),
    send(later(15)),
    send(message(16)),
    send(),
]


def without_places(answers: Sequence[tuple[bytes, bytes, bytes]]) -> list[Any]:
    """Answers to sends, without where and when each is stored: what comes at once has no order."""
    found = []
    for status, why, raw in answers:
        answer = pb.SendMessageResponse.FromString(raw[5:])
        for shown in (answer.status, *(entry.status for entry in answer.entries)):
            shown.message = re.sub(r"due in \d+", "due in some", shown.message)
        for entry in answer.entries:
            entry.ClearField("offset")
            if entry.recall_handle:
                handle = decode_recall_handle(entry.recall_handle)
                entry.recall_handle = str(handle._replace(origin=0))
        found.append((status, why, answer))
    return found


def test_each_is_answered_as_if_it_had_come_alone(tmp_path: Path) -> None:
    async def together(_: Engine, door: Door, front: GrpcFront) -> Any:
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(*each) for each in CALLS]))
        return await peer.answers(len(CALLS))

    async def alone(_: Engine, door: Door, front: GrpcFront) -> Any:
        peer = Peer(door, front)
        for count, each in enumerate(CALLS, 1):
            peer.say(peer.call(*each))
            found = await peer.answers(count)
        return found

    found = without_places(run(tmp_path / "together", together))
    assert found == without_places(run(tmp_path / "alone", alone))
    codes = [answer.status.code for _, _, answer in found]
    assert codes.count(pb.OK) >= 8
    assert {pb.TOPIC_NOT_FOUND, pb.CLIENT_ID_REQUIRED} <= set(codes)


def test_sends_of_one_message_are_one_command_for_each_topic(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        asked: list[SendMessages] = []
        ask = engine.ask

        def noted(command: SendMessages, then: Callable[[object], None]) -> Ticket:
            asked.append(command)
            return ask(command, then)

        engine.ask = noted  # type: ignore[assignment]
        peer = Peer(door, front)
        calls = [send(later(i, "delay" if i % 3 else "mixed")) for i in range(30)]
        peer.say(b"".join([peer.call(*each) for each in calls]))
        answers = without_places(await peer.answers(30))
        assert [(each.topic, len(each.columns().sizes)) for each in asked] == [
            ("mixed", 10),
            ("delay", 20),
        ]
        for number, (_, _, answer) in enumerate(answers):
            (entry,) = answer.entries
            assert entry.message_id == later(number).system_properties.message_id
            assert f"due_ms={DUE_S * 1_000 + number}" in entry.recall_handle

    run(tmp_path, story)


def test_a_call_that_is_reset_in_the_same_chunk_is_answered_to_nobody(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        chunk = b"".join([peer.call(*send(later(i))) for i in range(5)])
        chunk += frames.frame(Type.RST_STREAM, 0, 3, Code.CANCEL.to_bytes(4, "big"))
        chunk += b"".join([peer.call(*send(later(i))) for i in range(5, 10)])
        peer.say(chunk)
        await peer.answers(9)
        assert sorted(peer.heads) == [1, *range(5, 21, 2)]
        assert peer.link.is_idle
        assert peer.link.under_way == peer.link.requests == 0
        door.intake.check_invariants()

    run(tmp_path, story)


@pytest.mark.parametrize("windows", ["of_streams", "of_the_connection"])
def test_answers_wait_for_the_windows_of_the_peer(tmp_path: Path, windows: str) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        few = windows == "of_streams"
        peer = Peer(door, front, 100 if few else frames.WINDOW_MAX)
        count = 3 if few else 600  # the connection's window has room for some of these
        peer.say(b"".join([peer.call(*send(later(i))) for i in range(count)]))
        streams = range(1, 2 * count, 2)
        if few:
            while len(peer.bodies) < count:
                await asyncio.sleep(0)
            assert {len(body) for body in peer.bodies.values()} == {100}
            for stream in streams:
                peer.say(frames.window_update(stream, 1_000))
        else:
            while not peer.bodies or sum(map(len, peer.bodies.values())) < WINDOW_INITIAL:
                await asyncio.sleep(0)
            peer.say(frames.window_update(0, 1 << 20))
        answers = without_places(await peer.answers(count))
        assert [answer.entries[0].message_id for _, _, answer in answers] == [
            later(i).system_properties.message_id for i in range(count)
        ]
        assert peer.link.is_idle
        assert peer.link.under_way == peer.link.requests == 0
        peer.link.calls.check_invariants()

    run(tmp_path, story)


def test_a_refusal_of_the_command_is_the_answer_to_each(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        full = HorologError(ErrorCode.TOO_MANY_REQUESTS, "broker: full", field="broker")
        engine.inputs.put = lambda _: full  # type: ignore[method-assign]
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(*send(later(i))) for i in range(4)]))
        for number, (_, _, answer) in enumerate(without_places(await peer.answers(4))):
            assert answer.status.code == pb.TOO_MANY_REQUESTS
            assert answer.entries[0].message_id == later(number).system_properties.message_id

    run(tmp_path, story)
