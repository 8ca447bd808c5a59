"""A real broker in a process of its own, for the tests of applications (and for horolog's own).

    with BrokerProcess() as broker:
        broker.create_topic("orders")
        ...                                  # the application schedules a message for in 30 minutes
        broker.advance("30m")                # … and the message is there

`BrokerProcess` runs the `horolog` of this Python installation on free ports, in a temporary
directory, on the simulated clock; `kill` and `restart` show what an application does when its
broker crashes. In pytest, the fixture `horolog_broker` (`horolog.testing.plugin`) provides a
started broker.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Literal

from horolog.admin.client import AdminClient, path_of
from horolog.units import parse_duration_ms

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
_STDERR_SHOWN = 4_000
_PORT_IN_USE = "cannot be opened (in use)"


class BrokerStartError(Exception):
    """The broker ended before it was ready, or printed nothing in time; the text has its stderr."""

    def __init__(self, message: str, exit_code: int | None, stderr: str) -> None:
        super().__init__(f"{message}\n{stderr[-_STDERR_SHOWN:]}".rstrip())
        self.exit_code = exit_code
        self.stderr = stderr


def _end_group(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL to the process and all processes it started; the group may be gone already."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _remove(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)


class BrokerProcess:
    """One `horolog serve`.  Create it, `start()` it (or enter it), and `close()` it (or leave it).

    data_dir               kept; None: a temporary directory that `close` removes
    clock                  "simulated" (time moves only by `advance`) or "system"
    flush                  as `horolog serve --flush`
    grpc_port, admin_port  0: free ports, kept by a restart, so that clients find the broker again
    arguments              further flags of `horolog serve`
    command                command to run instead of this installation's `horolog`
    environment            added to the process's environment
    """

    _popen: ClassVar[type[subprocess.Popen[str]]] = subprocess.Popen  # horolog's own tests fork

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        clock: Literal["simulated", "system"] = "simulated",
        flush: Literal["sync", "interval", "os"] = "sync",
        grpc_port: int = 0,
        admin_port: int = 0,
        arguments: Sequence[str] = (),
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = ""
        if data_dir is None:
            self._temporary = tempfile.mkdtemp(prefix="horolog-")
            weakref.finalize(self, _remove, self._temporary)
        self.data_dir = data_dir or Path(self._temporary) / "data"
        self.clock = clock
        self.ready: dict[str, str] = {}
        self._flush = flush
        self._ports = {
            "grpc-port": grpc_port,
            "admin-port": admin_port,
            "namesrv-port": 0,
            "broker-port": 0,
        }
        self._arguments = list(arguments)
        self._command = list(command) or installed_command()
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[str] | None = None
        self._end: weakref.finalize[..., Any] | None = None

    # --- life -----------------------------------------------------------------------------------

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> BrokerProcess:
        """Start the broker and wait for its ready line.

        Raise `BrokerStartError` if the process ends or prints nothing for `timeout_s`. If another
        program's connection has taken a port that this broker had before, retry for as long.
        """
        assert not self.running, "this broker runs already"
        until = time.monotonic() + timeout_s
        while True:
            try:
                return self._start(timeout_s)
            except BrokerStartError as error:
                had_it = bool(self.ready) and _PORT_IN_USE in error.stderr
                if not had_it or time.monotonic() > until:
                    raise

    def _start(self, timeout_s: float) -> BrokerProcess:
        self._close_stderr()
        self._stderr = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 - lives on
        process = self._popen(
            self._command_line(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,  # a process group of its own, which can be killed as a whole
            env=self._environment,
        )
        self._process = process
        self._end = weakref.finalize(self, _end_group, process)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
        try:
            line = lines.get(timeout=timeout_s)
        except queue.Empty:
            line = "?"
        words = line.split()
        if words[:2] != ["horolog", "ready"]:
            self._give_up(line, timeout_s)
        self.ready = dict(word.split("=", 1) for word in words[2:] if "=" in word)
        for port in self._ports:
            self._ports[port] = int(self.ready.get(port, 0))  # 0: the port is not open
        return self

    def _command_line(self) -> list[str]:
        ports = [f"--{name}={number}" for name, number in self._ports.items()]
        return [
            *self._command,
            "serve",
            f"--data-dir={self.data_dir}",
            f"--clock={self.clock}",
            f"--flush={self._flush}",
            *ports,
            *self._arguments,
        ]

    def _give_up(self, line: str, timeout_s: float) -> None:
        assert self._process is not None
        if line == "":
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        exit_code = self._process.poll()
        why = (
            f"was not ready within {timeout_s:g} s"
            if exit_code is None
            else f"exited with {exit_code}"
        )
        _end_group(self._process)
        raise BrokerStartError(f"horolog serve {why}", exit_code, self.stderr())

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process, which is also the id of its process group."""
        assert self._process is not None, "start the broker first"
        return self._process.pid

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would.

        Everything that was acknowledged is in the data directory.
        """
        assert self._process is not None, "start the broker first"
        _end_group(self._process)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM, wait, and return the exit code, which is 0 if the broker ended in order."""
        assert self._process is not None, "start the broker first"
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                _end_group(self._process)
        return self._process.returncode

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process ends by itself, and return the exit code.

        Raise subprocess.TimeoutExpired if the process does not end.
        """
        assert self._process is not None, "start the broker first"
        return self._process.wait(timeout_s)

    def restart(self, timeout_s: float = READY_TIMEOUT_S) -> BrokerProcess:
        """Start again on the same directory and ports, after `kill` or `stop`.

        A running broker is stopped first.
        """
        if self.running:
            self.stop()
        return self.start(timeout_s)

    def close(self) -> None:
        """End the process group if it is alive, and remove a temporary directory.

        Calling it twice is allowed.
        """
        if self._end is not None:
            self._end()
        self._close_stderr()
        if self._temporary:
            _remove(self._temporary)

    def __enter__(self) -> BrokerProcess:
        """Start the broker unless it is running."""
        try:
            return self if self.running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the broker."""
        self.close()

    def stderr(self) -> str:
        """Return what the process has logged since its last start."""
        if self._stderr is None or self._stderr.closed:
            return ""
        self._stderr.seek(0)
        return self._stderr.read()

    def _close_stderr(self) -> None:
        if self._stderr is not None:
            self._stderr.close()

    # --- use ------------------------------------------------------------------------------------

    @property
    def grpc_endpoint(self) -> str:
        """host:port for RocketMQ 5.x clients."""
        return f"127.0.0.1:{self._ports['grpc-port']}"

    @property
    def namesrv_address(self) -> str:
        """host:port of the name server for RocketMQ 4.x clients."""
        return f"127.0.0.1:{self._ports['namesrv-port']}"

    @property
    def broker_address(self) -> str:
        """host:port of the broker for RocketMQ 4.x clients, which they get from the name server."""
        return f"127.0.0.1:{self._ports['broker-port']}"

    @property
    def admin_url(self) -> str:
        """URL of the admin API, also for `horolog … --admin`."""
        return f"http://127.0.0.1:{self._ports['admin-port']}"

    @property
    def admin(self) -> AdminClient:
        """A client of the admin API."""
        return AdminClient(self.admin_url)

    def now_ms(self) -> int:
        """Return the broker's time, UTC epoch milliseconds."""
        return int(self.admin.get("/v1/clock")["wall_ms"])

    def advance(self, by: str | int) -> int:
        """Let time pass: "30d", "90s", or milliseconds.  Return the new time in epoch ms.

        When this returns, every message that became due is handed over and durable.
        """
        by_ms = parse_duration_ms(by, field="advance") if isinstance(by, str) else by
        return int(self.admin.advance(by_ms)["wall_ms"])

    def create_topic(self, name: str, type: str = "delay", queues: int = 1) -> None:
        """Create a topic; one queue by default, so that a test sees one order."""
        self.admin.post(path_of("topics"), {"name": name, "type": type, "queues": queues})

    def pending(self, topic: str = "") -> int:
        """Return how many scheduled messages are pending, of one topic or of all."""
        return int(self.admin.get(path_of("pending"), {"topic": topic})["total"])


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Read stdout to its end, so that the process never blocks on it; then put "" for the end."""
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            lines.put(line)
    lines.put("")


def installed_command() -> list[str]:
    """Return the `horolog` beside this Python, or `python -m horolog` if there is no script."""
    script = Path(sys.executable).with_name("horolog")
    return [str(script)] if script.exists() else [sys.executable, "-m", "horolog"]
