"""Clients that ask and never read: what all of them leave is bounded, and who reads is served (P11)."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from pathlib import Path

from tests.support import grpc_peer
from tests.support.grpc_peer import head
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import bodies, pulling, sending

from horolog.limits import MIB, UNREAD_STUCK_MS
from horolog.protocol.commands import SendMessages
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.frames import END_HEADERS, FRAME_BYTES_INITIAL, Setting, Type
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES, framed
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.rocketmq.message import encode
from horolog.server import intake as intake_module
from horolog.server import unread_answers as unread_module
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.intake import Intake
from horolog.server.link import Link
from horolog.server.loop import Engine
from horolog.server.unread_answers import UnreadAnswers

BODY = bytes(300_000)


class Peer(Link):
    """A connection of which so many bytes are not taken."""

    def __init__(self, unread_bytes: int = 0) -> None:
        self.left = unread_bytes
        self.ended = False

    @property
    def unread_bytes(self) -> int:
        return self.left

    def cut_off(self) -> None:
        self.ended = True


def test_who_has_left_something_gets_no_more_while_there_is_too_much() -> None:
    reader, idler, hoarder = Peer(), Peer(10), Peer(90)
    answers = UnreadAnswers({reader, idler, hoarder}, 200, link_bytes_max=100)
    assert answers.admit_answer(hoarder, 110)
    hoarder.left += 110
    assert not answers.admit_answer(hoarder, 1), "too much of its own"
    assert answers.admit_answer(idler, 100), "as far as is known there is room"
    idler.left += 100
    assert not answers.admit_answer(idler, 1)
    assert answers.admit_answer(reader, 95)
    reader.left += 95
    assert not answers.admit_answer(Peer(), 1), "twice as much as may be: nobody gets anything"


def test_what_was_taken_makes_room() -> None:
    reader, other = Peer(), Peer(50)
    answers = UnreadAnswers({reader, other}, 100)
    assert all(answers.admit_answer(reader, 40) for _ in range(100)), "it has taken all of them"
    assert answers.admit_answer(other, 40)


def test_who_takes_nothing_is_cut_off_while_there_is_too_much() -> None:
    slow, stuck = Peer(150), Peer(150)
    answers = UnreadAnswers({slow, stuck}, 200)
    assert answers.cut_off(1_000) == 0, "nobody has asked for more than there is"
    answers.admit_answer(slow, 300)
    assert answers.cut_off(2_000) == 0
    slow.left -= 1
    assert answers.cut_off(2_000 + UNREAD_STUCK_MS - 1) == 0
    slow.left -= 1
    assert answers.cut_off(2_000 + UNREAD_STUCK_MS) == 1
    assert (slow.ended, stuck.ended) == (False, True)
    assert answers.cut_off(2_000 + UNREAD_STUCK_MS) == 0, "it is counted once"
    stuck.left = 0
    assert answers.cut_off(90_000) == 0, "there is room again"
    assert not slow.ended


def unread_bytes(door: RemotingDoor) -> int:
    """Bytes that all connections to the broker's port have left."""
    return door.within(lambda: sum(link.unread_bytes for link in door.front.doors["broker"]._links))


def busy(answer) -> bool:
    return answer.code == Status.SYSTEM_BUSY and "not taken" in answer.remark


def test_pulls_of_many_clients_that_read_nothing(tmp_path: Path) -> None:
    """Each of them may leave some, all together no more than that; one that reads goes on."""
    most = 8 * MIB
    with remoting_door(tmp_path, intake=Intake(unread=most)) as door, door.client() as reader:
        door.create("orders", queues=1)
        for _ in range(4):
            reader.done(Code.SEND_MESSAGE_V2, sending(), BODY)
        idle: list[RemotingClient] = []
        for _ in range(40):
            idle.append(door.client())
            for _ in range(30):
                idle[-1].ask(Code.PULL_MESSAGE, pulling(maxMsgBytes=1))
            answer = reader.call(Code.PULL_MESSAGE, pulling(maxMsgBytes=1))
            assert busy(answer) or bodies(answer) == [BODY]
            assert unread_bytes(door) < 2 * most + 2 * len(BODY)
        for each in idle:
            each.close()
        while unread_bytes(door) > most // 2:
            reader.done(Code.GET_BROKER_CLUSTER_INFO)
        assert bodies(reader.call(Code.PULL_MESSAGE, pulling(maxMsgBytes=1))) == [BODY]


