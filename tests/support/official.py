"""An official client as the conformance suite uses it, whatever its language and protocol.

Steps have the same names and outcomes for all clients; a subclass says which requests its driver
gets (`drivers.py`), and what its messages look like. A message that was taken is {"body", "tag",
"keys", "properties", "attempt"}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from drivers import Driver

from horolog.testing.broker import BrokerProcess

QUIET_S = 0.7
"""What is not taken within it is not there: polls that wait are answered at once."""
INVISIBLE_MS = 30_000
AWAIT_MS = 1_000
POLLS = 40
Taken = dict[str, Any]


def bodies(messages: list[Taken]) -> list[str]:
    return sorted(message["body"] for message in messages)


class Official:
    """One client process connected to one broker; the suite names the topics."""

    due_unit_ms = 1

    def __init__(self, driver: Driver, broker: BrokerProcess, *, tls: bool = False) -> None:
        self.driver = driver
        self.broker = broker
        self.tls = tls
        self.key: dict[str, str] = {}

    def at(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def producer(self, topic: str, *, checks: bool = False) -> None:
        raise NotImplementedError

    def send(self, topic: str, messages: list[Taken]) -> list[Any]:
        raise NotImplementedError

    def consumer(
        self, topic: str, *, name: str = "", group: str = "", filter: str = "*", **more: Any
    ) -> str:
        """Start a consumer that acknowledges every message but "fail N …", on which it fails N times.

        Return its name. `sql` and `orderly` choose the filter and order; `retries` is the limit of
        clients that count attempts themselves.
        """
        raise NotImplementedError

    def taken(self, name: str) -> list[Taken]:
        """Return all messages that this consumer has got so far, repeated ones included."""
        raise NotImplementedError

    def transaction(self, topic: str, body: str, end: str) -> None:
        """Send a message whose transaction ends as `end` says; "": it has no end."""
        asked = {"topic": topic, "message": {"body": body}, "end": end}
        self.driver.ask("transaction", by=f"out-{topic}", **asked)

    def checked(self, topic: str, count: int) -> list[str]:
        """Wait until the producer was asked `count` times; return the bodies."""
        name = f"out-{topic}"
        return bodies(self.driver.wait(name, lambda events: len(events) >= count))

    def recall(self, topic: str, handle: str) -> str:
        return self.driver.ask("recall", by=f"out-{topic}", topic=topic, handle=handle)

    def leave(self, name: str) -> None:
        """Close a consumer."""
        self.driver.ask("close", name=name)

    def poll(self, name: str) -> None:
        """Make a consumer poll if it does not by itself."""

    def wait(
        self, name: str, count: int, meanwhile: Callable[[], object] | None = None
    ) -> list[Taken]:
        """Wait until a consumer has taken `count` messages; return them."""
        self.driver.wait(name, lambda _: len(self.taken(name)) >= count, meanwhile)
        return self.taken(name)

    def exactly(self, name: str, wanted: list[str]) -> list[Taken]:
        """Wait until a consumer has as many messages as wanted; check that they are these, and no more."""
        self.wait(name, len(wanted))
        self.driver.quiet(QUIET_S)
        assert Counter(bodies(self.taken(name))) == Counter(wanted)
        return self.taken(name)

    def pull_all(self, topic: str) -> list[str]:
        """Return the bodies of the messages that a pull consumer has not read yet."""
        raise NotImplementedError


class Grpc(Official):
    """5.x: `consumer` makes push consumers; there are simple ones too."""

    kind = "push"  # kind of the consumers that `consumer` creates

    def at(self, name: str) -> dict[str, Any]:
        where = {"endpoint": self.broker.grpc_endpoint, "tls": self.tls}
        return {"name": name, **where, **self.key}

    def producer(self, topic: str, *, checks: bool = False) -> None:
        more = {"checks": True} if checks else {}
        self.driver.ask("producer", topic=topic, **self.at(f"out-{topic}"), **more)

    def send(self, topic: str, messages: list[Taken]) -> list[Any]:
        return self.driver.ask("send", by=f"out-{topic}", topic=topic, messages=messages)

    def consumer(
        self,
        topic: str,
        *,
        name: str = "",
        group: str = "",
        filter: str = "*",
        sql: bool = False,
        orderly: bool = False,
        retries: int = 0,
    ) -> str:
        name = name or f"in-{topic}"
        asked = {"topic": topic, "group": group or f"group-{topic}", "filter": filter, "sql": sql}
        self.driver.ask(self.kind, await_ms=AWAIT_MS, **asked, **self.at(name))
        return name

    def taken(self, name: str) -> list[Taken]:
        return self.driver.events(name)

    def leave(self, name: str) -> None:
        """Close a consumer without waiting: some clients let their polls end first, which takes 20 s."""
        self.driver.start("close", name=name)

    def simple(self, topic: str, name: str, *, filter: str = "*", sql: bool = False) -> None:
        asked = {"topic": topic, "group": f"group-{topic}", "filter": filter, "sql": sql}
        self.driver.ask("simple", await_ms=AWAIT_MS, **asked, **self.at(name))

    def receive(self, name: str, most: int = 32) -> list[Taken]:
        return self.driver.ask("receive", by=name, max=most, invisible_ms=INVISIBLE_MS)

    def ack(self, name: str, message: Taken) -> None:
        self.driver.ask("ack", by=name, token=message["token"])


class Polling(Grpc):
    """A 5.x client without push consumers: a simple one is polled, and failed messages' leases run out."""

    kind = "simple"

    def __init__(self, driver: Driver, broker: BrokerProcess, *, tls: bool = False) -> None:
        super().__init__(driver, broker, tls=tls)
        self._taken: dict[str, list[Taken]] = {}
        self._most: dict[str, int] = {}

    def consumer(self, topic: str, *, orderly: bool = False, **wanted: Any) -> str:
        name = super().consumer(topic, orderly=orderly, **wanted)
        self._taken.setdefault(name, [])
        self._most[name] = 1 if orderly else 32  # messages after a failed one must not be taken
        return name

    def taken(self, name: str) -> list[Taken]:
        return self._taken[name]

    def wait(
        self, name: str, count: int, meanwhile: Callable[[], object] | None = None
    ) -> list[Taken]:
        for _ in range(POLLS):
            self.poll(name)
            if len(self._taken[name]) >= count:
                return self._taken[name]
            if meanwhile is not None:
                meanwhile()
        raise AssertionError((self._taken[name], self.driver.stderr()))

    def exactly(self, name: str, wanted: list[str]) -> list[Taken]:
        if wanted:
            self.wait(name, len(wanted))
        for _ in range(2):  # the client asks one of the two queues at a time
            self.poll(name)
        assert Counter(bodies(self._taken[name])) == Counter(wanted)
        return self._taken[name]

    def leave(self, name: str) -> None:
        """Do nothing: the consumer is simply not polled any more."""

    def poll(self, name: str) -> None:
        for message in self.receive(name, self._most[name]):
            self._taken[name].append(message)
            word, _, rest = message["body"].partition(" ")
            if word != "fail" or message["attempt"] > int(rest.split()[0]):
                self.ack(name, message)


