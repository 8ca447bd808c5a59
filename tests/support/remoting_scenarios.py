"""What official 4.x clients must do beyond the suite (`conformance.py`).

Levels and timers, batches, order, broadcast.
"""

from __future__ import annotations

from drivers import Driver
from remoting_driver import QUIET_S, RemotingDriver, bodies

from horolog.testing.broker import BrokerProcess

LEVEL_3_MS = 10_000
LEVEL_18_MS = 7_200_000


class RemotingScenarios(RemotingDriver):
    """Scenarios for any client with a producer and a push consumer."""

    def test_what_is_sent_is_pushed_whole_and_once(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "whole")
        name = self.push(driver, running, "whole")
        wanted = [
            {"body": f"m{i} ü€", "tag": "T", "keys": [f"k{i}", "all"], "properties": {"a": f"{i}"}}
            for i in range(20)
        ]
        sent = self.send(driver, "whole", wanted)
        assert {receipt["status"] for receipt in sent} <= {"SEND_OK", "OK"}
        seen = self.exactly(driver, [str(m["body"]) for m in wanted], name)
        for event in seen:
            number = event["body"][1:].split()[0]
            assert (event["tag"], event["keys"]) == ("T", [f"k{number}", "all"])
            assert event["properties"]["a"] == number
            assert event["retries"] == 0
        assert {event["queue"] for event in seen} == {0, 1}
        offsets = sorted((event["queue"], event["offset"]) for event in seen)
        assert offsets == sorted(set(offsets))

    def test_a_long_body_is_compressed_by_the_client_and_comes_back(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "long")
        name = self.push(driver, running, "long")
        self.send(driver, "long", [{"body": "0123456789", "times": 10_000}])
        self.exactly(driver, ["0123456789" * 10_000], name)

    def test_one_way_sends_and_batches_arrive(self, driver: Driver, running: BrokerProcess) -> None:
        self.producer(driver, running, "ways")
        name = self.push(driver, running, "ways")
        one_way = [{"body": f"o{i}"} for i in range(50)]
        batch = [{"body": f"b{i}", "tag": f"t{i}", "keys": [f"k{i}"]} for i in range(40)]
        [receipt] = self.send(driver, "ways", batch, how="batch")  # connects, else no one says so
        self.send(driver, "ways", one_way, how="oneway")
        seen = self.exactly(driver, [str(m["body"]) for m in one_way + batch], name)
        of_batch = [event for event in seen if event["body"].startswith("b")]
        first = min(event["offset"] for event in of_batch)
        assert receipt["offset"] == first
        for event in of_batch:
            number = int(event["body"][1:])
            assert (event["offset"], event["tag"]) == (first + number, f"t{number}")
            assert event["keys"] == [f"k{number}"]

    def test_levels_are_due_to_the_millisecond_and_the_highest_is_the_last(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "levels")
        name = self.push(driver, still, "levels")
        self.send(driver, "levels", [{"body": f"three {i}", "level": 3} for i in range(5)])
        self.send(driver, "levels", [{"body": "high", "level": 99}, {"body": "now", "level": 0}])
        self.exactly(driver, ["now"], name)
        still.advance(LEVEL_3_MS - 1)
        self.none_yet(driver, name, 1)
        still.advance(1)
        threes = [f"three {i}" for i in range(5)]
        seen = self.exactly(driver, ["now", *threes], name)
        assert {event["level"] for event in seen if event["body"] != "now"} == {3}
        still.advance(LEVEL_18_MS - LEVEL_3_MS - 1)
        self.none_yet(driver, name, 6)
        still.advance(1)
        seen = self.exactly(driver, ["now", *threes, "high"], name)
        assert [event["level"] for event in seen if event["body"] == "high"] == [18]

    def test_every_timer_property_is_obeyed_and_the_level_wins(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "timers")
        name = self.push(driver, still, "timers")
        at_ms = still.now_ms() + 20_000
        fields = {
            "sec": {"TIMER_DELAY_SEC": "20"},
            "ms": {"TIMER_DELAY_MS": "20000"},
            "deliver": {"TIMER_DELIVER_MS": str(at_ms)},
            "start": {"__STARTDELIVERTIME": str(at_ms)},
            "past": {"TIMER_DELIVER_MS": "1"},
        }
        self.send(driver, "timers", [{"body": b, "reserved": r} for b, r in fields.items()])
        both = {"body": "level", "level": 3, "reserved": {"TIMER_DELAY_SEC": "3600"}}
        self.send(driver, "timers", [both])
        self.exactly(driver, ["past"], name)
        still.advance(LEVEL_3_MS)
        self.exactly(driver, ["past", "level"], name)
        still.advance(at_ms - still.now_ms() - 1)
        self.none_yet(driver, name, 2)
        still.advance(1)
        self.exactly(driver, [*fields, "level"], name)

    def test_due_times_by_the_machines_clock_are_never_early(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "timed")
        name = self.push(driver, running, "timed")
        base_ms = running.now_ms() + 2_000
        due = {f"{i}": base_ms + 7 * i for i in range(200)}
        self.send(
            driver,
            "timed",
            [{"body": b, "reserved": {"TIMER_DELIVER_MS": str(ms)}} for b, ms in due.items()],
        )
        seen = self.exactly(driver, list(due), name)
        assert not [event for event in seen if event["at_ms"] < due[event["body"]]]

    def test_an_orderly_consumer_keeps_the_order_of_a_queue(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "orderly")
        for queue in (0, 1):
            messages = [{"body": f"{queue} {i}"} for i in range(30)]
            self.send(driver, "orderly", messages, how="queue", queue=queue)
        name = self.push(driver, running, "orderly", orderly=True)
        seen = self.exactly(driver, [f"{q} {i}" for q in (0, 1) for i in range(30)], name)
        for queue in (0, 1):
            assert [e["body"] for e in seen if e["queue"] == queue] == [
                f"{queue} {i}" for i in range(30)
            ]

    def test_broadcast_gives_each_consumer_everything(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "broadcast")
        names = [
            self.push(driver, running, "broadcast", name, group="all", model="BROADCASTING")
            for name in ("all-1", "all-2")
        ]
        wanted = [f"m{i}" for i in range(30)]
        self.send(driver, "broadcast", [{"body": body} for body in wanted])
        for name in names:
            self.exactly(driver, wanted, name)

    def test_consumers_of_a_group_share_and_the_one_that_stays_takes_over(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "share", queues=8)
        names = [self.push(driver, running, "share", name) for name in ("share-1", "share-2")]
        first, second = ([f"{letter}{i}" for i in range(80)] for letter in "ab")

        def probe() -> None:
            self.send(driver, "share", [{"body": f"probe {i}"} for i in range(8)])

        for name in names:  # both may consume queues that change hands, as with any broker
            driver.wait(name, bool, probe)
        driver.quiet(QUIET_S)

        def taken(name: str) -> list[str]:
            return [body for body in bodies(driver.events(name)) if not body.startswith("probe")]

        self.send(driver, "share", [{"body": body} for body in first])
        driver.wait(names[0], lambda _: sum(len(taken(name)) for name in names) >= 80)
        driver.quiet(QUIET_S)
        assert sorted(taken("share-1") + taken("share-2")) == sorted(first)
        assert taken("share-1")
        assert taken("share-2")
        driver.ask("close", name="share-1")
        self.send(driver, "share", [{"body": body} for body in second])
        driver.wait("share-2", lambda _: sum(len(taken(name)) for name in names) >= 160)
        driver.quiet(QUIET_S)
        assert sorted(taken("share-1") + taken("share-2")) == sorted(first + second)
        assert not set(taken("share-1")) & set(second)

    def test_a_group_goes_on_where_it_was_and_a_new_one_at_the_first(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "again")
        first, second = ([f"{letter}{i}" for i in range(30)] for letter in "ab")
        self.send(driver, "again", [{"body": body} for body in first])
        self.push(driver, running, "again", "again-1")
        self.exactly(driver, first, "again-1")
        driver.ask("close", name="again-1")
        self.send(driver, "again", [{"body": body} for body in second])
        self.push(driver, running, "again", "again-2")
        self.exactly(driver, second, "again-2")
        self.push(driver, running, "again", "again-3", group="other")
        self.exactly(driver, first + second, "again-3")
