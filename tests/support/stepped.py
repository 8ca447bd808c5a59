"""A job in a process group of its own that prints each step, and continues on request."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LINE_S = 150.0
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_LIFE = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of a session that is killed before compiling pays: half of the work to get ready."""


class Stepped:
    """A run of `script` that is let on step by step; leaving the context kills all its processes."""

    def __init__(self, script: Path, *arguments: str) -> None:
        # A killed job cleans nothing up.
        self._folder = tempfile.TemporaryDirectory("-job", "horolog-", ignore_cleanup_errors=True)
        place = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), self._folder.name)
        place["SPARK_SUBMIT_OPTS"] = f"-Djava.io.tmpdir={self._folder.name}"  # of the JVM
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the job
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **place},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")

    def next_line(self) -> str:
        """Return the next line that the job prints, or "" at its end.  It waits after each, for `go`.

        Raise AssertionError if none comes within LINE_S.
        """
        try:
            return self._lines.get(timeout=LINE_S)
        except queue.Empty:
            raise AssertionError(f"no line within {LINE_S:g} s\n{self.stderr()}") from None

    def go(self) -> None:
        """Let the job continue."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def until(self, wanted: str, at: Callable[[str], None] = lambda line: None) -> list[str]:
        """Let the job continue up to the line that begins or ends with `wanted`.

        Return all lines; each is passed to `at`.
        """
        lines = []
        while True:
            line = self.next_line()
            assert line, f"ended before {wanted!r}; printed {lines}\n{self.stderr()}"
            lines.append(line)
            at(line)
            if line.startswith(wanted) or line.endswith(wanted):
                return lines
            self.go()

    def finish(self) -> int:
        """Let the job go on to its end, without another line; return its exit code."""
        self.go()
        assert self.next_line() == ""
        return self._process.wait(LINE_S)

    def kill(self) -> None:
        """Send SIGKILL to driver and JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stderr(self) -> str:
        """Return the end of the job's stderr."""
        self._errors.seek(0)
        return self._errors.read()[-3_000:]

    def __enter__(self) -> Stepped:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with suppress(OSError):
                stream.close()
        self._folder.cleanup()