class Remoting(Official):
    """4.x clients, and 5.x clients that speak its protocol."""

    def at(self, name: str) -> dict[str, Any]:
        more = {"tls": True} if self.tls else {}
        return {"name": name, "namesrv": self.broker.namesrv_address, **more, **self.key}

    def producer(self, topic: str, *, checks: bool = False) -> None:
        out, more = f"out-{topic}", {"checks": True} if checks else {}
        self.driver.ask("producer", group=out, **self.at(out), **more)

    def send(self, topic: str, messages: list[Taken]) -> list[Any]:
        """Send messages; a due time is a property, a message group is a queue and a property."""
        gave = []
        for message in messages:
            asked, how = dict(message), {}
            if due_ms := asked.pop("due_ms", 0):
                asked["reserved"] = {"TIMER_DELIVER_MS": str(due_ms)}
            if group := asked.pop("group", ""):
                asked["reserved"] = {"__SHARDINGKEY": group}
                how = {"how": "queue", "queue": ord(group[0]) % 2}
            gave += self.driver.ask("send", by=f"out-{topic}", topic=topic, messages=[asked], **how)
        return gave

    def consumer(
        self,
        topic: str,
        *,
        name: str = "",
        group: str = "",
        filter: str = "*",
        sql: bool = False,
        orderly: bool = False,
        retries: int = 0,
    ) -> str:
        name = name or f"in-{topic}"
        more: dict[str, Any] = {"sql": True} if sql else {}
        more |= {"orderly": True} if orderly else {}
        more |= {"retries": retries} if retries else {}
        self.driver.ask(
            "push",
            topic=topic,
            group=group or f"group-{topic}",
            filter=filter,
            **{"from": "CONSUME_FROM_FIRST_OFFSET"},
            **more,
            **self.at(name),
        )
        return name

    def taken(self, name: str) -> list[Taken]:
        return [event | {"attempt": event["retries"] + 1} for event in self.driver.events(name)]

    def pull_all(self, topic: str) -> list[str]:
        return [message["body"] for message in self.driver.ask("pull_all", **self.at_pull(topic))]

    def at_pull(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "group": f"group-{topic}", **self.at(f"pull-{topic}")}
