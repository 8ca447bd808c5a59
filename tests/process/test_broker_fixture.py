"""`horolog.testing`.

The broker of an application's tests starts, forgets nothing, and always ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from horolog.admin.status import UnreachableError
from horolog.testing.broker import BrokerProcess, BrokerStartError

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("installed")]


def alive(pid: int) -> bool:
    """Whether such a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def schedule(broker: BrokerProcess, in_ms: int) -> None:
    """One message."""
    broker.admin.post("/v1/messages", {"topic": "orders", "body": "x", "in_ms": in_ms})


def test_time_moves_only_on_request(horolog_broker: BrokerProcess) -> None:
    """Durations as text or milliseconds; what became due is there when `advance` returns."""
    horolog_broker.create_topic("orders")
    start_ms = horolog_broker.now_ms()
    schedule(horolog_broker, 3_600_000)
    assert horolog_broker.pending() == horolog_broker.pending("orders") == 1
    assert horolog_broker.advance("59m") == start_ms + 59 * 60_000
    assert horolog_broker.pending() == 1
    assert horolog_broker.advance(60_000) == start_ms + 3_600_000
    assert horolog_broker.pending() == 0


def test_thirty_days_pass_at_once(horolog_broker: BrokerProcess) -> None:
    """Days are no more work than minutes while nothing is due."""
    start_ms = horolog_broker.now_ms()
    assert horolog_broker.advance("30d") == start_ms + 30 * 86_400_000


def test_a_restart_waits_for_a_port_that_somebody_has_got(
    horolog_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that are made get ports of the same range."""
    horolog_broker.kill()
    port = int(horolog_broker.grpc_endpoint.rpartition(":")[2])
    other = socket.create_server(("127.0.0.1", port))
    start, refused = horolog_broker._start, []

    def counted(timeout_s: float) -> BrokerProcess:
        try:
            return start(timeout_s)
        except BrokerStartError as error:
            refused.append(error.stderr)
            other.close()
            raise

    monkeypatch.setattr(horolog_broker, "_start", counted)
    horolog_broker.restart()
    assert len(refused) == 1
    assert "in use" in refused[0]
    assert horolog_broker.grpc_endpoint.endswith(f":{port}")


def test_kill_and_restart_keep_ports_and_messages(horolog_broker: BrokerProcess) -> None:
    """The epoch rises, the clock does not go back."""
    horolog_broker.create_topic("orders")
    schedule(horolog_broker, 3_600_000)
    horolog_broker.advance("30m")
    before = (horolog_broker.grpc_endpoint, horolog_broker.admin_url)
    now_ms = horolog_broker.now_ms()
    horolog_broker.kill()
    assert not horolog_broker.running
    with pytest.raises(UnreachableError):
        horolog_broker.pending()
    horolog_broker.restart()
    assert (horolog_broker.grpc_endpoint, horolog_broker.admin_url) == before
    assert horolog_broker.ready["epoch"] == "2"
    assert horolog_broker.pending() == 1
    assert horolog_broker.now_ms() >= now_ms
    assert horolog_broker.stop() == 0


def test_it_ends_with_its_block_and_leaves_nothing() -> None:
    """Also when the block fails."""

    def fail(broker: BrokerProcess) -> None:
        with broker:
            assert alive(broker.pid)
            raise LookupError

    broker = BrokerProcess()
    with pytest.raises(LookupError):
        fail(broker)
    assert not alive(broker.pid)
    assert not broker.data_dir.parent.exists()


def test_a_stopped_process_is_ended_too() -> None:
    """SIGSTOP holds back SIGTERM, not the end."""
    with BrokerProcess() as broker:
        pid = broker.pid
        os.kill(pid, signal.SIGSTOP)
    assert not alive(pid)


def test_a_broker_that_says_nothing_is_given_up() -> None:
    """With a deadline, and its process is ended."""
    silent = BrokerProcess(command=[sys.executable, "-c", "import signal; signal.pause()"])
    with pytest.raises(BrokerStartError, match=r"was not ready within 0\.2 s"):
        silent.start(timeout_s=0.2)
    assert not silent.running
    silent.close()


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    """Exit code and stderr."""
    (tmp_path / "strange").write_text("x")
    with pytest.raises(BrokerStartError) as caught:
        BrokerProcess(tmp_path).start()
    assert caught.value.exit_code == 4
    assert "horolog serve exited with 4" in str(caught.value)
    assert "--data-dir: " in str(caught.value)
