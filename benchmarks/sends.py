"""Measure what a send costs without sockets: `python -m benchmarks.sends --messages 200000`.

Frames as 4.x clients write them, in chunks as they come from a socket under load, go through codec and core (`Core` of
`benchmarks.recall`: real files, no syncs) and back to answers.  µs of CPU time of the one thread, for each message,
with bodies of 200 bytes due over three hours:

frames    bytes to `Frame`
codec     frames to a command: properties, delays, records
core      `Broker.step`: decided, appended, filed, and the writes
reply     answers as bytes
total     and messages a second of one core

single    one message a frame, DELAY level 5 and four properties; 64 frames a chunk
batch     32 messages a frame, each with its TIMER_DELIVER_MS; 4 frames a chunk
encode    the same messages by `message.encode`, as the gRPC door makes them, in commands of 32
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

from benchmarks.load import BODY, TOPIC
from benchmarks.recall import NOW_MS, Core, message
from horolog.limits import HOUR_MS
from horolog.protocol.commands import CreateTopic, SendMessages, TopicType
from horolog.protocol.remoting import frame_writer
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.send_reader import SendReader
from horolog.protocol.remoting.sent import ready_answers
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels

PEER = (b"\x7f\0\0\1", 40_000)
SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", parse_levels(DEFAULT_LEVELS))
_CHUNKS_A_TURN = 4  # what comes while the disk syncs
PARTS = ("frames", "codec", "core", "reply")


def _fields(properties: str, queue: int) -> dict[str, str]:
    return {
        "a": "producers",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(NOW_MS),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def _properties(number: int, delay: str) -> str:
    name = f"7F00000100002A9F{number:016X}"
    return f"KEYS\x01k{number}\x02UNIQ_KEY\x01{name}\x02WAIT\x01true\x02{delay}\x02TAGS\x01TagA\x02"


def singles(n: int, chunk: int = 64) -> Iterator[bytes]:
    """Chunks of frames with one message each."""
    for first in range(0, n, chunk):
        yield b"".join(
            frame_writer.encode(
                Frame(
                    Code.SEND_MESSAGE_V2,
                    i,
                    0,
                    _fields(_properties(i, "DELAY\x015"), i % 4),
                    BODY,
                    language="JAVA",
                )
            )
            for i in range(first, min(n, first + chunk))
        )


def _item(number: int) -> bytes:
    due = NOW_MS + HOUR_MS + number % 7_200_000
    stored = _properties(number, f"TIMER_DELIVER_MS\x01{due}").encode()
    size = 22 + len(BODY) + len(stored)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(BODY))
    return head + BODY + struct.pack(">H", len(stored)) + stored


def batches(n: int, chunk: int = 4) -> Iterator[bytes]:
    """Chunks of frames with 32 messages each."""
    for first in range(0, n, 32 * chunk):
        yield b"".join(
            frame_writer.encode(
                Frame(
                    Code.SEND_BATCH_MESSAGE,
                    i,
                    0,
                    _fields("", i % 4) | {"m": "true"},
                    b"".join(map(_item, range(i, i + 32))),
                    language="JAVA",
                )
            )
            for i in range(first, first + 32 * chunk, 32)
        )


def _core() -> Core:
    core = Core(dedup_ms=120_000)
    core.ask(CreateTopic(TOPIC, TopicType.MIXED, 4))
    return core


def remoting(chunks: Iterator[bytes], n: int) -> dict[str, float]:
    """µs a message of each part."""
    core, ids, spent = _core(), count(), dict.fromkeys(PARTS, 0.0)
    reader, shapes = SendReader(), Shapes()

    def timed(part: str, work: Callable[[], Any]) -> Any:
        began = time.thread_time()
        done = work()
        spent[part] += time.thread_time() - began
        return done

    def reply(gathered: list[Any], results: list[Any]) -> int:
        written = 0
        for each, sent in zip(gathered, results, strict=True):
            ready = ready_answers(each, sent, SITE)
            if ready is not None:
                written += len(b"".join(ready))
                continue
            for asked, answer in each.answers(sent, SITE):
                assert isinstance(answer, Answer), answer
                written += len(
                    frame_writer.encode_answer(
                        asked, answer.status, answer.fields, answer.remark, 0
                    )
                )
        return written

    while turn := list(islice(chunks, _CHUNKS_A_TURN)):
        gathered = []
        for chunk in turn:
            frames = timed("frames", lambda chunk=chunk: reader.receive_alike(chunk))
            found, refused = timed(
                "codec",
                lambda frames=frames: gather(
                    frames, PEER, SITE, lambda n: [b"%032X" % next(ids) for _ in range(n)], shapes
                ),
            )
            assert not refused
            gathered += found
        results = timed("core", lambda gathered=gathered: core.turn([g.command for g in gathered]))
        timed("reply", lambda gathered=gathered, results=results: reply(gathered, results))
    return _shown({part: seconds / n * 1e6 for part, seconds in spent.items()})


def encoded(n: int) -> dict[str, float]:
    """The same by `message.encode`."""
    core, spent = _core(), dict.fromkeys(("codec", "core"), 0.0)
    for first in range(0, n, 512):
        began = time.thread_time()
        commands = [
            SendMessages(
                TOPIC, [message(i, NOW_MS + HOUR_MS + i % 7_200_000) for i in range(at, at + 32)]
            )
            for at in range(first, first + 512, 32)
        ]
        between = time.thread_time()
        core.turn(list(commands))
        spent["codec"] += between - began
        spent["core"] += time.thread_time() - between
    return _shown({part: seconds / n * 1e6 for part, seconds in spent.items()})


def _shown(parts: dict[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    shown = {part: round(value, 2) for part, value in parts.items()}
    return {**shown, "total": round(total, 2), "per_second": round(1e6 / total)}


def main() -> None:
    """Print one line of JSON for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sends")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--only", choices=["single", "batch", "encode"])
    options = parser.parse_args()
    n = options.messages // 512 * 512
    rows: dict[str, Callable[[], dict[str, float]]] = {
        "single": lambda: remoting(singles(n), n),
        "batch": lambda: remoting(batches(n), n),
        "encode": lambda: encoded(n),
    }
    for name, row in rows.items():
        if options.only in (None, name):
            print(json.dumps({"row": name, **row()}), flush=True)


if __name__ == "__main__":
    main()
