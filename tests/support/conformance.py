"""One suite for all official clients: each behaviour of `conformance_table.py`, written once.

The module of a client has a class that inherits `Conformance` and names the client.
tests/clients/conftest.py gives it the behaviours that the table does not excuse it from, each with
a topic of its own.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest
from drivers import Driver, Refused
from official import INVISIBLE_MS, QUIET_S, Grpc, Official, bodies
from remoting_client import put_group

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

HOUR_MS = 3_600_000
TRANSACTION_MS = 6_000
STORY = (("COMMIT a", "commit"), ("ROLLBACK b", "rollback"), ("COMMIT c", ""), ("ROLLBACK d", ""))
"""Bodies, and what the producer does itself; of the last two it is asked, and answers with their first word."""


class Conformance:
    """The behaviours; `client` is its name in the table, `kind` how the suite talks to it."""

    client = ""
    kind: type[Official] = Grpc

    def test_behaviour(self, behaviour: str, driver: Driver, still: BrokerProcess) -> None:
        one = self.kind(driver, still, tls=behaviour == "tls" or self.client == "java-5.0.3")
        getattr(self, f"show_{behaviour.replace('-', '_')}")(one, f"suite-{behaviour}")

    def test_credentials(
        self, other_driver: Driver, driver: Driver, guarded: BrokerProcess
    ) -> None:
        """Uses two client processes, because the producers of one share a connection and its key."""
        mine, other = "suite-granted", "denied"
        admin = AdminClient(guarded.admin_url.replace("//", "//:of-the-operator@"))
        for name in (mine, other):
            admin.post("/v1/topics", {"name": name, "type": "mixed", "queues": 2})
        tls = self.client == "java-5.0.3"
        app = self.kind(driver, guarded, tls=tls)
        app.key = {"key": "app", "secret": "secret-1"}
        app.producer(mine)
        app.consumer(mine)
        # Some clients compress the long one
        app.send(mine, [{"body": "allowed"}, {"body": "long" * 2_000}])
        app.exactly(f"in-{mine}", ["allowed", "long" * 2_000])
        with pytest.raises(Refused):
            app.driver.ask("send", by=f"out-{mine}", topic=other, messages=[{"body": "denied"}])
        wrong = self.kind(other_driver, guarded, tls=tls)
        wrong.key = {"key": "app", "secret": "secret-2"}
        with pytest.raises(Refused):
            self._send_first(wrong, mine)
        assert sum(admin.get(f"/v1/topics/{mine}")["queue_offsets"]) == 2
        assert sum(admin.get(f"/v1/topics/{other}")["queue_offsets"]) == 0

    def _send_first(self, wrong: Official, topic: str) -> None:
        """Start a producer and send: some clients ask for a route only with the first message."""
        wrong.producer(topic)
        wrong.send(topic, [{"body": "wrong"}])

    # --- sending ----------------------------------------------------------------------------------

    def show_normal(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        wanted = [
            {"body": f"m{i} ü€", "tag": "T", "keys": [f"k{i}", "all"], "properties": {"a": f"{i}"}}
            for i in range(12)
        ]
        one.send(topic, wanted)
        for got in one.exactly(name, [str(each["body"]) for each in wanted]):
            sent = wanted[int(got["properties"]["a"])]
            assert (got["body"], got["tag"]) == (sent["body"], "T")
            assert sorted(got["keys"]) == sorted(sent["keys"])  # some clients keep them as a set
            assert got["attempt"] == 1

    def show_delayed(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="delay", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        due_ms = (one.broker.now_ms() // 1_000 + 3_600) * 1_000
        due = {f"late-{i}": due_ms + one.due_unit_ms * i for i in range(3)}
        one.send(topic, [{"body": body, "due_ms": at_ms} for body, at_ms in due.items()])
        one.broker.advance(due_ms - one.broker.now_ms() - 1)
        one.exactly(name, [])
        one.broker.advance(1)
        one.exactly(name, ["late-0"])
        one.broker.advance(2 * one.due_unit_ms)
        one.exactly(name, list(due))

    def show_fifo(self, one: Official, topic: str) -> None:
        self._in_order(one, topic, ["a1", "b1", "a2", "a3", "b2", "b3"])

    def show_fifo_failure(self, one: Official, topic: str) -> None:
        seen = self._in_order(one, topic, ["fail 1 a1", "b1", "a2", "b2", "fail 2 b3", "a3", "b4"])
        assert Counter(seen)["fail 1 a1"] == 2
        assert Counter(seen)["fail 2 b3"] == 3

    def _in_order(self, one: Official, topic: str, wanted: list[str]) -> list[str]:
        """Send each body to the group that its last word begins with; return all deliveries.

        Failed deliveries are included.
        """
        one.broker.create_topic(topic, type="fifo", queues=2)
        put_group(one.broker.broker_address, f"group-{topic}", consumeMessageOrderly=True)
        one.producer(topic)
        one.send(topic, [{"body": body, "group": body.split()[-1][0]} for body in wanted])
        name = one.consumer(topic, orderly=True)
        times = [int(body.split()[1]) + 1 if body.startswith("fail") else 1 for body in wanted]
        one.wait(name, sum(times), lambda: one.broker.advance(2_000))
        one.driver.quiet(0.5)
        seen = [message["body"] for message in one.taken(name)]
        for group in "ab":
            of_group = [
                body
                for body, count in zip(wanted, times, strict=True)
                for _ in range(count)
                if body.split()[-1][0] == group
            ]
            assert [body for body in seen if body.split()[-1][0] == group] == of_group
        return seen

    def show_transactions(self, one: Official, topic: str) -> None:
        self._begin(one, topic, STORY[:2])
        one.exactly(one.consumer(topic), ["COMMIT a"])
        one.broker.advance(10 * TRANSACTION_MS)
        one.exactly(f"in-{topic}", ["COMMIT a"])

    def show_checks(self, one: Official, topic: str) -> None:
        self._begin(one, topic, STORY[2:])
        name = one.consumer(topic)
        one.exactly(name, [])
        one.broker.advance(TRANSACTION_MS)
        assert one.checked(topic, 2) == ["COMMIT c", "ROLLBACK d"]
        one.wait(name, 1)
        one.exactly(name, ["COMMIT c"])
        assert one.broker.admin.get(f"/v1/topics/{topic}")["open_transactions"] == 0

    def _begin(self, one: Official, topic: str, story: tuple[tuple[str, str], ...]) -> None:
        one.broker.create_topic(topic, type="transaction", queues=2)
        one.producer(topic, checks=True)
        for body, end in story:
            one.transaction(topic, body, end)

    def show_recall(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="delay", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        due_ms = one.broker.now_ms() + HOUR_MS
        kept, gone = one.send(topic, [{"body": b, "due_ms": due_ms} for b in ("kept", "gone")])
        assert one.recall(topic, gone["handle"]) == gone["id"]
        one.broker.advance(HOUR_MS)
        one.exactly(name, ["kept"])
        with pytest.raises(Refused):
            one.recall(topic, kept["handle"])

    # --- consuming --------------------------------------------------------------------------------

    def show_push(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        first, second = ([f"{letter}{i}" for i in range(30)] for letter in "ab")
        one.consumer(topic, name="push-1")
        one.send(topic, [{"body": body} for body in first])
        one.exactly("push-1", first)
        self._until_idle(one, topic)
        one.leave("push-1")
        one.consumer(topic, name="push-2")
        one.send(topic, [{"body": body} for body in second])

        def seen() -> list[str]:  # a poll of the first consumer that is still open may take some
            return bodies(one.taken("push-1") + one.taken("push-2"))

        looks = count(1)

        def end_leases() -> None:
            """Let leases end now and then: a closing consumer's last poll may have taken some messages."""
            if next(looks) % 100 == 0:
                one.broker.advance("2s")

        one.driver.wait("push-2", lambda _: len(seen()) >= 60, end_leases)
        one.driver.quiet(QUIET_S)
        assert seen() == sorted(first + second)

    def show_simple(self, one: Official, topic: str) -> None:
        assert isinstance(one, Grpc)
        one.broker.create_topic(topic, type="normal", queues=1)
        one.producer(topic)
        one.simple(topic, "simple")
        one.send(topic, [{"body": "once"}])
        [first] = one.receive("simple")
        assert not one.receive("simple")
        one.broker.advance(INVISIBLE_MS)
        [second] = one.receive("simple")
        assert (second["id"], second["attempt"]) == (first["id"], 2)
        one.ack("simple", second)
        one.broker.advance(HOUR_MS)
        assert not one.receive("simple")

    def show_pull(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=1)
        one.producer(topic)
        wanted = [f"m{i}" for i in range(50)]
        one.send(topic, [{"body": body} for body in wanted])
        assert one.pull_all(topic) == wanted
        one.send(topic, [{"body": "more"}])
        assert one.pull_all(topic) == ["more"]

    def show_ack(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        one.send(topic, [{"body": f"m{i}"} for i in range(8)])
        wanted = [f"m{i}" for i in range(8)]
        one.exactly(name, wanted)
        self._until_idle(one, topic)
        one.broker.advance(24 * HOUR_MS)
        one.exactly(name, wanted)

    def show_nack(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        one.send(topic, [{"body": "fail 2 x"}, {"body": "fine"}])
        one.wait(name, 4, lambda: one.broker.advance(2_000))
        seen = one.exactly(name, ["fail 2 x"] * 3 + ["fine"])
        assert [m["attempt"] for m in seen if m["body"] != "fine"] == [1, 2, 3]
        self._until_idle(one, topic)
        one.broker.advance(24 * HOUR_MS)
        one.exactly(name, ["fail 2 x"] * 3 + ["fine"])

    def show_dead_letters(self, one: Official, topic: str) -> None:
        group = f"group-{topic}"
        one.broker.create_topic(topic, type="normal", queues=2)
        put_group(one.broker.broker_address, group, retryMaxTimes=2)
        one.producer(topic)
        name = one.consumer(topic, retries=2)
        one.send(topic, [{"body": "fail 99 x"}, {"body": "fine"}])
        letters = f"/v1/groups/{group}/dead-letters"

        def later() -> int:
            return one.broker.advance(10_000)

        one.wait(name, 4, later)
        for _ in range(100):
            if one.broker.admin.get(letters)["waiting"]:
                break
            later()
            one.poll(name)
            one.driver.quiet(0.1)
        assert one.broker.admin.get(letters)["waiting"] == 1
        one.broker.advance(24 * HOUR_MS)
        one.exactly(name, ["fail 99 x"] * 3 + ["fine"])

    def _until_idle(self, one: Official, topic: str) -> None:
        """Wait until all messages are acknowledged; an ack is a request after the delivery."""
        path = f"/v1/topics/{topic}/groups/group-{topic}"
        for _ in range(200):
            if not one.broker.admin.get(path)["waiting"]:
                return
            one.driver.quiet(0.05)
        raise AssertionError(one.broker.admin.get(path))

    # --- filters and the rest ---------------------------------------------------------------------

    def show_tags(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic, filter="Aa || C")
        tags = ["Aa", "BB", "C", "aa", ""] * 3
        sent = [{"body": f"{i} {t}", **({"tag": t} if t else {})} for i, t in enumerate(tags)]
        one.send(topic, sent)
        one.exactly(name, [m["body"] for m in sent if m.get("tag") in ("Aa", "C")])

    def show_several_tags(self, one: Official, topic: str) -> None:
        one.broker.admin.post(
            "/v1/topics", {"name": topic, "type": "normal", "queues": 2, "multi_tag": True}
        )
        one.producer(topic)
        names = [
            one.consumer(topic, name=f"tags-{i}", group=f"tags-{i}", filter=filter)
            for i, filter in enumerate(("red", "green || BB", "*"))
        ]
        tags = ["red,green", "green,Aa", "red,BB", "blue", ""]
        sent = [{"body": f"{t} {i}", **({"tag": t} if t else {})} for i, t in enumerate(tags)]
        one.send(topic, sent)
        for name, wanted in zip(names, ((0, 2), (0, 1, 2), range(5)), strict=True):
            one.exactly(name, [sent[i]["body"] for i in wanted])

    def show_sql(self, one: Official, topic: str) -> None:
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic, filter="price > 10 AND region IN ('eu', 'uk')", sql=True)
        rows = [("eu", "5"), ("eu", "11"), ("us", "12"), ("uk", "12"), ("uk", "10"), ("eu", "")]
        sent: list[dict[str, Any]] = [
            {
                "body": f"{i} {region}",
                "properties": {"region": region} | ({"price": price} if price else {}),
            }
            for i, (region, price) in enumerate(rows)
        ]
        one.send(topic, sent)
        one.exactly(name, ["1 eu", "3 uk"])

    def show_tls(self, one: Official, topic: str) -> None:
        assert one.tls
        one.broker.create_topic(topic, type="normal", queues=2)
        one.producer(topic)
        name = one.consumer(topic)
        one.send(topic, [{"body": f"m{i}"} for i in range(8)])
        assert bodies(one.exactly(name, [f"m{i}" for i in range(8)])) == [f"m{i}" for i in range(8)]
