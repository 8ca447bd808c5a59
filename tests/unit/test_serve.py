"""The process around the engine, with an engine that answers as it is told.

Start, ready line, end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from horolog.config import Settings
from horolog.config_sources import load
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    DescribeTopic,
    ListTopics,
    TopicType,
)
from horolog.server.auto_create import AutoCreate
from horolog.server.connected import ConnectedClient
from horolog.server.failures import why_failed
from horolog.server.main import serve
from horolog.server.open_broker import open_engine
from horolog.server.parts import Door, Parts
from horolog.server.ports import bind
from horolog.testing.engine import ScriptedEngine


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Front:
    """A gRPC door that only looks whether it could open."""

    def __init__(self, events: list[str], port: int) -> None:
        self._events = events
        self._port = port

    async def open(self) -> dict[str, int]:
        """Remember it."""
        bind("127.0.0.1", self._port, "--grpc-port").close()
        self._events.append("grpc opened")
        return {"grpc-port": 4_711}

    def reload(self) -> None:
        """Remember it."""
        self._events.append("certificate read")

    def connected(self) -> Iterator[ConnectedClient]:
        """Nobody."""
        return iter(())

    def members(self, group: str) -> list[ConnectedClient]:
        """Nobody."""
        return []

    async def notify_reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Nobody."""

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Nobody."""

    def member_count(self, group: str) -> int:
        """Nobody."""
        return 0

    async def stop(self, grace: float) -> None:
        """Remember it."""
        self._events.append("grpc closed")


class Process:
    """`serve` with fakes; `engine` is there once it has been opened."""

    def __init__(self, tmp_path: Path, **flags: Any) -> None:
        self.events: list[str] = []
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[ScriptedEngine] = loop.create_future()
        self.ready: asyncio.Future[str] = loop.create_future()
        self.settings = load(
            {"data_dir": tmp_path, "grpc_port": 0, "admin_port": 0, "remoting": False, **flags},
            environment={},
        )

    async def run(self, opening: Callable[[], None] = lambda: None) -> int:
        """Until it ends; `opening` is called while it recovers."""

        async def open_engine(settings: Settings) -> ScriptedEngine:
            assert settings is self.settings
            opening()
            engine = ScriptedEngine()
            self.opened.set_result(engine)
            return engine

        def make_doors(
            engine: object, settings: Settings, broker_socket: object, guard: object
        ) -> list[Door]:
            assert broker_socket is None
            return [Front(self.events, settings.grpc_port)]

        return await serve(self.settings, Parts(open_engine, make_doors, self.ready.set_result))


def within_10_s(work: Coroutine[Any, Any, None]) -> None:
    """Run it with a deadline."""
    asyncio.run(asyncio.wait_for(work, 10))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    """Ready line with the real ports; then doors close before the engine stops; exit code 0."""

    async def work() -> None:
        process = Process(tmp_path)
        running = asyncio.create_task(process.run())
        words = (await process.ready).split()
        assert words[:2] == ["horolog", "ready"]
        fields = dict(word.split("=", 1) for word in words[2:])
        assert fields["grpc-port"] == "4711"
        assert int(fields["admin-port"]) > 0
        assert (fields["epoch"], fields["pid"], fields["data-dir"]) == (
            "3",
            str(os.getpid()),
            str(tmp_path),
        )
        os.kill(os.getpid(), number)
        assert await running == 0
        assert process.events == ["grpc opened", "grpc closed"]
        assert (await process.opened).stopped

    within_10_s(work())


def test_sighup_reads_the_certificate_again(tmp_path: Path) -> None:
    async def work() -> None:
        process = Process(tmp_path)
        running = asyncio.create_task(process.run())
        await process.ready
        os.kill(os.getpid(), signal.SIGHUP)
        while "certificate read" not in process.events:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    within_10_s(work())


def test_sighup_while_it_recovers_is_for_later(tmp_path: Path) -> None:
    """It ended the process without a word."""

    def opening() -> None:
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGHUP)

    async def work() -> None:
        process = Process(tmp_path)
        running = asyncio.create_task(process.run(opening))
        await process.ready
        while "certificate read" not in process.events:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    within_10_s(work())


@pytest.mark.parametrize("host", ["fe80::1", "192.0.2.1"])
def test_an_address_that_cannot_be_had_is_named_and_no_port(host: str) -> None:
    """Link-local without an interface: "--broker-port: port 0 cannot be opened; 0 takes a free one"."""
    with pytest.raises(HorologError, match="is no address of this machine") as caught:
        bind(host, 0, "--broker-port")
    assert caught.value.field == "--host"


def test_small_answers_do_not_wait_for_an_ack_on_any_event_loop() -> None:
    """asyncio's own switches Nagle's algorithm off where a socket names its protocol; uvloop does it always."""

    async def work() -> None:
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            at_once = writer.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY
            )
            taken.set_result(bool(at_once))
            writer.close()

        with bind("127.0.0.1", 0, "--broker-port") as listener:
            async with await asyncio.start_server(take, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                assert await taken
                writer.close()

    within_10_s(work())


def test_a_failed_engine_ends_it_with_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the log says why."""

    async def work() -> None:
        process = Process(tmp_path)
        running = asyncio.create_task(process.run())
        (await process.opened).fail()
        assert await running == 1
        assert process.events == ["grpc opened", "grpc closed"]
        assert (await process.opened).stopped

    within_10_s(work())
    assert "the broker cannot go on: log: write failed" in caplog.text
    assert str(tmp_path) in caplog.text


