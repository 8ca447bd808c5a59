"""Faults of a real cluster, of the broker and of the driver: exactly the rows, once, every time.

One of each class of fault is slow, its twins are full.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import sink_job
from admin_proxy import AdminProxy
from cluster import driver
from received import bodies

pytestmark = [pytest.mark.slow, pytest.mark.process]

SCRIPT = Path(sink_job.__file__)
COMMIT = "/v1/adoptions/commit"
EXPECTED = sorted(f"m{i}" for i in range(sink_job.ROWS))
JOB_S = 150


@pytest.fixture(autouse=True)
def topic(broker) -> None:
    broker.create_topic("t")


def job(cluster, broker, url, folder, fault="none", way="batch"):
    arguments = (cluster.url, url, "job", str(broker.now_ms()), str(folder), fault, way)
    return driver(SCRIPT, *arguments)


def ends_well(running) -> None:
    try:
        out, err = running.communicate(timeout=JOB_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert (running.returncode, out) == (0, "begun\nwritten\n"), err[-3_000:]


def exactly_the_rows(broker) -> None:
    assert broker.pending("t") == sink_job.ROWS
    broker.advance("2h")
    assert sorted(bodies(broker, "t")) == EXPECTED


@pytest.mark.parametrize(
    ("fault", "way"),
    [
        ("executor", "batch"),
        pytest.param("executor", "load", marks=pytest.mark.full),
        ("speculative", "batch"),
    ],
)
def test_tasks_that_run_again(cluster, broker, tmp_path, fault, way) -> None:
    ends_well(job(cluster, broker, broker.admin_url, tmp_path, fault, way))
    assert (tmp_path / "happened").exists()
    exactly_the_rows(broker)


def test_the_broker_is_killed_between_staging_and_commit(cluster, broker, tmp_path) -> None:
    commits = []

    def hook(path, forward):
        if path == COMMIT:
            commits.append(path)
            if len(commits) == 1:
                broker.kill()
                broker.start()
                return None
        return forward()

    with AdminProxy(broker.admin_url, hook) as proxy:
        ends_well(job(cluster, broker, proxy.url, tmp_path))
    assert len(commits) == 2
    exactly_the_rows(broker)


@pytest.mark.full
def test_the_reply_of_the_commit_is_lost(cluster, broker, tmp_path) -> None:
    commits = []

    def hook(path, forward):
        if path == COMMIT:
            answer = forward()
            commits.append(answer)
            return None if len(commits) == 1 else answer
        return forward()

    with AdminProxy(broker.admin_url, hook) as proxy:
        ends_well(job(cluster, broker, proxy.url, tmp_path))
    assert [status for status, _ in commits] == [200, 200]
    exactly_the_rows(broker)


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.full)])
def test_the_driver_is_killed_at_the_commit(cluster, broker, tmp_path, when) -> None:
    running = []

    def hook(path, forward):
        if path != COMMIT or not running:
            return forward()
        if when == "after":
            forward()
        os.killpg(running.pop().pid, signal.SIGKILL)
        return None

    with AdminProxy(broker.admin_url, hook) as proxy:
        first = job(cluster, broker, proxy.url, tmp_path)
        running.append(first)
        first.communicate(timeout=JOB_S)
        assert first.returncode == -signal.SIGKILL
        assert broker.pending("t") == (sink_job.ROWS if when == "after" else 0)
        ends_well(job(cluster, broker, proxy.url, tmp_path))
    exactly_the_rows(broker)
