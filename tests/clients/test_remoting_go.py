"""The scenarios of 4.x clients with the official client of Go, and what is its own."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from access_files import ACCESS, access_file
from conformance import Conformance
from drivers import CONTAINED, Driver, Refused, go_remoting
from official import Remoting
from remoting_retry_scenarios import DeadLetterScenarios
from remoting_scenarios import RemotingScenarios

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]
FIRST = {"from": "CONSUME_FROM_FIRST_OFFSET"}
TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with go_remoting(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients with instance names of their own have nothing in common."""
    return driver


class TestGo(Conformance, RemotingScenarios, DeadLetterScenarios):
    """The newest release."""

    client = "go-4.x"
    kind = Remoting

    def pull(
        self, driver: Driver, broker: BrokerProcess, topic: str, name: str, **more: Any
    ) -> None:
        asked = {"group": f"group-{name}", "topic": topic, "filter": "*", **FIRST, **more}
        driver.ask("pull", **asked, **self.at(broker, name))

    def polled(self, driver: Driver, by: str, want: int, **how: Any) -> list[str]:
        found: list[str] = []
        for _ in range(60):
            found += [m["body"] for m in driver.ask("poll", by=by, wait_ms=500, **how)]
            if len(found) >= want:
                break
        return sorted(found)

    def test_asynchronous_sends_and_sharding_keys(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "async")
        name = self.push(driver, running, "async")
        messages = [{"body": f"m{i}", "sharding": f"s{i % 5}"} for i in range(200)]
        sent = self.send(driver, "async", messages, how="async")
        seen = self.exactly(driver, [m["body"] for m in messages], name)
        assert {(r["queue"], r["offset"], r["id"]) for r in sent} == {
            (e["queue"], e["offset"], e["id"]) for e in seen
        }
        for key in range(5):
            assert len({r["queue"] for r in sent[key::5]}) == 1

    def test_a_pull_consumer_polls_what_comes_and_what_it_failed_on(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        """It asks for no message at a time, and official brokers give it one."""
        self.producer(driver, still, "poll")
        wanted = [f"m{i}" for i in range(20)]
        self.send(driver, "poll", [{"body": body} for body in wanted])
        self.pull(driver, still, "poll", "polls", retries=2)  # of itself it says 0
        assert self.polled(driver, "polls", 20) == sorted(wanted)
        self.send(driver, "poll", [{"body": "again"}])
        assert self.polled(driver, "polls", 1, how="fail") == ["again"]
        still.advance(10_000)
        assert self.polled(driver, "polls", 1) == ["again"]

    def test_a_pull_consumer_goes_on_where_it_said(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "goes", queues=1)
        self.send(driver, "goes", [{"body": f"m{i}", "tag": "AB"[i % 2]} for i in range(10)])
        self.pull(driver, running, "goes", "goes-1")
        first = driver.ask("pulled", by="goes-1", topic="goes", offset=0, max=4)
        assert [m["body"] for m in first["messages"]] == [f"m{i}" for i in range(4)]
        assert (first["status"], first["next"], first["least"], first["end"]) == ("FOUND", 4, 0, 10)
        assert self.polled(driver, "goes-1", 10) == [f"m{i}" for i in range(10)]
        assert driver.ask("persist", by="goes-1", topic="goes") == 10
        driver.ask("close", name="goes-1")
        path = "/v1/topics/goes/groups/group-goes-1"
        assert running.admin.get(path)["queues"][0]["ack_floor"] == 10

    def test_a_request_gets_a_reply_also_an_empty_one(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "ask")
        self.producer(driver, running, "answer")
        self.push(driver, running, "ask")
        self.send(driver, "ask", [{"body": "now it knows a broker"}])
        for word in ("once", "twice", "empty"):
            asked = {"topic": "ask", "body": f"ask out-answer {word}", "wait_ms": 5_000}
            for _ in range(10):  # brokers learn of a producer of this client after a second
                try:
                    reply = driver.ask("request", by="out-ask", **asked)
                    break
                except Refused as late:
                    assert "wait reply message timeout" in str(late)
            assert reply == ("" if word == "empty" else f"reply to {word}")

    def test_a_suspended_consumer_takes_nothing_until_it_is_resumed(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "pause", queues=1)
        name = self.push(driver, running, "pause")
        self.send(driver, "pause", [{"body": "first"}])
        driver.wait(name, bool)
        driver.ask("suspend", by=name)
        self.send(driver, "pause", [{"body": "of the poll that was open"}])
        driver.wait(name, lambda events: len(events) == 2)
        self.send(driver, "pause", [{"body": "later"}])
        self.none_yet(driver, name, 2)
        driver.ask("resume", by=name)  # which it notices within 30 s
        assert driver.wait(name, lambda events: len(events) == 3)[-1]["body"] == "later"

    def test_a_namespace_is_a_prefix_of_topics_and_groups(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        still.create_topic("ns%named", type="mixed", queues=2)
        where = {"namespace": "ns", **self.at(still, "in-ns")}
        driver.ask("producer", group="out", **(where | {"name": "out-named"}))
        driver.ask("push", topic="named", group="in", filter="*", **FIRST, **where)
        self.send(driver, "named", [{"body": "fail 1 x"}, {"body": "fine"}])
        self.exactly(driver, ["fail 1 x", "fine"], "in-ns")
        still.advance(10_000)
        seen = self.exactly(driver, ["fail 1 x", "fail 1 x", "fine"], "in-ns")
        assert {event["topic"] for event in seen} == {"ns%named"}
        assert still.admin.get("/v1/groups/ns%25in")["group"] == "ns%in"

    def test_traces_tell_of_a_send_and_of_its_consumption(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "traced", trace=True)
        name = self.push(driver, running, "traced", trace=True)
        [sent] = self.send(driver, "traced", [{"body": "x", "tag": "T", "keys": ["k"]}])
        self.exactly(driver, ["x"], name)
        self.pull(driver, running, TRACES, "tracer")
        found: list[str] = []
        for _ in range(60):
            asked = {"group": "group-tracer", "topic": TRACES, **self.at(running, "tracer")}
            found += [m["body"] for m in driver.ask("pull_all", **asked)]
            if all(any(kind in body for body in found) for kind in ("Pub", "SubAfter")):
                break
            driver.quiet(0.1)
        assert all(sent["id"] in body for body in found if "traced" in body)
        assert any(body.startswith("Pub") and "DefaultRegion" in body for body in found)

    def test_its_admin_client_makes_lists_and_deletes(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        where = {"topic": "by-admin", "broker_addr": running.broker_address, **self.at(running, "")}

        def admin(how: str, **more: Any) -> Any:
            return driver.ask("admin", how=how, **where, **more)

        assert admin("create", queues=3)
        assert admin("queues") == [0, 1, 2]
        assert "by-admin" in admin("topics")
        self.push(driver, running, "by-admin", group="of-admin")
        assert admin("groups")["of-admin"]["RetryMaxTimes"] == 16
        assert admin("delete")
        assert "by-admin" not in admin("topics")

    def test_a_pull_consumer_with_credentials(self, driver: Driver, tmp_path: Path) -> None:
        """It signs what it asks the broker, and nothing that it asks the name server."""
        path = access_file(tmp_path, "unsigned_routes = true\n" + ACCESS)
        with BrokerProcess(clock="system", flush="os", arguments=[f"--access={path}"]) as guarded:
            where = {"namesrv": guarded.namesrv_address, "key": "app", "secret": "app-secret"}
            operator = AdminClient(guarded.admin_url.replace("//", "//:operator-token@"))
            operator.post("/v1/topics", {"name": "in-pulled", "type": "mixed", "queues": 1})
            more = {"key": "operator", "secret": "operator-secret"}
            driver.ask("producer", group="out", **where | {"name": "out-in-pulled"} | more)
            self.send(driver, "in-pulled", [{"body": "x"}])
            asked = {"group": "app-pulls", "topic": "in-pulled", "filter": "*", "name": "app-pulls"}
            driver.ask("pull", **asked, **FIRST, **where)
            assert self.polled(driver, "app-pulls", 1) == ["x"]
            driver.ask("close", name="app-pulls")
            driver.ask("close", name="out-in-pulled")

    def test_a_name_server_found_over_http(self, driver: Driver, running: BrokerProcess) -> None:
        class Addresses(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(f"{running.namesrv_address}\n".encode())

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        with HTTPServer(("127.0.0.1", 0), Addresses) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            running.create_topic("found", type="mixed", queues=2)
            domain = f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
            driver.ask("producer", group="out-found", name="out-found", domain=domain)
            [sent] = self.send(driver, "found", [{"body": "x"}])
            assert sent["status"] == "SEND_OK"
            server.shutdown()

    def test_producers_of_one_address_and_process_id_lose_nothing(
        self, tmp_path: Path, running: BrokerProcess
    ) -> None:
        """As in containers of two hosts: their messages have the same ids."""
        tried = subprocess.run([*CONTAINED, "true"], check=False, capture_output=True, text=True)
        assert tried.returncode == 0, f"the test needs Linux user namespaces: {tried.stderr}"
        running.create_topic("equal", type="mixed", queues=1)
        with (
            go_remoting(tmp_path / "a", contained=True) as a,
            go_remoting(tmp_path / "b", contained=True) as b,
        ):
            sends = []
            for driver, letter in ((a, "a"), (b, "b")):
                driver.ask("producer", group=letter, **self.at(running, letter))
            for driver, letter in ((a, "a"), (b, "b")):
                messages = [{"body": f"{letter}{i}"} for i in range(100)]
                sends.append(driver.start("send", by=letter, topic="equal", messages=messages))
            ids = {receipt["id"] for sent in sends for receipt in sent.result(60)}
        assert running.admin.get("/v1/topics/equal")["queue_offsets"] == [200]
        assert len(ids) < 200

    def test_both_ends_go_on_when_the_broker_is_killed(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "killed")
        name = self.push(driver, running, "killed")
        self.send(driver, "killed", [{"body": f"a{i}"} for i in range(20)])
        driver.wait(name, lambda events: len(events) >= 20)
        asked = {"by": "out-killed", "topic": "killed"}
        many = driver.start("send", messages=[{"body": f"b{i}"} for i in range(5_000)], **asked)
        driver.wait(name, lambda events: len(events) >= 100)
        running.kill()
        running.restart()
        with suppress(Refused):
            many.result(60)
        self.send(driver, "killed", [{"body": "back"}])
        stored = sum(running.admin.get("/v1/topics/killed")["queue_offsets"])
        driver.wait(name, lambda events: len({e["body"] for e in events}) >= stored)
        assert "back" in {event["body"] for event in driver.events(name)}