def test_a_stop_whose_checkpoint_fails_ends_with_1(tmp_path: Path, monkeypatch) -> None:
    """It ended with 0, as if the next start had nothing to replay."""

    async def failing(engine: ScriptedEngine) -> None:
        engine.fail()

    async def work() -> None:
        process = Process(tmp_path)
        running = asyncio.create_task(process.run())
        await process.ready
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 1

    monkeypatch.setattr(ScriptedEngine, "stop", failing)
    within_10_s(work())


@pytest.mark.parametrize("flag", ["grpc_port", "admin_port"])
def test_a_port_in_use_names_its_flag_and_nothing_stays_open(tmp_path: Path, flag: str) -> None:
    """The engine is stopped again."""
    (tmp_path / "meta").touch()  # an old directory: a new one is not made (test_serve_refusals)

    async def work() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            process = Process(tmp_path, **{flag: port})
            with pytest.raises(HorologError) as caught:
                await process.run()
        assert caught.value.code is ErrorCode.CONFIG
        assert caught.value.field == "--" + flag.replace("_", "-")
        assert f"port {port} cannot be opened (in use)" in caught.value.message
        assert (await process.opened).stopped
        assert process.events.count("grpc opened") == process.events.count("grpc closed")

    within_10_s(work())


class EmptyEngine(ScriptedEngine):
    """Knows no topic until one is created, by its caller or, with `exists`, just before."""

    exists: HorologError | None = None

    def submit(self, command: Any) -> asyncio.Future[Any]:
        """As scripted, and CreateTopic makes DescribeTopic known."""
        if isinstance(command, CreateTopic):
            self.answers[DescribeTopic] = self.answers[CreateTopic]
            if self.exists is not None:
                self.answers[CreateTopic] = self.exists
        return super().submit(command)


def test_a_topic_is_made_at_its_first_use_where_that_is_wanted() -> None:
    """As a NORMAL one; other refusals pass."""

    async def work() -> None:
        engine = EmptyEngine()
        unknown = HorologError(ErrorCode.TOPIC_NOT_FOUND, "topic 'a' does not exist")
        engine.answers[DescribeTopic] = unknown
        made = await AutoCreate(engine).submit(DescribeTopic("a"))
        assert made is engine.answers[CreateTopic]
        create = CreateTopic("a", TopicType.NORMAL, 8)
        assert engine.asked == [DescribeTopic("a"), create, DescribeTopic("a")]
        engine.answers[DescribeTopic] = HorologError(ErrorCode.INTERNAL, "why")
        with pytest.raises(HorologError, match="why"):
            await AutoCreate(engine).submit(DescribeTopic("a"))
        engine = EmptyEngine()
        engine.answers[DescribeTopic] = unknown
        engine.exists = HorologError(ErrorCode.TOPIC_EXISTS, "somebody else made another one")
        assert await AutoCreate(engine).submit(DescribeTopic("a")) == made

    within_10_s(work())


def test_a_broker_without_memory_says_so(tmp_path: Path) -> None:
    """`ulimit -v`, or a limit of a container: its last line gave no reason at all."""

    async def work() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 16)
        try:
            for error, text in (
                (MemoryError(), "out of memory"),
                (
                    MemoryError("Unable to allocate 1 GiB"),
                    "out of memory: Unable to allocate 1 GiB",
                ),
            ):
                assert str(why_failed(error, engine.storage, engine.broker.shard)) == text
        finally:
            await engine.stop()

    within_10_s(work())


def test_callers_that_wait_for_a_turn_that_fails_get_the_error(tmp_path: Path) -> None:
    """Also the commands of that very turn: nobody waits for ever for a core that has broken off."""

    async def work() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 16)
        no_name: Any = ["a list"]  # no front end lets this through: a broken invariant
        try:
            commands = (DescribeBroker(), DescribeTopic(no_name), ListTopics())
            asked = [engine.submit(each) for each in commands]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(answer, HorologError)
                assert answer.code is ErrorCode.DISK_FAILED
            assert engine.failed.done()
        finally:
            await engine.stop()

    within_10_s(work())
