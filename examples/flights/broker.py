"""Broker and clients as child processes: started, killed, listened to, and always ended.

Every child gets a session of its own, so that Ctrl-C reaches only the demo, which then ends the
children in order; the clients also end by themselves when their stdin closes, whatever became of
the demo.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger import Seen

READY_WITHIN_S = 30.0
END_WITHIN_S = 10.0
LEAVE_WITHIN_S = 5.0
DOORS = ("grpc-port", "admin-port", "namesrv-port", "broker-port")
LINE_BYTES_MAX = 1 << 20


class DemoError(Exception):
    """Why the demo cannot go on, in a sentence."""


class Child:
    """A process whose stderr goes to a file and whose stdout is read line by line."""

    def __init__(self, name: str, work_dir: Path) -> None:
        self.name = name
        self.log = work_dir / f"{name}.log"
        self._work_dir = work_dir
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def popen(self) -> asyncio.subprocess.Process:
        """The process; only after `start`."""
        assert self._process is not None
        return self._process

    async def start(self, *command: str | Path) -> None:
        """Start it.  HOME is the work directory: the official client logs to ~/logs."""
        environment = {**os.environ, "HOME": str(self._work_dir), "PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *map(str, command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )

    async def line(self) -> str:
        """The next line of its stdout; DemoError when there is none in time."""
        assert self.popen.stdout is not None
        try:
            line = await asyncio.wait_for(self.popen.stdout.readline(), READY_WITHIN_S)
        except TimeoutError:
            raise DemoError(f"{self.name} said nothing for {READY_WITHIN_S:.0f} s") from None
        if not line:
            raise self.ended()
        return line.decode()

    def ended(self) -> DemoError:
        """An error that says how it ended and how its log ends."""
        code = self.popen.returncode
        how = (
            f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with {code}"
        )
        tail = self.log.read_text(errors="replace").splitlines()[-3:]
        return DemoError(f"{self.name} ended {how}; see {self.log}: " + " | ".join(tail))

    def kill(self) -> None:
        """SIGKILL, at once."""
        with suppress(ProcessLookupError):
            self.popen.kill()

    async def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), END_WITHIN_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()


class Client(Child):
    """airline.py or boarding.py in the client's environment."""

    async def open(self, python: Path, program: str, *arguments: str) -> None:
        """Start the program and wait until it has connected."""
        await self.start(python, Path(__file__).with_name(program), *arguments)
        if json.loads(await self.line())["kind"] != "ready":
            raise self.ended()

    async def stop(self) -> None:
        """End it: it leaves the broker by itself when its stdin closes."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), LEAVE_WITHIN_S)
        await super().stop()

    async def tell(self, content: object) -> None:
        """Give it one line of JSON."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(content).encode() + b"\n")
        await self.popen.stdin.drain()

    async def listen(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand every further line to `take`, until stdout closes."""
        assert self.popen.stdout is not None
        while line := await self.popen.stdout.readline():
            take(json.loads(line))


class Broker(Child):
    """`horolog serve` on free ports, which stay the same when it is started again."""

    def __init__(self, work_dir: Path) -> None:
        super().__init__("broker", work_dir)
        self._horolog = Path(sys.executable).with_name("horolog")
        self.data_dir = work_dir / "broker-data"
        self._ports = dict.fromkeys(DOORS, "0")
        self.epoch = ""

    @property
    def endpoint(self) -> str:
        """Host and port of the gRPC door."""
        return "127.0.0.1:" + self._ports["grpc-port"]

    @property
    def admin(self) -> str:
        """URL of the admin API."""
        return "http://127.0.0.1:" + self._ports["admin-port"]

    async def open(self) -> None:
        """Start it and wait for its ready line."""
        flags = [f"--{name}={port}" for name, port in self._ports.items()]
        await self.start(self._horolog, "serve", f"--data-dir={self.data_dir}", *flags)
        fields = dict(word.split("=", 1) for word in (await self.line()).split() if "=" in word)
        self._ports.update({name: fields[name] for name in self._ports if name in fields})
        self.epoch = fields.get("epoch", "?")

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic of scheduled messages, as an operator does."""
        command = [str(self._horolog), "topic", "create", topic, "--type", "delay"]
        process = await asyncio.create_subprocess_exec(
            *command, "--queues", str(queues), "--admin", self.admin,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        if process.returncode:
            raise DemoError(f"{' '.join(command)}: {output.decode().strip()}")

    async def look(self, topic: str) -> Seen:
        """What the broker says about the topic."""
        url = f"{self.admin}/v1/topics/{topic}"
        view = await asyncio.to_thread(_get_json, url)
        result = view["result"]
        return Seen(pending=result["pending"], queue_offsets=sum(result["queue_offsets"]))


def on_exit_signals(stop: Callable[[], object]) -> None:
    """Let the first SIGINT or SIGTERM call `stop`; later ones must not disturb the clean-up."""
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: None)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_once)


def _get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as response:
        return json.load(response)
