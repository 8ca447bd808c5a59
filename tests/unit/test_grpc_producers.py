"""Many Telemetry streams and many topics of 5.x clients: what is kept of them, and what is done at their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.grpc_peer import Peer, head, run

from horolog.limits import TELEMETRY_STREAMS_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.frames import END_HEADERS, Type
from horolog.protocol.http2.grpc_wire import RESOURCE_EXHAUSTED, framed
from horolog.protocol.transaction_commands import CheckDue
from horolog.server import grpc_clients, grpc_front, grpc_transactions
from horolog.server.door import Door
from horolog.server.grpc_clients import Streams
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_transactions import GrpcProducers
from horolog.server.loop import Engine


class Stream:
    """A producer that may always be asked."""

    origin: Any = None
    language = version = ""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def may_be_asked(self, topic: str) -> bool:
        return True

    def send_command(self, command: pb.TelemetryCommand) -> bool:
        return True


def named(topics: Iterable[str]) -> list[pb.Resource]:
    return [pb.Resource(name=topic) for topic in topics]


def due(topic: str) -> CheckDue:
    return CheckDue(0, topic, topic)


def test_the_topics_of_producers_that_have_gone_are_removed_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_transactions, "_REMOVED_AT_ONCE", 10)
    producers = GrpcProducers()
    topics = [f"topic-{number}" for number in range(20)]

    async def story() -> None:
        gone, stays, back = Stream("gone"), Stream("stays"), Stream("back")
        for stream in (gone, stays, back):
            producers.add(stream, named(topics))
        producers.remove(stays)
        producers.add(stays, named(topics[1:]))
        for stream in (gone, back):
            producers.remove(stream)
        producers.add(back, named(topics[:1]))
        producers.remove(back)
        assert not producers.has(due(topics[0])), "at once"
        assert producers.has(due(topics[1]))
        turns = 0
        while producers._gone:
            producers.check_invariants()
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 6
        producers.check_invariants()
        assert list(producers._of_topic) == topics[1:]
        assert producers._count == len(topics) - 1

    asyncio.run(story())


def test_the_topics_of_all_producers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_transactions, "PRODUCERS_TOPICS_MAX", 3)
    producers = GrpcProducers()

    async def story() -> None:
        one, two = Stream("one"), Stream("two")
        producers.add(one, named("ab"))
        producers.add(two, named("ab"))
        producers.check_invariants()
        producers.remove(one)
        await asyncio.sleep(0)
        assert producers.has(due("a"))
        assert not producers.has(due("b"))
        producers.add(two, named("b"))
        assert producers.has(due("b"))
        producers.check_invariants()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("limit", "skipped"), [("PRODUCER_TOPICS_MAX", "one"), ("PRODUCERS_TOPICS_MAX", "two")]
)
def test_a_producer_that_is_not_asked_is_named_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str, skipped: str
) -> None:
    monkeypatch.setattr(grpc_transactions, limit, 3)
    producers = GrpcProducers()
    for stream, topics in ((Stream("one"), "abc"), (Stream("two"), "a")):
        producers.add(stream, named(topics))
        producers.add(stream, named(topics))
        if stream.client_id == skipped:
            producers.add(stream, named("d"))
    said = f"producer {skipped!r} is not asked about transactions of topic "
    assert [r.getMessage() for r in caplog.records] == [
        f"{said}{'d' if skipped == 'one' else 'a'}: {limit} is reached"
    ]
    monkeypatch.setattr(grpc_transactions, "_WARNING_S", 0.0)
    producers.record_sender(skipped, pb.Resource(name="d"))
    assert len(caplog.records) == 2


def test_the_topics_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_clients, "CLIENT_TOPICS_MAX", 3)
    streams = Streams()
    one, two = Stream("one"), Stream("two")
    settings = pb.Settings(
        publishing=pb.Publishing(topics=[pb.Resource(name=name) for name in ("a", "b")])
    )
    for stream in (one, one, two):
        streams.store_settings(stream, settings)
    assert [streams._settings[each].topics for each in (one, two)] == [("a", "b"), ()]
    streams.remove(one)
    streams.store_settings(two, settings)
    assert streams._settings[two].topics == ("a", "b")


@pytest.mark.parametrize("of_address", [True, False], ids=["of an address", "of all"])
def test_telemetry_streams_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_address: bool
) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        share = peer.link.share
        assert share is not None
        assert share.bounds.streams == TELEMETRY_STREAMS_MAX
        if of_address:
            share.bounds.streams = 2
        else:
            monkeypatch.setattr(grpc_front, "TELEMETRY_STREAMS_MAX", 2)

        def begin(client: bytes = b"tester") -> int:
            peer.stream += 2
            peer.say(
                frames.frame(Type.HEADERS, END_HEADERS, peer.stream, head("Telemetry", client))
            )
            return peer.stream

        begin()
        nameless = begin(b"")
        refused = begin()
        while b"grpc-status" not in peer.heads.get(refused, {}):
            await peer.change()
        assert int(peer.heads[refused][b"grpc-status"]) == RESOURCE_EXHAUSTED
        assert peer.heads[refused][b"grpc-message"].startswith(b"2 Telemetry streams ")
        peer.say(frames.frame(Type.DATA, 0, nameless, framed(b"")))
        assert share.streams == 1
        begin()
        assert share.streams == 2
        peer.link.connection_lost(None)
        assert share.streams == 0
        assert not front._streams
        assert not front._refused

    run(tmp_path, story)
