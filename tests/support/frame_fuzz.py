"""Random and mutated HTTP/2 frames, by seed.

A story is what a client might send: greeting, settings, calls with header blocks that use the
table, bodies in pieces, windows, pings, resets. Then frames are dropped, doubled, swapped, cut, and
given other types, flags, streams, lengths and bytes; frames of random bytes are inserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    Setting,
    Type,
    frame,
)
from horolog.protocol.http2.grpc_wire import framed

_ADDED = b"\x40\x08x-number\x02"  # a literal that goes into the table, with two bytes of value
TOY_PATHS = (b"/toy.Toy/Echo", b"/toy.Toy/Talk", b"/toy.Toy/None")


def _block(random: Random, paths: Sequence[bytes]) -> bytes:
    block = hpack.encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", random.choice(paths)),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"x-mq-client-id", b"fuzz"),
        ]
    )
    if random.random() < 0.3:
        block += _ADDED + random.randbytes(2).hex().encode()[:2]
    if random.random() < 0.1:
        block += bytes([0x80 | random.randrange(1, 66)])  # may be in no table
    return block


def _call(random: Random, stream: int, paths: Sequence[bytes]) -> Iterator[bytes]:
    block = _block(random, paths)
    if random.random() < 0.2:
        cut = random.randrange(len(block))
        yield frame(Type.HEADERS, 0, stream, block[:cut])
        yield frame(Type.CONTINUATION, END_HEADERS, stream, block[cut:])
    elif random.random() < 0.1:
        padded = b"\x03" + bytes(4) + b"\x10" + block + bytes(3)
        yield frame(Type.HEADERS, END_HEADERS | PADDED | PRIORITY, stream, padded)
    else:
        yield frame(Type.HEADERS, END_HEADERS, stream, block)
    body = framed(random.randbytes(random.choice((0, 3, 60))))
    if random.random() < 0.3:
        cut = random.randrange(len(body))
        yield frame(Type.DATA, 0, stream, body[:cut])
        body = body[cut:]
    if random.random() < 0.1:
        yield frame(Type.RST_STREAM, 0, stream, (8).to_bytes(4, "big"))
    else:
        yield frame(Type.DATA, END_STREAM, stream, body)


def _other(random: Random, stream: int) -> bytes:
    match random.randrange(6):
        case 0:
            setting = random.choice(list(Setting))
            return frames.settings({setting: random.choice((0, 1, 100, 16_384, 65_535, 1 << 31))})
        case 1:
            return frames.window_update(
                random.choice((0, stream)), random.choice((1, 1_000, 1 << 30))
            )
        case 2:
            return frame(Type.PING, random.choice((0, frames.ACK)), 0, random.randbytes(8))
        case 3:
            return frame(Type.PRIORITY, 0, stream, random.randbytes(5))
        case 4:
            return frame(Type.GOAWAY, 0, 0, bytes(8))
        case _:
            return frame(
                random.randrange(12),
                random.randrange(256),
                random.randrange(2 * stream + 2),
                random.randbytes(random.randrange(30)),
            )


def story(random: Random, paths: Sequence[bytes] = TOY_PATHS, calls: int = 12) -> list[bytes]:
    """Return the frames of a client that nearly always keeps to the protocol."""
    found = [PREFACE + frames.settings({})]
    for number in range(calls):
        found += _call(random, 2 * number + 1, paths)
        if random.random() < 0.3:
            found.append(_other(random, 2 * number + 1))
    return found


def _changed(random: Random, raw: bytes) -> bytes:
    """Return one frame with a fault in it."""
    found = bytearray(raw.ljust(9, b"\0"))
    match random.randrange(6):
        case 0:
            found[random.randrange(len(found))] ^= 1 << random.randrange(8)
        case 1:
            found[3] = random.randrange(12)
        case 2:
            found[4] = random.randrange(256)
        case 3:
            found[5:9] = random.choice((0, 1, 2, 7, 0x7FFF_FFFF)).to_bytes(4, "big")
        case 4:
            del found[random.randrange(len(found)) :]
        case _:
            payload = random.randbytes(random.randrange(40))
            found[:3] = len(payload).to_bytes(3, "big")
            found[9:] = payload
    return bytes(found)


def mutated(random: Random, pieces: list[bytes]) -> list[bytes]:
    """Return the story with some faults, mostly after its greeting."""
    found = list(pieces)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if len(found) < 2:
            break
        at = random.randrange(random.random() > 0.05, len(found))
        match random.randrange(5):
            case 0:
                del found[at]
            case 1:
                found.insert(at, found[random.randrange(len(found))])
            case 2:
                other = random.randrange(1, len(found))
                found[at], found[other] = found[other], found[at]
            case _:
                found[at] = _changed(random, found[at])
    return found


def chunks(random: Random, raw: bytes) -> Iterator[bytes]:
    """Return the same bytes in pieces of any size."""
    at = 0
    while at < len(raw):
        size = random.choice((1, 7, 60, 400, 4_000, 1 << 20))
        yield raw[at : at + size]
        at += size
