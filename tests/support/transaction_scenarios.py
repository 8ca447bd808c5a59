"""What official clients must see of transactions: committed, rolled back, and asked what became of them.

When a client is asked, the first word of the body is what it answers.
"""

from __future__ import annotations

from typing import Any

from drivers import Driver
from grpc_scenarios import GrpcClient, bodies
from remoting_driver import RemotingDriver

from horolog.testing.broker import BrokerProcess

TIMEOUT_MS = 6_000
STORY = (("COMMIT a", "commit"), ("ROLLBACK b", "rollback"), ("COMMIT c", ""), ("ROLLBACK d", ""))
"""Bodies, and what the producer does itself; the last two are asked for."""


def checked(driver: Driver, broker: BrokerProcess, name: str) -> list[dict[str, Any]]:
    """Let time pass until the producer is asked of the two transactions that did not end."""
    broker.advance(TIMEOUT_MS)
    found = driver.wait(name, lambda events: len(events) >= 2)
    assert bodies(found) == ["COMMIT c", "ROLLBACK d"]
    return found


def until_over(driver: Driver, broker: BrokerProcess, topic: str, name: str) -> None:
    """A client's answer is a request of its own: wait until both have come."""

    def is_over(_: object) -> bool:
        return not broker.admin.get(f"/v1/topics/{topic}")["open_transactions"]

    driver.wait(name, is_over)


class GrpcTransactions(GrpcClient):
    """For 5.x clients."""

    def test_transactions_end_as_the_producer_or_its_checker_says(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        topic, out = "trades", "out-trades"
        still.create_topic(topic, type="transaction", queues=2)
        driver.ask("producer", topic=topic, checks=True, **self.at(still, out))
        self.simple(driver, still, topic)
        for body, end in STORY:
            driver.ask("transaction", by=out, topic=topic, message={"body": body}, end=end)
        got = self.receive_all(driver, topic, 1)
        self.ack(driver, topic, got)
        assert bodies(got) == ["COMMIT a"]
        assert self.none_left(driver, topic)
        checked(driver, still, out)
        until_over(driver, still, topic, out)
        got = self.receive_all(driver, topic, 1)
        self.ack(driver, topic, got)
        assert bodies(got) == ["COMMIT c"]
        still.advance(10 * TIMEOUT_MS)
        assert self.none_left(driver, topic)


class RemotingTransactions(RemotingDriver):
    """For 4.x clients."""

    def test_transactions_end_as_the_producer_or_its_listener_says(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        topic, out = "trades", "out-trades"
        self.producer(driver, still, topic, checks=True)
        name = self.push(driver, still, topic)
        for body, end in STORY:
            driver.ask("transaction", by=out, topic=topic, message={"body": body}, end=end)
        self.exactly(driver, ["COMMIT a"], name)
        for event in checked(driver, still, out):
            assert event["properties"]["TRANSACTION_CHECK_TIMES"] == "1"
        until_over(driver, still, topic, out)
        self.exactly(driver, ["COMMIT a", "COMMIT c"], name)
