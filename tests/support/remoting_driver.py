"""The requests that every test of a 4.x client makes: broker address, producer, consumer, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from drivers import Driver

from horolog.testing.broker import BrokerProcess

QUIET_S = 1.0
"""What is not pushed within it is not pushed: a waiting pull is answered at once."""


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in messages)


class RemotingDriver:
    """The base of scenario classes; the module of a client's tests provides the fixture `driver`."""

    def at(self, broker: BrokerProcess, name: str) -> dict[str, Any]:
        return {"name": name, "namesrv": broker.namesrv_address}

    def producer(
        self,
        driver: Driver,
        broker: BrokerProcess,
        topic: str,
        queues: int = 2,
        kind: str = "mixed",
        **more: Any,
    ) -> None:
        broker.create_topic(topic, type=kind, queues=queues)
        out = f"out-{topic}"
        driver.ask("producer", group=out, **self.at(broker, out), **more)

    def send(
        self, driver: Driver, topic: str, messages: list[dict[str, Any]], **how: Any
    ) -> list[Any]:
        return driver.ask("send", by=f"out-{topic}", topic=topic, messages=messages, **how)

    def push(
        self,
        driver: Driver,
        broker: BrokerProcess,
        topic: str,
        name: str = "",
        *,
        group: str = "",
        filter: str = "*",
        **more: Any,
    ) -> str:
        """Start a push consumer from the first message on; return its name."""
        name = name or f"in-{topic}"
        driver.ask(
            "push",
            topic=topic,
            group=group or f"group-{topic}".replace("%", ""),
            filter=filter,
            **{"from": "CONSUME_FROM_FIRST_OFFSET"} | more,
            **self.at(broker, name),
        )
        return name

    def exactly(
        self,
        driver: Driver,
        wanted: list[str],
        *names: str,
        meanwhile: Callable[[], object] | None = None,
    ) -> list[dict[str, Any]]:
        """Wait until these consumers together have as many messages as wanted; check that these are all."""

        def seen() -> list[dict[str, Any]]:
            return [event for name in names for event in driver.events(name)]

        driver.wait(names[0], lambda _: len(seen()) >= len(wanted), meanwhile)
        driver.quiet(QUIET_S)
        assert Counter(bodies(seen())) == Counter(wanted)
        return seen()

    def none_yet(self, driver: Driver, name: str, than: int = 0) -> None:
        """Check that the consumer has exactly `than` messages, and gets no more."""
        driver.quiet(QUIET_S)
        assert len(driver.events(name)) == than, bodies(driver.events(name))
