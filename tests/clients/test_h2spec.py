"""h2spec, the conformance tests of HTTP/2 and HPACK: plaintext and TLS, every case passed.

h2spec asks for pages, which the broker does not serve, so the door, its connections and their HTTP/2 are the broker's,
and after them stands a page instead of gRPC.  `make clients` builds h2spec with the versions and sums of
tests/clients/h2spec.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path

import pytest

from horolog.protocol.http2 import hpack
from horolog.protocol.http2.connection import Connection
from horolog.protocol.http2.events import Body, Head, Limits, StreamAborted
from horolog.protocol.http2.faults import Code
from horolog.server.door import Door
from horolog.server.intake import Intake
from horolog.server.link import Link, Links
from horolog.server.tls import Certificate

pytestmark = [pytest.mark.process, pytest.mark.clients]
BUILT = Path(__file__).resolve().parents[2] / "build" / "clients" / "h2spec"
CASES = 145
SUMMARY = re.compile(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed")
HEAD = hpack.encode([(b":status", b"200"), (b"content-type", b"text/plain")])
END = hpack.encode([(b"x-end", b"1")])
THINKS_S = 0.05  # so that streams are open at the same time


class PageLink(Link):
    """Answers every request with the same page, after a moment."""

    def __init__(self, door: Links) -> None:
        super().__init__(door)
        self.http = Connection(Limits(streams=100))
        self._open: set[int] = set()

    def receive(self, data: bytes, now_ms: int) -> None:
        for event in self.http.receive(data, now_ms):
            if isinstance(event, Head | Body) and event.ended:
                self._open.add(event.stream)
                self._door.loop.call_later(THINKS_S, self._answer, event.stream)
            elif isinstance(event, StreamAborted):
                self._open.discard(event.stream)

    def _answer(self, stream: int) -> None:
        if stream in self._open:
            self._open.remove(stream)
            self.http.out.respond(stream, HEAD, b"a page", END)
            self.flush()

    def take_output(self) -> bytes:
        return self.http.take_output()

    def output_written(self) -> None:
        if self.http.closed:
            self._transport.close()

    def connection_ended(self) -> None:
        self.http.abort(Code.NO_ERROR)
        self._open.clear()

    def check_timeouts(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """Quiet peers may stay."""

    def stop_accepting(self) -> None:
        self.http.announce_shutdown()
        self.flush()

    @property
    def is_idle(self) -> bool:
        return not self._open

    def close(self) -> None:
        self.http.abort(Code.NO_ERROR)
        self.flush()


async def h2spec(*flags: str) -> str:
    """What it says of the page."""
    door = Door(
        PageLink,
        socket.create_server(("127.0.0.1", 0)),
        intake=Intake(),
        log=logging.getLogger("page"),
        certificate=Certificate(None, None, "127.0.0.1"),
    )
    port = await door.start()
    try:
        ran = await asyncio.create_subprocess_exec(
            *(str(BUILT), "--port", str(port), "--timeout", "5", *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await asyncio.wait_for(ran.communicate(), 300)
        finally:
            if ran.returncode is None:
                ran.kill()
                await ran.wait()
        return said.decode()
    finally:
        await door.stop(0)


@pytest.mark.parametrize("flags", [[], ["--tls", "--insecure"]], ids=["plaintext", "tls"])
def test_every_case_passes(flags: list[str]) -> None:
    assert BUILT.exists(), "h2spec is missing: make clients"
    said = asyncio.run(h2spec(*flags))
    summary = SUMMARY.search(said)
    assert summary is not None, said[-2_000:]
    assert tuple(map(int, summary.groups())) == (CASES, CASES, 0, 0), said[-5_000:]
