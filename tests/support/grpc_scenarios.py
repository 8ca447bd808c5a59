"""What official 5.x clients must do beyond the suite (`conformance.py`).

The tests of a client are a subclass of `GrpcScenarios`. Its module provides the fixture `driver`,
one client process for all its tests; tests/clients/conftest.py provides the brokers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from drivers import Driver, Refused
from remoting_client import put_group

from horolog.testing.broker import BrokerProcess

INVISIBLE_MS = 30_000
AWAIT_MS = 1_000


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in messages)


class GrpcClient:
    """The requests to a client; a subclass says which it supports."""

    tls = False
    due_unit_ms = 1

    # --- requests to the client -------------------------------------------------------------------

    def at(self, broker: BrokerProcess, name: str) -> dict[str, Any]:
        return {"name": name, "endpoint": broker.grpc_endpoint, "tls": self.tls}

    def is_idle(self, broker: BrokerProcess, name: str = "push") -> bool:
        """Return whether the group of a topic of that name has consumed everything."""
        return not broker.admin.get(f"/v1/topics/{name}/groups/{name}")["waiting"]

    def producer(self, driver: Driver, broker: BrokerProcess, topic: str, kind: str) -> None:
        broker.create_topic(topic, type=kind, queues=2)
        driver.ask("producer", topic=topic, **self.at(broker, f"out-{topic}"))

    def simple(self, driver: Driver, broker: BrokerProcess, topic: str, filter: str = "*") -> None:
        driver.ask(
            "simple",
            topic=topic,
            group=f"group-{topic}",
            filter=filter,
            await_ms=AWAIT_MS,
            **self.at(broker, f"in-{topic}"),
        )

    def send(
        self, driver: Driver, topic: str, messages: list[dict[str, Any]], **how: Any
    ) -> list[Any]:
        return driver.ask("send", by=f"out-{topic}", topic=topic, messages=messages, **how)

    def receive(self, driver: Driver, topic: str) -> list[dict[str, Any]]:
        return driver.ask("receive", by=f"in-{topic}", max=32, invisible_ms=INVISIBLE_MS)

    def receive_all(self, driver: Driver, topic: str, want: int) -> list[dict[str, Any]]:
        """Poll until `want` messages are there; the caller asserts that there are no more."""
        found: list[dict[str, Any]] = []
        for _ in range(20):
            found += self.receive(driver, topic)
            if len(found) >= want:
                break
        return found

    def none_left(self, driver: Driver, topic: str) -> bool:
        """Return whether two polls get nothing; clients ask one of the two queues at a time."""
        return not self.receive(driver, topic) and not self.receive(driver, topic)

    def ack(self, driver: Driver, topic: str, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            driver.ask("ack", by=f"in-{topic}", token=message["token"])


class SimpleScenarios(GrpcClient):
    """For any client with a producer and a simple consumer."""

    def test_what_is_sent_is_received_whole_and_acknowledged_once(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "whole", "normal")
        self.simple(driver, still, "whole")
        wanted = [
            {"body": f"m{i} ü€", "tag": "T", "keys": [f"k{i}", "all"], "properties": {"a": f"{i}"}}
            for i in range(12)
        ]
        ids = [receipt["id"] for receipt in self.send(driver, "whole", wanted)]
        got = self.receive_all(driver, "whole", 12)
        assert sorted(message["id"] for message in got) == sorted(ids)
        assert {m["attempt"] for m in got} == {1}
        names = ("body", "tag", "keys", "properties")
        shown = [{name: message[name] for name in names} for message in got]
        assert sorted(shown, key=str) == sorted(wanted, key=str)
        self.ack(driver, "whole", got)
        still.advance(INVISIBLE_MS + 1_000)
        assert self.none_left(driver, "whole")

    def test_a_delayed_message_comes_at_its_millisecond_and_not_before(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "later", "delay")
        self.simple(driver, still, "later")
        unit_ms = self.due_unit_ms
        due_ms = (still.now_ms() // 1_000 + 3_600) * 1_000
        due = {f"late-{i}": due_ms + unit_ms * i for i in range(5)}
        sent = [{"body": body, "due_ms": at_ms} for body, at_ms in due.items()]
        self.send(driver, "later", sent)
        still.advance(due_ms - still.now_ms() - 1)
        assert self.none_left(driver, "later")
        still.advance(1)
        first = self.receive_all(driver, "later", 1)
        assert bodies(first) == ["late-0"]
        still.advance(4 * unit_ms)
        rest = self.receive_all(driver, "later", 4)
        assert bodies(rest) == [f"late-{i}" for i in range(1, 5)]
        assert {m["body"]: m["due_ms"] for m in first + rest} == due
        self.ack(driver, "later", first + rest)

    def test_bad_input_is_refused_with_the_brokers_sentence(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        with pytest.raises(Refused):  # not every client passes on the reason
            driver.ask("producer", topic="nowhere", **self.at(still, "out-nowhere"))
        self.producer(driver, still, "typed", "normal")
        with pytest.raises(Refused):
            self.send(driver, "typed", [{"body": "late", "due_ms": still.now_ms() + 60_000}])
        self.send(driver, "typed", [{"body": "fine"}])
        self.simple(driver, still, "typed")
        with pytest.raises(Refused, match="invisibleTime is too small"):
            driver.ask("receive", by="in-typed", max=1, invisible_ms=1_000)
        assert bodies(self.receive_all(driver, "typed", 1)) == ["fine"]


class GrpcScenarios(SimpleScenarios):
    """For clients that change invisible durations and have push consumers."""

    def test_a_change_hides_a_message_and_gives_it_again(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "change", "normal")
        self.simple(driver, still, "change")
        self.send(driver, "change", [{"body": "again"}])
        [first] = self.receive_all(driver, "change", 1)
        driver.ask("change", by="in-change", token=first["token"], invisible_ms=60_000)
        still.advance(59_999)
        assert self.none_left(driver, "change")
        still.advance(1)
        [second] = self.receive_all(driver, "change", 1)
        assert (first["attempt"], second["attempt"]) == (1, 2)
        assert first["id"] == second["id"]
        self.ack(driver, "change", [second])
        still.advance(INVISIBLE_MS + 1_000)
        assert self.none_left(driver, "change")

    def test_a_message_group_is_consumed_in_order(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        put_group(still.broker_address, "group-steps", consumeMessageOrderly=True)
        self.producer(driver, still, "steps", "fifo")
        self.simple(driver, still, "steps")
        names = ["a1", "b1", "a2", "b2", "a3", "b3"]
        self.send(driver, "steps", [{"body": name, "group": name[0]} for name in names])
        ask = {"by": "in-steps", "max": 1, "invisible_ms": INVISIBLE_MS}
        [first] = driver.ask("receive", **ask)
        group, other = first["body"][0], {"a": "b", "b": "a"}[first["body"][0]]
        assert first["body"] == f"{group}1"
        rest = self.receive_all(driver, "steps", 3)
        assert [each["body"] for each in rest] == [f"{other}{n}" for n in (1, 2, 3)]
        assert self.none_left(driver, "steps"), "both groups are blocked"
        self.ack(driver, "steps", rest)
        still.advance(INVISIBLE_MS)
        again = self.receive_all(driver, "steps", 3)
        assert [each["body"] for each in again] == [f"{group}{n}" for n in (1, 2, 3)]
        assert [each["attempt"] for each in again] == [2, 1, 1]
        self.ack(driver, "steps", again)
        assert self.none_left(driver, "steps")

    def test_a_push_consumer_gets_each_message_once_and_failed_ones_again(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "push", "mixed")
        driver.ask("push", topic="push", group="push", filter="*", **self.at(still, "push"))
        due_ms = still.now_ms() + 3_600_000
        now = [{"body": f"now-{i}"} for i in range(40)]
        late = [{"body": f"late-{i}", "due_ms": due_ms} for i in range(20)]
        poor = [{"body": f"fail 2 {i}"} for i in range(3)]
        self.send(driver, "push", now + late + poor, **{"async": True})
        want = len(now) + 3 * len(poor)

        def let_pauses_end() -> None:
            still.advance(5_000)

        before = driver.wait("push", lambda seen: len(seen) >= want, let_pauses_end)
        # Acks come after the listener: if the clock jumped, they would come after the lease.
        driver.wait("push", lambda _: self.is_idle(still))
        assert not [event for event in before if event["body"].startswith("late")]
        still.advance(max(0, due_ms - still.now_ms()))
        driver.wait("push", lambda seen: len(seen) >= want + len(late) and self.is_idle(still))
        still.advance(600_000)
        driver.quiet(2)
        counts = Counter(event["body"] for event in driver.events("push"))
        wanted = Counter([m["body"] for m in now + late] + 3 * [m["body"] for m in poor])
        assert counts == wanted, (counts - wanted, wanted - counts)
        driver.start("close", name="push")  # some clients end their poll first, and take 20 s

    def test_due_times_by_the_machines_clock_are_never_early(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "timed", "delay")
        driver.ask("push", topic="timed", group="timed", filter="*", **self.at(running, "timed"))
        base_ms = running.now_ms() + 2_000
        due = {f"{i}": base_ms + 7 * i for i in range(200)}
        messages = [{"body": body, "due_ms": at_ms} for body, at_ms in due.items()]
        self.send(driver, "timed", messages, **{"async": True})
        driver.wait("timed", lambda seen: len(seen) >= len(due))
        driver.quiet(1)
        seen = driver.events("timed")
        assert bodies(seen) == sorted(due)
        early = [event for event in seen if event["at_ms"] < due[event["body"]]]
        assert not early
        driver.start("close", name="timed")

    def test_two_push_consumers_of_a_group_share_and_one_takes_over(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "share", "normal")
        for name in ("share-1", "share-2"):
            driver.ask("push", topic="share", group="share", filter="*", **self.at(running, name))
        first = [{"body": f"a{i}"} for i in range(100)]
        self.send(driver, "share", first, **{"async": True})

        def of(name: str) -> Counter[str]:
            return Counter(event["body"] for event in driver.events(name))

        def seen() -> set[str]:
            return {*of("share-1"), *of("share-2")}

        driver.wait("share-1", lambda _: len(seen()) >= 100 and self.is_idle(running, "share"))
        driver.start("close", name="share-1")
        self.send(driver, "share", [{"body": f"b{i}"} for i in range(50)], **{"async": True})
        # The last poll of the other consumer may take some.
        driver.wait("share-2", lambda _: len(seen()) >= 150 and self.is_idle(running, "share"))
        driver.quiet(1)
        again = of("share-1") & of("share-2")
        assert of("share-1") + of("share-2") - again == Counter(
            [f"a{i}" for i in range(100)] + [f"b{i}" for i in range(50)]
        )
        # Messages that a client takes while it closes come again if it ends before the ack, as Java 5.0.3 does.
        assert all(body.startswith("b") for body in again), again
        driver.start("close", name="share-2")
