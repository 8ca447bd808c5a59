"""Sends that come in one chunk of a connection are one command a topic, and answered as if each had come alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.asked import note_asked
from tests.support.grpc_peer import Peer, head, run

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES
from horolog.protocol.rocketmq.recall_handle import decode_recall_handle
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.loop import Engine
from horolog.server.ticket import Ticket

SEND = head("SendMessage")
LATER_S = 4_000_000_000  # UTC seconds: in 2096, beyond what a message may wait
SOON_S = 3_600


class Names:
    """New message ids."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> str:
        self._last += 1
        return f"01AB{self._last:028X}"


def message(name: str, topic: str = "mixed", due_s: int = 0, body: bytes = b"x") -> pb.Message:
    found = pb.Message(
        topic=pb.Resource(name=topic),
        system_properties=pb.SystemProperties(message_id=name),
        body=body,
    )
    if due_s:
        found.system_properties.delivery_timestamp.CopyFrom(Timestamp(seconds=due_s))
        found.system_properties.message_type = pb.DELAY
    return found


def batch(*messages: pb.Message) -> bytes:
    return pb.SendMessageRequest(messages=messages).SerializeToString()


def requests_of(now_s: int) -> list[bytes]:
    new = Names()
    soon = now_s + SOON_S
    twice = message(new(), "delay", soon)
    return [
        batch(*[message(new(), "delay", soon + n) for n in range(32)]),
        batch(message(new(), "delay", soon)),
        batch(*[message(new()) for _ in range(3)]),
        batch(twice, message(new(), "delay", soon)),
        batch(twice),  # again
        batch(message(new(), "delay", soon), message(new(), "delay", LATER_S)),
        batch(message(new(), "delay", soon), message(new(), "delay")),  # it takes no other ones
        batch(message(new()), message(new(), body=b"")),
        batch(message(new(), "nowhere"), message(new(), "nowhere")),
        batch(message(new(), "bad topic")),
        batch(message(new()), message(new(), "delay", soon)),  # two topics
        batch(),
        batch(*[message(new(), due_s=soon if n % 2 else 0) for n in range(20)]),
    ]


def answers_in_order(found: list[tuple[bytes, bytes, bytes]]) -> list[pb.SendMessageResponse]:
    return [pb.SendMessageResponse.FromString(raw[PREFIX_BYTES:]) for _, _, raw in found]


def answers_of(found: list[tuple[bytes, bytes, bytes]]) -> list[Any]:
    """Answers, with recall handles read, but for where messages stand; of refusals without the moment."""
    answers = []
    for status, why, raw in found:
        answer = pb.SendMessageResponse.FromString(raw[PREFIX_BYTES:])
        handles = []
        for entry in answer.entries:
            entry.offset = 0
            entry.status.message = re.sub(r"due in \d+ ms", "due", entry.status.message)
            if entry.recall_handle:
                handle = decode_recall_handle(entry.recall_handle)
                handles.append(handle._replace(origin=0))
                entry.recall_handle = ""
        answers.append((status, why, answer, handles))
    return answers


def test_each_is_answered_as_if_it_had_come_alone(tmp_path: Path) -> None:
    requests = requests_of(int(time.time()))

    async def together(_: Engine, door: Door, front: GrpcFront) -> Any:
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(SEND, each) for each in requests]))
        return await peer.answers(len(requests))

    async def alone(_: Engine, door: Door, front: GrpcFront) -> Any:
        peer = Peer(door, front)
        for count, each in enumerate(requests, 1):
            peer.say(peer.call(SEND, each))
            found = await peer.answers(count)
        return found

    found = answers_of(run(tmp_path / "together", together))
    assert found == answers_of(run(tmp_path / "alone", alone))
    codes = [answer.status.code for _, _, answer, _ in found]
    assert codes.count(pb.OK) == 6
    assert codes.count(pb.MULTIPLE_RESULTS) >= 2
    assert {pb.TOPIC_NOT_FOUND, pb.ILLEGAL_TOPIC} <= {
        entry.status.code for _, _, answer, _ in found for entry in answer.entries
    } | set(codes)
    assert len(found[0][3]) == 32


