"""Random and mutated frames at gRPC over HTTP/2, without a socket (P11).

The invariant.  Whatever bytes come, in whatever pieces: `receive` gives events and raises nothing, for the peer's
faults are answered by RST_STREAM or GOAWAY inside it; `check_invariants` holds after every piece; no call is answered
or dropped twice, and once the connection has ended all calls are dropped and nothing more is said; what is kept
(streams, unfinished requests, a header block, the table, what was left) has the bounds of `Limits`, and what is owed is
at most a few bytes for each byte that came, besides the answers.
"""

from __future__ import annotations

from random import Random

import pytest
from frame_fuzz import chunks, mutated, story

from horolog.protocol.http2.calls import Calls, Dropped, Message, MessagesEnded, Opened, UnaryCall
from horolog.protocol.http2.events import AnswerSent, Limits
from horolog.protocol.http2.grpc_wire import framed

LIMITS = Limits(streams=8, queued_bytes=100_000, resets_burst=20, frames_burst=60)
# A PRIORITY of 14 bytes may be answered with a reset of 13, a fault with a sentence
OWED_FOR_A_BYTE = 3
OWED_ANYWAY = 400


class Peer:
    """The server's end, with a service that answers now, later, in pieces, or never."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.calls = Calls(frozenset({b"/toy.Toy/Talk"}), LIMITS)
        # Calls that were asked, until their answer has gone out in whole
        self.open: set[int] = set()
        self.dropped: set[int] = set()
        self.may_owe = OWED_ANYWAY  # bytes, from the beginning
        self.owed = 0
        self.calls.http.take_output()

    def take(self, piece: bytes, now_ms: int) -> None:
        was_closed = self.calls.http.closed
        self.may_owe += OWED_FOR_A_BYTE * len(piece)
        for event in self.calls.receive(piece, now_ms):
            assert not was_closed
            if isinstance(event, UnaryCall | Opened):
                assert event.stream not in self.open
                self.open.add(event.stream)
            if isinstance(event, Dropped):
                assert event.stream not in self.dropped
                self.dropped.add(event.stream)  # also of requests that had not come in whole
                self.open.discard(event.stream)
            elif isinstance(event, AnswerSent):
                self.open.remove(event.stream)
            elif isinstance(event, UnaryCall | Opened | Message | MessagesEnded):
                self._answer(event)
            self.calls.check_invariants()
        self.calls.check_invariants()
        owed = len(self.calls.http.take_output())
        assert not (owed and was_closed)
        self.owed += owed
        assert self.owed <= self.may_owe
        if self.calls.http.closed:
            assert not self.open, "somebody would work for a caller that has gone"

    def _answer(self, event: UnaryCall | Opened | Message | MessagesEnded) -> None:
        calls, stream = self.calls, event.stream
        if not calls.http.is_open(stream):
            return
        content = framed(bytes(self.random.choice((0, 10, 10, 70_000))))
        self.may_owe += len(content) + 200
        if isinstance(event, Opened):
            calls.begin(stream)
        elif isinstance(event, Message):
            calls.send(stream, content)
        elif isinstance(event, MessagesEnded):
            calls.finish(stream)
        else:
            match self.random.randrange(8):
                case 0:
                    calls.fail(stream, 13, "no")
                case 1:
                    calls.cancel(stream)
                case 2:
                    return  # never
                case _:
                    calls.answer(stream, content)
        if not calls.http.is_open(stream):
            self.open.discard(stream)


def run(seed: int) -> int:
    """One connection; gives how many frames it has taken."""
    random = Random(seed)
    shown = mutated(random, story(random))
    if random.random() < 0.05:
        shown.append(random.randbytes(random.randrange(400)))
    peer, taken, now_ms = Peer(random), 0, 0
    for piece in chunks(random, b"".join(shown)):
        peer.take(piece, now_ms)
        taken += len(piece)
        now_ms += random.choice((0, 0, 1, 50))
        if peer.calls.http.closed:
            break
    peer.take(b"", now_ms)
    frames, at = 0, 0
    for each in shown:
        at += len(each)
        frames += at <= taken
    return frames


def run_many(first: int, frames: int) -> None:
    seed, done = first, 0
    while done < frames:
        try:
            done += run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}: run({seed}) in tests/unit/test_http2_fuzz.py")
            raise
        seed += 1


@pytest.mark.parametrize("first", [1_000_000 * i for i in range(4)])
def test_mutated_frames_end_in_events_or_the_protocols_own_faults(first) -> None:
    run_many(first, 10_000)


@pytest.mark.parametrize("seed", range(300))
def test_requests_are_the_same_in_one_piece_and_byte_by_byte(seed) -> None:
    """A request whose frames come together is taken at once, and must not differ for that.

    Frames of a call that is refused already may end a connection sooner when they come later.
    """
    random = Random(seed)
    shown = story(random, calls=20)
    raw = b"".join(mutated(random, shown) if seed % 2 else shown)
    asked = []
    for size in (len(raw), 1):
        calls = Calls(frozenset({b"/toy.Toy/Talk"}))
        found = []
        for at in range(0, len(raw), size):
            found += calls.receive(raw[at : at + size], 0)
            calls.check_invariants()
        asked.append([event for event in found if isinstance(event, UnaryCall | Opened | Message)])
    assert asked[1] == (asked[0][: len(asked[1])] if seed % 2 else asked[0])


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000_000 * i for i in range(10, 14)])
def test_a_million_mutated_frames(first) -> None:
    run_many(first, 250_000)
