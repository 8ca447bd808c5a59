"""A standalone Spark cluster of one master and two workers on two loopback addresses.

All its processes end when the context is left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from horolog.spark.java import find_java

READY_S = 90.0
_PAUSE = threading.Event()  # never set
HOSTS = ("127.0.0.1", "127.0.0.2")
CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings of a session that takes an executor on each worker."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


class Cluster:
    """A running cluster; `url` is the master's, once the context is entered."""

    def __init__(self) -> None:
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="horolog-cluster-")

    def __enter__(self) -> Cluster:
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._start("org.apache.spark.deploy.master.Master", "master", master)
        wait_until(lambda: self._says("master", "I have been elected leader"), READY_S)
        for number, host in enumerate(HOSTS):
            folder = str(Path(self._folder.name) / f"work{number}")
            worker = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            worker += ["--work-dir", folder, self.url]
            self._start("org.apache.spark.deploy.worker.Worker", f"worker{number}", worker)
        for number in range(len(HOSTS)):
            name = f"worker{number}"
            wait_until(lambda name=name: self._says(name, "Successfully registered"), READY_S)
        return self

    def _start(self, name: str, log: str, arguments: list[str]) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (Path(self._folder.name) / log).open("wb") as out:
            started = subprocess.Popen(
                [str(home / "bin" / "spark-class"), name, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(started)

    def _says(self, log: str, text: str) -> bool:
        return text in (Path(self._folder.name) / log).read_text(errors="replace")

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._folder.cleanup()


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_so: Any, seconds: float) -> None:
    """Wait until a condition holds; raise AssertionError after the given time."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "waited too long"
        _PAUSE.wait(0.05)


def driver(script: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a Spark driver in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
