"""What a service manager is told, on a real socket: by a scripted core, and by a broker in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sd_listener import Listener

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.server.supervisor import Supervisor
from horolog.testing.broker import BrokerProcess, installed_command
from horolog.testing.engine import PARKED, ScriptedEngine

VIEW = BrokerView(3, 900, 900, 900, 500, 1_234, 7, 1, 1, 1, 0, 2)


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}/notify"


@pytest.fixture
def listener(address: str) -> Iterator[Listener]:
    with Listener(address) as listening:
        yield listening


def test_the_variables_are_taken_out() -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert Supervisor.of(environment).is_there
    assert environment == {}
    assert not Supervisor.of({}).is_there
    assert not Supervisor.of({"WATCHDOG_USEC": "²"}).is_there
    assert not Supervisor.of({"NOTIFY_SOCKET": "vsock:2:1"}).is_there


def test_a_life(address: str, listener: Listener) -> None:
    """One line a variable, whatever a text holds."""

    async def work() -> None:
        supervisor = Supervisor(address)
        supervisor.starting("opening a\nREADY=1")
        supervisor.ready(ScriptedEngine(), VIEW)
        supervisor.reloading()
        supervisor.reloaded([])
        supervisor.reloading()
        supervisor.reloaded(["--tls-cert: gone"])
        supervisor.stopping()

    asyncio.run(work())
    assert listener.next() == {"STATUS": "opening a READY=1"}
    assert listener.next() == {"READY": "1", "STATUS": "serving, 1,234 messages pending"}
    assert set(listener.next()) == {"RELOADING", "MONOTONIC_USEC"}
    assert listener.next() == {"READY": "1"}
    assert listener.next()["RELOADING"] == "1"
    assert listener.next() == {"READY": "1", "STATUS": "reload refused: --tls-cert: gone"}
    assert listener.next() == {"STOPPING": "1", "STATUS": "stopping"}


def test_nobody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That is logged once, and costs nothing else."""
    supervisor = Supervisor(str(tmp_path / "gone"))
    for _ in range(3):
        supervisor.starting("x")
    assert caplog.text.count("service manager not notified") == 1


@pytest.mark.parametrize(
    "silence", [PARKED, HorologError(ErrorCode.TOO_MANY_REQUESTS, "x")], ids=["silent", "refuses"]
)
def test_the_watchdog_is_fed_by_answers_of_the_core_alone(
    address: str, listener: Listener, silence: object
) -> None:
    """Fed while it answers; not while it does not, though the loop lives; fed again when it answers again."""

    async def said(key: str, within_s: float) -> dict[str, str]:
        return await asyncio.to_thread(listener.until, key, within_s)

    async def work() -> None:
        engine = ScriptedEngine()
        supervisor = Supervisor(address, watchdog_s=0.15)
        supervisor.ready(engine, VIEW)
        for _ in range(3):
            assert (await said("WATCHDOG", 30))["STATUS"].startswith("serving, 5 messages")
        answer = engine.answers[DescribeBroker]
        engine.answers[DescribeBroker] = silence
        listener.drain()
        with pytest.raises(TimeoutError):
            await said("WATCHDOG", 1)
        engine.answers[DescribeBroker] = replace(answer, problems=["hour 7 is damaged"])
        beat = await said("WATCHDOG", 30)
        assert beat["STATUS"] == "serving, 5 messages pending, 1 problem: hour 7 is damaged"
        supervisor.stopping()
        listener.drain()
        with pytest.raises(TimeoutError):
            await said("WATCHDOG", 1)

    asyncio.run(work())


def served(tmp_path: Path, address: str, **variables: str) -> BrokerProcess:
    environment = {"NOTIFY_SOCKET": address, **variables}
    return BrokerProcess(tmp_path / "data", clock="system", environment=environment)


@pytest.mark.process
def test_a_process_from_its_start_to_its_end(tmp_path: Path) -> None:
    """The watchdog hears nothing while the process stands still."""
    address = f"@{tmp_path}/notify"
    with (
        Listener(address) as listener,
        served(tmp_path, address, WATCHDOG_USEC="600000") as broker,
    ):
        assert listener.next()["STATUS"].startswith("opening ")
        assert listener.next() == {"READY": "1", "STATUS": "serving, 0 messages pending"}
        listener.until("WATCHDOG")
        os.kill(broker.pid, signal.SIGSTOP)
        listener.drain()
        with pytest.raises(TimeoutError):
            listener.until("WATCHDOG", 1.5)
        os.kill(broker.pid, signal.SIGCONT)
        listener.until("WATCHDOG")
        os.kill(broker.pid, signal.SIGHUP)
        assert listener.until("RELOADING")["RELOADING"] == "1"
        assert listener.until("READY") == {"READY": "1"}
        assert broker.stop() == 0
        assert listener.until("STOPPING")["STATUS"] == "stopping"


@pytest.mark.process
def test_a_refused_start_says_why(tmp_path: Path) -> None:
    address = f"@{tmp_path}/notify"
    command = [*installed_command(), "serve", "--data-dir=/proc/none", "--grpc-port=0"]
    with Listener(address) as listener:
        ended = subprocess.run(
            [*command, "--admin-port=0", "--no-remoting"],
            env={**os.environ, "NOTIFY_SOCKET": address},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode != 0
        assert listener.until("STOPPING")["STATUS"].startswith("--data-dir: ")
