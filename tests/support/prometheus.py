"""A real Prometheus on a free port of 127.0.0.1, and promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from cluster import free_port

RULES = resources.files("horolog.metrics") / "horolog.rules.yml"
_LOOK_S = 0.1
_DEADLINE_S = 40.0
Sample = dict[str, Any]  # "metric": labels, "value": float


def tool(name: str) -> str:
    """Return the path of a program."""
    path = shutil.which(name)
    assert path is not None, "these tests need Prometheus: make page-tools"
    return path


def promtool(*arguments: str, stdin: bytes = b"") -> str:
    """Return the output of promtool; raise AssertionError if it fails."""
    done = subprocess.run(
        [tool("promtool"), *arguments], check=False, input=stdin, capture_output=True
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def hurried(rules: str) -> str:
    """Return the rules for a test that cannot wait: no `for`, and each looks back over one minute.

    A shorter range would miss the samples: a counter rises between two scrapes that are seconds
    apart when the broker is paused or the machine is slow, and both must be in the range.
    """
    rules = re.sub(r"\[\d+[mh]\]", "[1m]", rules)
    return re.sub(r"^( +for:) \d+m$", r"\1 0s", rules, flags=re.MULTILINE)


class Prometheus:
    """A Prometheus that scrapes brokers under the job name "horolog", and evaluates rules.

    It does both twice a second.
    """

    def __init__(self, directory: Path, targets: Sequence[str], rules: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "horolog.rules.yml").write_text(rules)
        scrape = {"job_name": "horolog", "static_configs": [{"targets": list(targets)}]}
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["horolog.rules.yml"],
            "scrape_configs": [scrape | {"scrape_timeout": "500ms"}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._directory = directory
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Prometheus:
        self._log = (self._directory / "log").open("wb")
        self._process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={self._directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        self._until(self._is_ready, "ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready") as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            assert self._process.poll() is None, (self._directory / "log").read_text()
            return False

    @staticmethod
    def _until(is_so: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _DEADLINE_S
        never = threading.Event()
        while not (found := is_so()):
            assert time.monotonic() < deadline, f"not in time: {what}"
            never.wait(_LOOK_S)
        return found

    def ask(self, path: str) -> Any:
        """Return an answer of its API."""
        with urlopen(f"{self.url}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Sample]:
        """Return the series of an expression now."""
        found = self.ask(f"query?query={quote(expression)}")["result"]
        return [{"metric": each["metric"], "value": float(each["value"][1])} for each in found]

    def until(self, expression: str) -> list[Sample]:
        """Wait until an expression has series, and return them."""
        found: list[Sample] = self._until(lambda: self.query(expression), expression)
        return found

    def until_fires(self, alert: str) -> Sample:
        """Wait until an alert of that name fires, and return the first one."""
        return self.until(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')[0]
