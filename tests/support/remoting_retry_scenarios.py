"""What every official 4.x client must do when it fails on a message."""

from __future__ import annotations

from drivers import Driver
from remoting_driver import RemotingDriver

from horolog.testing.broker import BrokerProcess

LEVEL_3_MS = 10_000


class RetryScenarios(RemotingDriver):
    """Scenarios for any client with a push consumer."""

    def test_a_failed_message_comes_again_by_the_levels(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "retry")
        name = self.push(driver, still, "retry")
        self.send(driver, "retry", [{"body": "fail 2 x", "tag": "T", "keys": ["k"]}])
        self.exactly(driver, ["fail 2 x"], name)
        still.advance(LEVEL_3_MS - 1)
        self.none_yet(driver, name, 1)
        still.advance(1)
        self.exactly(driver, ["fail 2 x"] * 2, name)
        still.advance(30_000)
        seen = self.exactly(driver, ["fail 2 x"] * 3, name)
        assert [event["retries"] for event in seen] == [0, 1, 2]
        assert {(event["topic"], event["tag"], *event["keys"]) for event in seen} == {
            ("retry", "T", "k")
        }
        still.advance(3_600_000)
        self.none_yet(driver, name, 3)


class DeadLetterScenarios(RetryScenarios):
    """Scenarios for clients that choose how often they retry."""

    def test_after_its_last_attempt_a_message_is_a_dead_letter(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "dead")
        name = self.push(driver, still, "dead", retries=2)
        poor = {"body": "fail 99 x", "tag": "T", "keys": ["k"], "properties": {"a": "1"}}
        self.send(driver, "dead", [poor, {"body": "fine"}])
        self.exactly(driver, ["fail 99 x", "fine"], name)
        for count in (3, 4):
            still.advance(60_000)
            driver.wait(name, lambda found, count=count: len(found) >= count)
        still.advance(7_200_000)
        self.none_yet(driver, name, 4)
        grave = self.push(driver, still, "%DLQ%group-dead", "grave", group="gravedigger")
        [letter] = self.exactly(driver, ["fail 99 x"], grave)
        assert (letter["tag"], letter["keys"]) == ("T", ["k"])
        assert letter["properties"]["a"] == "1"
