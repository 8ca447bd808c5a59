"""Official clients of other languages: each is a process that takes commands as lines of JSON.

A request {"id": 7, "do": "send", …} is answered by {"id": 7, "gave": …} or {"id": 7, "refused": …}.
What a client does by itself (a push consumer that gets a message) is an event {"by": its name,
"event": …}. The sources are in tests/clients, the environments in build/clients: `make clients`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "clients"
ANSWER_S = 60.0
EVENT_S = 60.0
LOOK_S = 0.1
_STDERR_SHOWN = 6_000
CONTAINED = ["unshare", "--user", "--pid", "--fork", "--kill-child"]


class Refused(Exception):
    """The client raised an exception, whose text this is."""


class Driver:
    """A running client program; `close` kills it in any state."""

    def __init__(self, command: list[str], home: Path, **environment: str) -> None:
        """Start the program, with `home` for its logs."""
        home.mkdir(parents=True, exist_ok=True)
        self._stderr = (home / "stderr").open("a+")
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            cwd=home,
            env={**os.environ, "HOME": str(home), **environment},
        )
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._waiting: dict[int, Future[Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the program."""
        self._popen.kill()
        self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout, self._stderr):
            assert pipe is not None
            pipe.close()

    def start(self, do: str, **fields: Any) -> Future[Any]:
        """Send a request and return at once; the future raises `Refused` if the client raised."""
        number = next(self._ids)
        future: Future[Any] = Future()
        with self._changed:
            self._waiting[number] = future
            assert self._popen.stdin is not None
            self._popen.stdin.write(json.dumps({"id": number, "do": do, **fields}) + "\n")
            self._popen.stdin.flush()
        return future

    def ask(self, do: str, **fields: Any) -> Any:
        """Send a request, and wait for the answer."""
        try:
            return self.start(do, **fields).result(ANSWER_S)
        except TimeoutError:
            raise AssertionError(f"no answer to {do} {fields}: {self.stderr()}") from None

    def events(self, by: str) -> list[dict[str, Any]]:
        """Return all events so far of the client with this name."""
        with self._changed:
            return [event for event in self._events if event["by"] == by]

    def wait(
        self,
        by: str,
        enough: Callable[[list[dict[str, Any]]], bool],
        meanwhile: Callable[[], object] | None = None,
        timeout_s: float = EVENT_S,
    ) -> list[dict[str, Any]]:
        """Wait until a client's events are enough; `meanwhile` is called repeatedly, to move a clock."""
        end = time.monotonic() + timeout_s
        while not enough(found := self.events(by)):
            assert time.monotonic() < end, (found, self.stderr())
            if meanwhile is not None:
                meanwhile()
            with self._changed:
                self._changed.wait(LOOK_S)
        return found

    def quiet(self, seconds: float) -> None:
        """Wait for events that must not come; afterwards all events of this time are known."""
        end = time.monotonic() + seconds
        with self._changed:
            while (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def stderr(self) -> str:
        """Return the end of the program's stderr."""
        self._stderr.flush()
        text = Path(self._stderr.name).read_text(errors="replace")
        return text[-_STDERR_SHOWN:]

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for text in self._popen.stdout:
            line = json.loads(text)
            with self._changed:
                if "id" not in line or "event" in line:
                    self._events.append(line)
                    self._changed.notify_all()
                    continue
                future = self._waiting.pop(line["id"])
            if "refused" in line:
                future.set_exception(Refused(line["refused"]))
            else:
                future.set_result(line["gave"])
        for future in self._waiting.values():
            future.set_exception(AssertionError(f"the client has ended: {self.stderr()}"))


def java(module: str, main: str, home: Path, *options: str) -> Driver:
    """Start a driver of tests/clients/java, which logs into its home."""
    place = BUILD / "java" / module
    assert (place / "lib").is_dir(), f"{module} is missing: make clients"
    return Driver(
        [
            "java",
            f"-Duser.home={home}",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # these processes live for seconds
            *options,
            "-cp",
            f"{place}/classes:{place}/lib/*",
            main,
        ],
        home,
    )


def java_grpc(version: str, home: Path) -> Driver:
    """Start the official 5.x client of Java."""
    return java(f"grpc-{version}", "horolog.grpc.Driver", home)


def python(home: Path, **environment: str) -> Driver:
    """Start the official client of Python, in an environment of its own."""
    place = ROOT / ".venv-client" / "bin" / "python"
    assert place.exists(), "the client's environment is missing: make setup"
    script = ROOT / "tests" / "clients" / "python" / "driver.py"
    return Driver([str(place), str(script)], home, **environment)


def node(home: Path, **environment: str) -> Driver:
    """Start the official client of Node.js, with the modules of its environment."""
    assert (BUILD / "node" / "node_modules").is_dir(), "the Node.js client is missing: make clients"
    found = shutil.which("node")
    assert found is not None
    script = ROOT / "tests" / "clients" / "node" / "driver.js"
    modules = str(BUILD / "node" / "node_modules")
    return Driver([found, str(script)], home, NODE_PATH=modules, **environment)


def java_remoting(version: str, home: Path, *options: str) -> Driver:
    """Start the official client of Java over the protocol of 4.x."""
    return java(f"remoting-{version}", "horolog.remoting.Driver", home, *options)


def cpp(home: Path) -> Driver:
    """Start the C++ core of the 4.x clients, driven by its Python wrapper."""
    python = BUILD / "cpp" / "bin" / "python"
    assert python.exists(), "the C++ client is missing: make clients"
    return Driver([str(python), str(ROOT / "tests" / "clients" / "cpp" / "driver.py")], home)


def go_remoting(home: Path, *, contained: bool = False) -> Driver:
    """Start the official client of Go over the protocol of 4.x.

    contained  give it the process id that it has in any container
    """
    program = BUILD / "go4"
    assert program.exists(), "the Go client of 4.x is missing: make clients"
    return Driver([*(CONTAINED if contained else []), str(program)], home)


def rust(home: Path) -> Driver:
    """Start the official client of Rust."""
    program = BUILD / "rust" / "debug" / "horolog-client"
    assert program.exists(), "the Rust client is missing: make test-full"
    return Driver([str(program)], home)


def go5(home: Path, **environment: str) -> Driver:
    """Start the official client of Go over gRPC."""
    program = BUILD / "go5"
    assert program.exists(), "the Go client of 5.x is missing: make clients"
    return Driver([str(program)], home, **environment)