def test_a_client_that_asks_for_lists_and_reads_none(tmp_path: Path) -> None:
    """Also answers that carry no messages are bounded."""
    with remoting_door(tmp_path) as door, door.client() as idle, door.client() as other:
        door.front._intake.unread_answers._link_bytes_max = MIB
        for i in range(150):
            door.create(f"topic-with-a-long-name-{i:04d}", queues=1)
        size = len(other.done(Code.GET_ALL_TOPIC_CONFIG).body)
        idle.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(10 * MIB // size):  # the kernel holds some of it
            idle.ask(Code.GET_ALL_TOPIC_CONFIG)
        for _ in range(50):
            other.done(Code.GET_BROKER_CLUSTER_INFO)
            assert unread_bytes(door) < 2 * MIB


def test_the_log_says_that_somebody_was_cut_off(tmp_path: Path, caplog, monkeypatch) -> None:
    monkeypatch.setattr(unread_module, "UNREAD_STUCK_MS", 0)
    with (
        caplog.at_level(logging.WARNING),
        remoting_door(tmp_path, intake=Intake(unread=MIB)) as door,
        door.client() as reader,
        door.client() as idle,
    ):
        door.create("orders", queues=1)
        reader.done(Code.SEND_MESSAGE_V2, sending(), BODY)
        links = door.front.doors["broker"]._links
        with suppress(ConnectionError):
            while door.within(lambda: len(links)) > 1:
                idle.ask(Code.PULL_MESSAGE, pulling(maxMsgBytes=1))
                reader.done(Code.GET_BROKER_CLUSTER_INFO)
        assert bodies(reader.call(Code.PULL_MESSAGE, pulling(maxMsgBytes=1))) == [BODY]
    assert any("they do not read their answers" in each.message for each in caplog.records)


def test_settings_whose_answers_have_no_room_end_their_stream(tmp_path: Path) -> None:
    """A window of 0 is no reason to stop reading, so they would gather as long as settings come."""
    topics = [pb.Resource(name=f"{number:0100}") for number in range(9_000)]
    publishing = pb.Publishing(topics=topics)
    said = pb.TelemetryCommand(settings=pb.Settings(publishing=publishing)).SerializeToString()
    limits = Limits()

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        peer = grpc_peer.Peer(door, front, window=0)
        peer.call(head("Telemetry"), b"")  # for the number of its stream
        peer.say(frames.frame(Type.HEADERS, END_HEADERS, peer.stream, head("Telemetry")))
        http = peer.link.calls.http
        raw = framed(said)
        for _ in range(limits.queued_bytes // len(said) + 3):
            assert http.is_open(peer.stream)
            assert http.out.queued <= limits.queued_bytes + len(raw)
            for at in range(0, len(raw), FRAME_BYTES_INITIAL):
                piece = raw[at : at + FRAME_BYTES_INITIAL]
                peer.say(frames.frame(Type.DATA, 0, peer.stream, piece))
            await engine.until_quiet()
            if not http.is_open(peer.stream):
                break
        assert not http.is_open(peer.stream)
        assert http.out.queued == 0
        assert not list(front.connected()), "it has no session either"
        while not any(Type.RST_STREAM in written for written in peer.writes):
            await peer.change()

    grpc_peer.run(tmp_path, story)


def test_answers_that_wait_for_room_do_not_stop_the_reading_that_makes_it(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(intake_module, "LINK_REQUESTS_MAX", 2)
    send = pb.SendMessageRequest(messages=[pb.Message(topic=pb.Resource(name="mixed"), body=b"x")])
    send.messages[0].system_properties.message_id = "m"
    count = 4

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        peer = grpc_peer.Peer(door, front, window=0)
        peer.say(
            b"".join(peer.call(head("SendMessage"), send.SerializeToString()) for _ in range(count))
        )
        assert not peer.is_read, "more than the link may have under way"
        while len(peer.heads) < count:
            await peer.change()
        assert not peer.bodies
        assert peer.is_read
        assert (peer.link.under_way, peer.link.requests, door.intake.under_way) == (0, 0, 0)
        assert not peer.link.is_idle
        peer.say(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.WINDOW_INITIAL}))
        assert [status for status, _, _ in await peer.answers(count)] == [b"0"] * count
        assert peer.link.is_idle
        door.intake.check_invariants()

    grpc_peer.run(tmp_path, story)


def receiving(group: str, poll_s: int) -> bytes:
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="mixed"), id=-1),
        batch_size=32,
    )
    request.invisible_duration.seconds = 30
    request.long_polling_timeout.seconds = poll_s
    return request.SerializeToString()