def test_sends_to_a_topic_are_one_command(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        asked = note_asked(engine)
        new, soon = Names(), engine.clock.wall_ms() // 1_000 + SOON_S
        peer = Peer(door, front)
        calls = [batch(*[message(new(), "delay", soon) for _ in range(n)]) for n in (1, 32, 2)]
        calls.insert(1, batch(message(new())))
        peer.say(b"".join([peer.call(SEND, each) for each in calls]))
        found = answers_of(await peer.answers(len(calls)))
        assert [len(answer.entries) for _, _, answer, _ in found] == [1, 1, 32, 2]
        assert [(command.topic, len(command.columns().sizes)) for command in asked] == [
            ("delay", 35),
            ("mixed", 1),
        ]

    run(tmp_path, story)


def test_sends_of_several_connections_are_one_command(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        asked = note_asked(engine)
        new, soon = Names(), engine.clock.wall_ms() // 1_000 + SOON_S
        peers = [Peer(door, front) for _ in range(3)]
        names = [[new() for _ in range(count)] for count in (1, 3, 2)]
        for peer, own in zip(peers, names, strict=True):
            peer.say(peer.call(SEND, batch(*[message(name, "delay", soon) for name in own])))
        for peer, own in zip(peers, names, strict=True):
            ((_, _, answer, handles),) = answers_of(await peer.answers(1))
            assert [entry.message_id for entry in answer.entries] == own
            assert [handle.message_id for handle in handles] == own
        assert [len(command.columns().sizes) for command in asked] == [6]

    run(tmp_path, story)


def test_sends_of_a_connection_stay_in_order_whatever_way_they_are_read(tmp_path: Path) -> None:
    """In one chunk or in several; what other connections send is one command all the same."""

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        asked = note_asked(engine)
        new = Names()
        peers = [Peer(door, front) for _ in range(3)]

        def call(peer: Peer, key: str = "") -> bytes:
            sent = message(new())
            if key:
                sent.system_properties.keys.append(key)
            return peer.call(SEND, batch(sent))

        long = "k" * 200  # for which protobuf reads the request
        for chunks in (1, 4):
            asked.clear()
            calls = [call(peers[0], key) for key in ("", long, long, "")]
            for first in range(0, 4, 4 // chunks):
                peers[0].say(b"".join(calls[first : first + 4 // chunks]))
            for peer in peers[1:]:
                peer.say(call(peer))
            answers = answers_in_order(await peers[0].answers(4 if chunks == 1 else 8))
            offsets = [answer.entries[0].offset for answer in answers[-4:]]
            assert offsets == sorted(offsets)
            for peer in peers[1:]:
                await peer.answers(1 if chunks == 1 else 2)
            assert sorted(len(command.columns().sizes) for command in asked) == [1, 1, 1, 1, 2]

    run(tmp_path, story)


def test_a_refusal_of_the_command_is_the_answer_to_each(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        full = HorologError(ErrorCode.TOO_MANY_REQUESTS, "broker: full", field="broker")
        engine.inputs.put = lambda _: full  # type: ignore[method-assign]
        new = Names()
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(SEND, batch(message(new()), message(new()))) for _ in "ab"]))
        for _, _, answer, _ in answers_of(await peer.answers(2)):
            assert answer.status.code == pb.TOO_MANY_REQUESTS
            assert [entry.status.code for entry in answer.entries] == [pb.TOO_MANY_REQUESTS] * 2

    run(tmp_path, story)


def test_a_mistake_of_ours_is_the_answer_to_each(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        def fails(command: SendMessages, then: Callable[[object], None]) -> Ticket:
            raise RuntimeError("a mistake")

        engine.ask, ask = fails, engine.ask  # type: ignore[method-assign, assignment]
        new = Names()
        peer = Peer(door, front)
        peer.say(b"".join([peer.call(SEND, batch(message(new()), message(new()))) for _ in "ab"]))
        for _, _, answer, _ in answers_of(await peer.answers(2)):
            assert answer.status.code == pb.INTERNAL_SERVER_ERROR
        engine.ask = ask  # type: ignore[method-assign]
        peer.say(peer.call(SEND, batch(message(new()))))
        assert answers_of(await peer.answers(3))[2][2].status.code == pb.OK

    run(tmp_path, story)
