"""Calls of 5.x clients from raw sockets, for `benchmarks.wire`: a process of its own that costs little.

Requests are made before the clock starts, as one table of bytes in which only stream and message ids differ; answers
are counted by their frames, and only what must be acknowledged is parsed.  Prints one line of JSON.

    python -m benchmarks.grpc_load send    --port 8081 --topic t --n 100000 --batch 32 --due-in-ms 36000000
    python -m benchmarks.grpc_load receive --port 8081 --topic t --n 100000 --acks 1
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from collections.abc import Iterator

import numpy as np
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from benchmarks.tables import places, put_binary, put_digits, repeat
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.frames import END_HEADERS, END_STREAM, HEADER_BYTES, Setting, Type
from horolog.protocol.http2.grpc_wire import framed

SERVICE = "apache.rocketmq.v2.MessagingService"
BODY_BYTES = 200
ID_DIGITS = 12  # at the end of a message id, and at the start of a body
MADE_MAX = 64 << 20  # bytes of requests that are made at once
ACKING_MAX = 256  # acks under way on a connection, before it receives more
HUGE = frames.WINDOW_MAX - frames.WINDOW_INITIAL


def block(method: str, client: str) -> bytes:
    """The header block of a call, as clients fill it."""
    return hpack.encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/{SERVICE}/{method}".encode()),
            (b":authority", b"127.0.0.1:8081"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"benchmarks"),
            (b"te", b"trailers"),
            (b"x-mq-client-id", client.encode()),
            (b"x-mq-language", b"PYTHON"),
            (b"x-mq-client-version", b"5.0.7"),
            (b"x-mq-protocol", b"v2"),
            (b"x-mq-request-id", client.encode()),
            (b"x-mq-date-time", b"20260101T000000Z"),
        ]
    )


def call(head: bytes, stream: int, request: bytes) -> bytes:
    """The frames of a call with one message."""
    return frames.frame(Type.HEADERS, END_HEADERS, stream, head) + frames.frame(
        Type.DATA, END_STREAM, stream, framed(request)
    )


class Peer:
    """One connection; `ended` counts answers, `answers` has their bytes where they are kept."""

    def __init__(self, port: int, client: str, *, keep: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = client
        self.ended = 0
        self.failed = 0
        self.stream = -1
        self.answers: dict[int, bytearray] | None = {} if keep else None
        self.over: list[int] = []  # streams that have ended, where answers are kept
        self.acking = 0  # acks under way
        self.asks = 0  # receives that wait until there are fewer of them
        self._buffer = b""
        self.socket.sendall(
            frames.PREFACE
            + frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})
            + frames.window_update(0, HUGE)
        )

    def read(self) -> None:
        """Take what has come."""
        chunk = self.socket.recv(1 << 20)
        assert chunk, "the broker hung up"
        buffer, at = self._buffer + chunk, 0
        end = len(buffer)
        while end - at >= HEADER_BYTES:
            stop = at + HEADER_BYTES + (buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2])
            if stop > end:
                break
            kind = buffer[at + 3]
            if kind == Type.DATA:
                self._take_data(buffer, at, stop)
            elif kind == Type.HEADERS and buffer[at + 4] & END_STREAM:
                self.ended += 1
                if self.answers is not None:
                    self.over.append(int.from_bytes(buffer[at + 5 : at + 9], "big"))
            elif kind == Type.SETTINGS and not buffer[at + 4] & frames.ACK:
                self.socket.sendall(frames.SETTINGS_ACK)
            elif kind in (Type.GOAWAY, Type.RST_STREAM):
                raise AssertionError(f"the broker refuses: {buffer[at:stop]!r}")
            at = stop
        self._buffer = buffer[at:]

    def _take_data(self, buffer: bytes, at: int, stop: int) -> None:
        if self.answers is None:
            # SendMessageResponse begins with its status: field 1, its length, code field 1, 20000.
            ok = buffer[at + HEADER_BYTES + 7 : at + HEADER_BYTES + 11] == _CODE_OK
            self.failed += not ok
            return
        stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
        self.answers.setdefault(stream, bytearray()).extend(buffer[at + HEADER_BYTES : stop])


_CODE_OK = b"\x08" + pb.Status(code=pb.OK).SerializeToString()[1:]


def requests(options: argparse.Namespace, peer: Peer, first: int, n: int) -> list[bytes]:
    """The frames of n sends, in which only stream and message ids differ."""
    head = block("SendMessage", peer.client)
    now_ms = time.time_ns() // 1_000_000
    batch = options.batch

    def message(number: int) -> pb.Message:
        system = pb.SystemProperties(
            message_id=f"01AABBCCDDEEFF0001{peer.client[-1]}0{number:0{ID_DIGITS}d}",
            body_encoding=pb.IDENTITY,
            message_type=pb.DELAY if options.due_in_ms else pb.NORMAL,
            born_timestamp=Timestamp(
                seconds=now_ms // 1000, nanos=(now_ms % 1000 or 1) * 1_000_000
            ),
            born_host="benchmarks",
        )
        if options.due_in_ms:
            due = now_ms + options.due_in_ms
            system.delivery_timestamp.CopyFrom(
                Timestamp(seconds=due // 1000, nanos=(due % 1000 or 1) * 1_000_000)
            )
        body = f"{number:0{ID_DIGITS}d}".encode().ljust(BODY_BYTES, b"x")
        return pb.Message(
            topic=pb.Resource(name=options.topic), body=body, system_properties=system
        )

    mark = 123_456_789_000  # digits that stand nowhere else
    request = pb.SendMessageRequest(messages=[message(mark + i) for i in range(batch)])
    template = call(head, 0x7F01_0203 & 0x7FFF_FFFF, request.SerializeToString())
    rows = repeat(template, n)
    for at in places(template, (0x7F01_0203).to_bytes(4, "big"), 2):
        put_binary(rows, at, ">u4", peer.stream + 2 + 2 * np.arange(n))
    peer.stream += 2 * n
    for i in range(batch):
        for at in places(template, f"{mark + i:0{ID_DIGITS}d}".encode(), 2):
            put_digits(rows, at, ID_DIGITS, first + np.arange(n) * batch + i)
    size = len(template)
    raw = rows.tobytes()
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def _ready(peers: list[Peer]) -> Iterator[list[Peer]]:
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        while True:
            yield [key.data for key, _ in selector.select()]


def send(options: argparse.Namespace) -> dict[str, float]:
    """As many requests at a time as the window has places, until all are answered."""
    peers = [Peer(options.port, f"load-{i}") for i in range(options.connections)]
    each = options.n // options.batch // len(peers)
    number, took = 0, 0.0
    waiting: dict[Peer, list[bytes]] = {peer: [] for peer in peers}
    made_max = max(1, MADE_MAX // (options.batch * 400) // len(peers))
    left = each
    while left:
        count = min(left, made_max)
        left -= count
        for peer in peers:
            waiting[peer] = requests(options, peer, number, count)
            number += count * options.batch
        began = time.perf_counter()
        _drive(peers, waiting, options.window)
        took += time.perf_counter() - began
    failed = sum(peer.failed for peer in peers)
    assert not failed, f"{failed} sends were refused"
    n = each * len(peers) * options.batch
    return {"n": n, "seconds": round(took, 3), "per_second": int(n / took)}


def _drive(peers: list[Peer], waiting: dict[Peer, list[bytes]], window: int) -> None:
    done = {peer: peer.ended for peer in peers}
    goal = {peer: peer.ended + len(waiting[peer]) for peer in peers}
    sent = dict.fromkeys(peers, 0)

    def fill(peer: Peer) -> None:
        stop = min(peer.ended - done[peer] + window, len(waiting[peer]))
        if stop > sent[peer]:
            peer.socket.sendall(b"".join(waiting[peer][sent[peer] : stop]))
            sent[peer] = stop

    for peer in peers:
        fill(peer)
    for ready in _ready(peers):
        for peer in ready:
            peer.read()
            fill(peer)
        if all(peer.ended == goal[peer] for peer in peers):
            return


def receive(options: argparse.Namespace) -> dict[str, float]:
    """Receive all that is there, each message once, and acknowledge it, alone or with its answer's others."""
    peers = [Peer(options.port, f"load-{i}", keep=True) for i in range(options.connections)]
    ask = pb.ReceiveMessageRequest(
        group=pb.Resource(name=options.group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name=options.topic), id=-1),
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
        batch_size=32,
        invisible_duration=Duration(seconds=60),
        long_polling_timeout=Duration(seconds=1),
    ).SerializeToString()
    got: set[bytes] = set()
    acked = 0
    began = time.perf_counter()
    for peer in peers:
        _ask(peer, ask, max(1, options.window // 8))
    for ready in _ready(peers):
        for peer in ready:
            peer.read()
            over, peer.over = peer.over, []
            assert peer.answers is not None
            for stream in over:
                acked += _answered(options, peer, peer.answers.pop(stream), got)
            if peer.acking <= ACKING_MAX:
                _ask(peer, ask, peer.asks)
                peer.asks = 0
        if acked >= options.n:
            break
    took = time.perf_counter() - began
    assert len(got) == options.n, (len(got), options.n)
    return {"n": options.n, "seconds": round(took, 3), "per_second": int(options.n / took)}


def _ask(peer: Peer, ask: bytes, times: int) -> None:
    head = block("ReceiveMessage", peer.client)
    for _ in range(times):
        peer.stream += 2
        peer.socket.sendall(call(head, peer.stream, ask))


def _answered(options: argparse.Namespace, peer: Peer, answer: bytearray, got: set[bytes]) -> int:
    """Acknowledge the messages of a receive; gives how many an answer to acks had."""
    if not _is_receive(answer):
        peer.acking -= 1
        acks = pb.AckMessageResponse.FromString(bytes(answer[5:]))
        assert acks.status.code == pb.OK, acks
        return len(acks.entries)
    entries, at = [], 0
    while at < len(answer):
        size = int.from_bytes(answer[at + 1 : at + 5], "big")
        response = pb.ReceiveMessageResponse.FromString(bytes(answer[at + 5 : at + 5 + size]))
        at += 5 + size
        if response.HasField("message"):
            message, system = response.message, response.message.system_properties
            assert message.body[:ID_DIGITS] not in got, "a message came twice"
            got.add(message.body[:ID_DIGITS])
            entries.append(
                pb.AckMessageEntry(
                    message_id=system.message_id, receipt_handle=system.receipt_handle
                )
            )
    head = block("AckMessage", peer.client)
    pieces = []
    each = options.acks or 32
    for first in range(0, len(entries), each):
        request = pb.AckMessageRequest(
            group=pb.Resource(name=options.group),
            topic=pb.Resource(name=options.topic),
            entries=entries[first : first + each],
        )
        peer.stream += 2
        pieces.append(call(head, peer.stream, request.SerializeToString()))
    if pieces:
        peer.socket.sendall(b"".join(pieces))
    peer.acking += len(pieces)
    peer.asks += 1
    return 0


def _is_receive(answer: bytearray) -> bool:
    """Only a receive is answered with more than one message."""
    return len(answer) > 5 + int.from_bytes(answer[1:5], "big")


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", choices=["send", "receive"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="load")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1, help="messages of a send")
    parser.add_argument("--acks", type=int, default=0, help="of a request; 0: all of a receive")
    parser.add_argument("--due-in-ms", type=int, default=0, help="0: not scheduled")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=128, help="requests under way a connection")
    options = parser.parse_args()
    print(json.dumps(send(options) if options.run == "send" else receive(options)), flush=True)


if __name__ == "__main__":
    main()
