"""What the official Java clients of 4.x must do beyond `RemotingScenarios`.

Pulls, look-ups, dead letters, resets.
"""

from __future__ import annotations

from typing import Any

import pytest
from cluster import wait_until
from drivers import Driver, Refused
from remoting_scenarios import RemotingScenarios

from horolog.testing.broker import BrokerProcess

BROKER = "broker-a"


class JavaScenarios(RemotingScenarios):
    """Scenarios for clients with asynchronous sends, pull consumers and look-ups."""

    def queue(self, topic: str, number: int = 0) -> dict[str, Any]:
        return {"topic": topic, "broker": BROKER, "queue": number}

    def test_asynchronous_sends_each_have_their_answer(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "async")
        name = self.push(driver, running, "async")
        wanted = [f"m{i}" for i in range(200)]
        sent = self.send(driver, "async", [{"body": body} for body in wanted], how="async")
        seen = self.exactly(driver, wanted, name)
        assert {receipt["status"] for receipt in sent} == {"SEND_OK"}
        assert {(r["queue"], r["offset"], r["id"]) for r in sent} == {
            (e["queue"], e["offset"], e["id"]) for e in seen
        }

    def test_a_message_object_that_is_sent_again_is_another_message(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "resent")
        name = self.push(driver, running, "resent")
        sent = self.send(driver, "resent", [{"body": "one object"}], how="again", times=50)
        assert len({receipt["id"] for receipt in sent}) == 1
        self.exactly(driver, ["one object"] * 50, name)

    def test_pulls_say_where_a_queue_begins_and_ends(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "pull", queues=1)
        at_ms = running.now_ms()
        messages = [{"body": f"m{i}", "tag": "AB"[i % 2]} for i in range(50)]
        self.send(driver, "pull", messages)
        asked = {"group": "pull", "topic": "pull", **self.at(running, "pull")}
        assert driver.ask("pull", **asked) == [0]

        def pull(offset: int, filter: str = "*", most: int = 32) -> dict[str, Any]:
            return driver.ask(
                "pulled", by="pull", offset=offset, filter=filter, max=most, **self.queue("pull")
            )

        first = pull(0)
        assert [m["body"] for m in first["messages"]] == [f"m{i}" for i in range(32)]
        assert [m["offset"] for m in first["messages"]] == list(range(32))
        assert (first["status"], first["next"], first["least"], first["end"]) == (
            "FOUND",
            32,
            0,
            50,
        )
        odd = pull(1, "B", 10)
        assert [m["body"] for m in odd["messages"]] == [f"m{i}" for i in range(1, 20, 2)]
        assert pull(50)["status"] == "NO_NEW_MSG"
        beyond = pull(60)
        assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 50)
        assert pull(0, "C")["status"] == "NO_MATCHED_MSG"
        [queue] = driver.ask("queues", by="out-pull", topic="pull", time_ms=at_ms)
        assert (queue["least"], queue["next"], queue["at_time"]) == (0, 50, 0)
        [queue] = driver.ask("queues", by="out-pull", topic="pull", time_ms=at_ms + 3_600_000)
        assert queue["at_time"] == 50

    def poll_all(self, driver: Driver, by: str, want: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(60):
            found += driver.ask("poll", by=by, wait_ms=500)
            if len(found) >= want:
                break
        return found

    def test_a_lite_pull_consumer_commits_seeks_and_goes_on(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "lite", queues=1)
        self.send(driver, "lite", [{"body": f"m{i}"} for i in range(20)])
        asked = {"group": "lite", "topic": "lite", "filter": "*", "auto": False}
        driver.ask("lite", **asked, **self.at(running, "lite-1"))
        first = self.poll_all(driver, "lite-1", 20)
        assert [m["body"] for m in first] == [f"m{i}" for i in range(20)]
        driver.ask("commit", by="lite-1")
        driver.ask("seek", by="lite-1", offset=15, **self.queue("lite"))
        again = self.poll_all(driver, "lite-1", 5)
        assert [m["body"] for m in again] == [f"m{i}" for i in range(15, 20)]
        driver.ask("close", name="lite-1")
        self.send(driver, "lite", [{"body": "more"}])
        driver.ask("lite", **asked, **self.at(running, "lite-2"))
        assert [m["body"] for m in self.poll_all(driver, "lite-2", 1)] == ["more"]
        assert driver.ask("committed", by="lite-2", **self.queue("lite")) == 20

    def test_a_lite_pull_consumer_of_assigned_queues(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "assign")
        self.send(driver, "assign", [{"body": f"m{i}"} for i in range(20)])
        asked = {"group": "assign", "topic": "assign", "auto": True, "assign": True}
        driver.ask("lite", **asked, **self.at(running, "assign"))
        found = self.poll_all(driver, "assign", 20)
        assert sorted(m["body"] for m in found) == sorted(f"m{i}" for i in range(20))

    def test_a_request_gets_the_reply_of_whoever_consumes_it(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "ask")
        self.producer(driver, running, "answer")
        self.push(driver, running, "ask")
        for number in range(3):
            body = f"ask out-answer {number}"
            reply = driver.ask("request", by="out-ask", topic="ask", body=body)
            assert reply == f"reply to {number}" * 1_000
        asked = {"topic": "answer", "body": "nobody is here", "wait_ms": 500}
        with pytest.raises(Refused, match="wait reply message timeout"):
            driver.ask("request", by="out-ask", **asked)

    def test_consumers_go_on_soon_after_a_planned_restart(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Before their heartbeats, of which Java 4.x sends one in 30 s; its pulls wait as long."""
        self.producer(driver, running, "planned", queues=1)
        name = self.push(driver, running, "planned")
        self.send(driver, "planned", [{"body": "before"}])
        self.exactly(driver, ["before"], name)
        due_ms = running.now_ms() + 1_000
        reserved = {"TIMER_DELIVER_MS": str(due_ms)}
        self.send(driver, "planned", [{"body": "after", "reserved": reserved}])
        running.stop()
        running.restart()
        seen = self.exactly(driver, ["before", "after"], name)
        assert seen[-1]["at_ms"] - due_ms < 15_000

    def test_messages_are_found_by_id_and_by_key(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "find")
        sent = self.send(
            driver, "find", [{"body": f"m{i}", "keys": [f"k{i}", "all"]} for i in range(10)]
        )
        around = {"from_ms": running.now_ms() - 60_000, "to_ms": running.now_ms() + 60_000}
        for name in ("offset_id", "id"):
            found = driver.ask("view", by="out-find", topic="find", message=sent[3][name])
            assert (found["body"], found["offset"]) == ("m3", sent[3]["offset"])
        [found] = driver.ask("query", by="out-find", topic="find", key="k7", **around)
        assert found["body"] == "m7"
        found = driver.ask("query", by="out-find", topic="find", key="all", **around)
        assert sorted(m["body"] for m in found) == [f"m{i}" for i in range(10)]
        with pytest.raises(Refused, match="MQClientException"):
            driver.ask("query", by="out-find", topic="find", key="none", **around)

    def test_a_failing_message_holds_its_queue_of_an_orderly_consumer(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """In a FIFO topic, whose messages have a message group, and go where a queue selector says."""
        self.producer(driver, running, "held", queues=2, kind="fifo")
        steps = {"properties": {"__SHARDINGKEY": "order-17"}}
        messages = [{"body": body, **steps} for body in ("a", "fail 2 b", "c", "d")]
        self.send(driver, "held", messages, how="queue", queue=1)
        name = self.push(driver, running, "held", orderly=True)
        seen = self.exactly(driver, ["a", *["fail 2 b"] * 3, "c", "d"], name)
        assert [e["body"] for e in seen] == ["a", *["fail 2 b"] * 3, "c", "d"]

    def test_consumers_go_on_when_the_broker_comes_again(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "killed")
        name = self.push(driver, running, "killed")
        first, second = ([f"{letter}{i}" for i in range(20)] for letter in "ab")
        self.send(driver, "killed", [{"body": body} for body in first])
        self.exactly(driver, first, name)
        driver.ask("close", name=name)  # closing commits its offsets, and waits for no answer
        progress = "/v1/topics/killed/groups/group-killed"
        wait_until(lambda: running.admin.get(progress)["waiting"] == 0, 10)
        running.kill()
        running.restart()
        self.push(driver, running, "killed", "killed-2")
        self.send(driver, "killed", [{"body": body} for body in second])
        self.exactly(driver, second, "killed-2")

    def test_tls_and_plaintext_share_the_ports(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "tls", tls=True)
        hidden = self.push(driver, running, "tls", tls=True)
        plain = self.push(driver, running, "tls", "plain", group="plain")
        wanted = [f"m{i}" for i in range(20)]
        self.send(driver, "tls", [{"body": body} for body in wanted])
        for name in (hidden, plain):
            self.exactly(driver, wanted, name)
