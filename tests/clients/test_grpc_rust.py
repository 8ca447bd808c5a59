"""The scenarios of 5.x clients with the official client of Rust, which compiles for minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, rust
from grpc_scenarios import SimpleScenarios, bodies
from official import Polling

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.full]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with rust(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients of a process have nothing in common."""
    return driver


class Seconds(Polling):
    """Its due times are whole seconds."""

    due_unit_ms = 1_000


class TestRust(Conformance, SimpleScenarios):
    """Version 5.0.0: producers and simple consumers; due times are whole seconds."""

    client = "rust"
    kind = Seconds
    due_unit_ms = 1_000

    def test_a_batch_is_one_request_and_its_messages_may_be_due(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "batch", "mixed")
        self.simple(driver, still, "batch")
        due_ms = (still.now_ms() // 1_000 + 60) * 1_000
        late = [{"body": f"late-{i}", "due_ms": due_ms} for i in range(10)]
        now = [{"body": f"now-{i}"} for i in range(10)]
        receipts = self.send(driver, "batch", now + late, batch=True)
        assert len({receipt["id"] for receipt in receipts}) == 20
        got = self.receive_all(driver, "batch", 10)
        assert bodies(got) == bodies(now)
        self.ack(driver, "batch", got)
        still.advance(due_ms - still.now_ms())
        assert bodies(self.receive_all(driver, "batch", 10)) == bodies(late)