def test_a_large_answer_under_way_fails_no_other_call(tmp_path: Path) -> None:
    """A client that reads it as fast as its network is goes on to beat, to send and to acknowledge."""
    bodies_of_mib = [encode(topic="mixed", body=bytes(MIB), message_id=f"m{i}") for i in range(10)]
    beat = pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString()

    def status_of(raw: bytes) -> int:
        return pb.ReceiveMessageResponse.FromString(raw[PREFIX_BYTES:]).status.code

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        peer = grpc_peer.Peer(door, front, window=frames.WINDOW_INITIAL)
        http = peer.link.calls.http
        polls = [peer.call(head("ReceiveMessage"), receiving(group, 20)) for group in ("g", "g2")]
        begun = peer.call(head("Telemetry"), b"")
        telemetry = begun[: begun.index(head("Telemetry")) + len(head("Telemetry"))]
        room = frames.window_update(0, MIB)  # more than a stream has
        peer.say(b"".join((room, *polls, telemetry)))
        await engine.submit(SendMessages("mixed", bodies_of_mib))
        while b"grpc-status" not in peer.heads.get(3, {}):
            await peer.change()
        assert http.wants_room
        assert http.is_open(1), "the messages are under way"
        assert status_of(peer.bodies[3]) == pb.TOO_MANY_REQUESTS
        settings = pb.TelemetryCommand()
        settings.settings.publishing.topics.add(name="mixed")
        said = frames.frame(Type.DATA, 0, 5, framed(settings.SerializeToString()))
        peer.say(
            said
            + peer.call(head("Heartbeat"), beat)
            + peer.call(head("ReceiveMessage"), receiving("g2", 0))
        )
        while b"grpc-status" not in peer.heads.get(9, {}) or not peer.bodies.get(5):
            await peer.change()
        assert peer.heads[7][b"grpc-status"] == b"0"
        assert status_of(peer.bodies[9]) == pb.TOO_MANY_REQUESTS
        assert pb.TelemetryCommand.FromString(peer.bodies[5][PREFIX_BYTES:]).status.code == pb.OK
        assert http.is_open(1)

    grpc_peer.run(tmp_path, story)


def test_settings_that_are_decided_after_the_end_of_their_stream_are_not_answered(
    tmp_path: Path,
) -> None:
    """The stream has ended, but its last answers wait for room."""
    good, bad = pb.TelemetryCommand(), pb.TelemetryCommand(settings=pb.Settings())
    good.settings.publishing.topics.add(name="mixed")
    first, second = framed(good.SerializeToString()), framed(bad.SerializeToString())
    mistakes: list[object] = []

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        door.loop.set_exception_handler(lambda _, context: mistakes.append(context))
        peer = grpc_peer.Peer(door, front, window=0)
        peer.say(
            frames.frame(Type.HEADERS, END_HEADERS, 1, head("Telemetry"))
            + frames.frame(Type.DATA, 0, 1, first)
        )
        await engine.until_quiet()
        assert peer.link.calls.http.out.queued
        peer.say(frames.frame(Type.DATA, 0, 1, first + second))
        await engine.until_quiet()
        peer.say(frames.window_update(1, 1_000))
        assert [status for status, _, _ in await peer.answers(1)] == [b"3"]

    grpc_peer.run(tmp_path, story)
    assert not mistakes
