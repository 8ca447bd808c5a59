"""The process ring: `kill -9` of the installed broker while it accepts, hands over and acks (P1, P2, P3, P8)."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from horolog.testing.broker import BrokerProcess
from horolog.testing.ring import Budget, run_ring

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("installed")]


def test_4_kills(tmp_path, record_property) -> None:
    record_property("figures", run_ring(4, 1, tmp_path / "data"))


@pytest.mark.slow
def test_kills_for_four_minutes(tmp_path, record_property) -> None:
    """The first of the 200 below; at least forty, so that starts begin from a checkpoint as well."""
    record_property("figures", run_ring(200, 2, tmp_path / "data", budget=Budget(240, 40)))


@pytest.mark.full
@pytest.mark.timeout(2_400)
def test_200_kills(tmp_path, record_property) -> None:
    record_property("figures", run_ring(200, 2, tmp_path / "data"))


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["interval", "os"])
def test_kills_with_a_weaker_flush(tmp_path, record_property, flush) -> None:
    """A kill -9 loses nothing acknowledged by any flush policy; only a power cut could."""
    record_property("figures", run_ring(20, 3, tmp_path / "data", flush))


@pytest.mark.slow
def test_stopped_for_90_seconds(tmp_path) -> None:
    """SIGSTOP, 90 s, SIGCONT: overdue messages at once, in order, once, none early."""
    with BrokerProcess(tmp_path / "data", clock="system") as broker:
        broker.create_topic("t", queues=1)
        start_ms = time.time_ns() // 1_000_000
        due = [start_ms + 2_000 + i * 700 for i in range(130)]
        for i, at in enumerate(due):
            broker.admin.post("/v1/messages", {"topic": "t", "body": str(i), "deliver_at_ms": at})
        broker.admin.get("/v1/broker")
        stopped = threading.Event()
        import os

        os.kill(broker.pid, signal.SIGSTOP)
        stopped.wait(90)
        os.kill(broker.pid, signal.SIGCONT)
        got = []
        while len(got) < len(due):
            answer = broker.admin.post(
                "/v1/receive", {"topic": "t", "group": "g", "limit": 32, "poll_ms": 10_000}
            )
            assert answer["messages"], f"{len(got)} of {len(due)} came"
            got += answer["messages"]
        assert [int(m["body"]) for m in got] == list(range(len(due)))
        for message, at in zip(got, due, strict=True):
            assert message["store_ms"] >= at
        assert broker.pending() == 0
