"""Recurring schedules through the installed `horolog`: a session, and a `kill -9` half-way."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import forked
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

MIDDAY = "2027-03-27T12:00:00Z"


@pytest.fixture(scope="module")
def refusing_broker() -> Iterator[BrokerProcess]:
    """One for all refusals: they change nothing."""
    with BrokerProcess() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def broker(horolog_broker: BrokerProcess) -> BrokerProcess:
    horolog_broker.create_topic("t")
    return horolog_broker


def horolog(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*installed_command(), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOROLOG_ADMIN": broker.admin_url},
    )


def said(broker: BrokerProcess, *words: str) -> str:
    ended = horolog(broker, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def received(broker: BrokerProcess) -> list[int]:
    """Numbers of the firings that are there."""
    found: list[int] = []
    while True:
        output = json.loads(
            said(broker, "receive", "t", "--group", "g", "--max", "32", "--ack", "--json")
        )
        if not output["messages"]:
            return found
        found += [int(each["properties"]["HOROLOG_FIRING"]) for each in output["messages"]]


def test_a_dry_run_creates_nothing(broker: BrokerProcess) -> None:
    words = ("schedule", "create", "s", "t", "x", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    output = said(broker, *words, "--start", MIDDAY, "--dry-run")
    assert "2027-03-28T03:00:00+02:00" in output
    assert len(output.splitlines()) == 12
    skipped = said(broker, *words, "--start", MIDDAY, "--dry-run", "--gap", "skip")
    assert "2027-03-28" not in skipped
    assert json.loads(said(broker, "schedule", "list", "--json")) == {"schedules": []}


@pytest.mark.slow
def test_killed_between_firings(broker: BrokerProcess) -> None:
    said(broker, "schedule", "create", "s", "t", "x", "--every", "PT10M")
    broker.advance("25m")
    broker.kill()
    broker.restart()
    broker.advance("20m")
    assert received(broker) == [1, 2, 3, 4]
    said(broker, "schedule", "pause", "s")
    assert broker.pending() == 0
    broker.advance("1h")
    broker.kill()
    broker.restart()
    said(broker, "schedule", "resume", "s")
    broker.advance("20m")
    assert received(broker) == [5, 6]
    assert '"fired": 7' in said(broker, "schedule", "show", "s", "--json")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--every", "P1M"], "--every: 'P1M' is not an interval"),
        (["--every", "10ms"], "--every: 10ms; 1s to 100 years are allowed"),
        (["--cron", "0 0 30 2 *"], "--cron: '0 0 30 2 *': bad day-of-month"),
        (["--cron", "* * * * *", "--zone", "Berlin"], "--zone: 'Berlin' is not an IANA time zone"),
        (["--cron", "* * * * *", "--jitter", "2m"], "--jitter: 2m; less than the 1m between"),
        (["--every", "1m", "--gap", "skip"], "--gap: is for cron"),
        (["--every", "1m", "--end", "2001-01-01T00:00:00Z"], "--end: the end is before"),
        ([], "--cron: give either a cron expression or an interval"),
    ],
)
def test_refusals_name_what_was_typed(
    refusing_broker: BrokerProcess, words: list[str], why: str
) -> None:
    ended = horolog(refusing_broker, "schedule", "create", "s", "t", "x", *words)
    assert ended.returncode == 2, ended.stdout
    assert ended.stderr.startswith(f"horolog: {why}"), ended.stderr


def test_compare_and_set(broker: BrokerProcess) -> None:
    words = ("schedule", "create", "s", "t", "x", "--every", "1h")
    said(broker, *words)
    assert said(broker, *words).startswith("schedule s: active")
    other = horolog(broker, *words[:4], "y", *words[5:])
    assert "schedule 's' exists, with something else as its body" in other.stderr
    change = ("schedule", "change", "s", "t", "y", "--every", "2h", "--revision")
    assert "has revision 1, not 2" in horolog(broker, *change, "2").stderr
    assert "revision 2, every 2h" in said(broker, *change, "1")
    assert broker.pending() == 1
    said(broker, "schedule", "remove", "s")
    assert broker.pending() == 0
    assert "NAME: schedule 's' does not exist" in horolog(broker, "schedule", "show", "s").stderr


class Workers:
    """A group that consumes topic `steps` in order, over HTTP."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._admin = broker.admin
        self._handles: dict[str, str] = {}
        self.queues: dict[str, set[int]] = {}  # by message group

    def take(self) -> list[str]:
        """What there is to be had now: each as body and firing, and + for a further attempt."""
        asked = {"topic": "steps", "group": "workers", "limit": 32}
        found = []
        for each in self._admin.post("/v1/receive", asked)["messages"]:
            name = each["body"] + each["properties"]["HOROLOG_FIRING"]
            self.queues.setdefault(each["message_group"], set()).add(each["queue_id"])
            self._handles[name] = each["receipt_handle"]
            found.append(name + "+" * (each["attempt"] - 1))
        return found

    def done(self, *names: str) -> None:
        handles = [self._handles[name] for name in names]
        asked = {"topic": "steps", "group": "workers", "receipt_handles": handles}
        assert self._admin.post("/v1/ack", asked) == {"acked": len(names), "refused": []}


def test_firings_with_a_message_group_keep_its_order(broker: BrokerProcess) -> None:
    """`a` and `b` are of one group, so of one queue; one is made by the command line, the others over HTTP."""
    said(broker, "topic", "create", "steps", "--type", "fifo", "--queues", "8")
    said(broker, "group", "set", "workers", "--orderly")
    cron = ("schedule", "create", "a", "steps", "a", "--every", "10s")
    said(broker, *cron, "--message-group", "one")
    assert "message group  one" in said(broker, "schedule", "show", "a")
    for name, every_ms, group in ("b", 15_000, "one"), ("c", 10_000, "two"):
        wanted = {"name": name, "topic": "steps", "body": name, "every_ms": every_ms}
        made = broker.admin.post("/v1/schedules", {**wanted, "message_group": group})
        assert made["message_group"] == group
    workers = Workers(broker)
    broker.advance("12s")
    assert sorted(workers.take()) == ["a1", "c1"]
    broker.advance("10s")
    assert workers.take() == [], "both groups wait for their first"
    workers.done("c1")
    assert workers.take() == ["c2"]
    broker.advance("19999ms")
    assert workers.take() == []
    broker.advance(1)  # a1 comes again, and after it what was due since
    found = workers.take()
    assert found[:3] == ["a1+", "b1", "a2"]
    assert sorted(found[3:5]) == ["a3", "b2"], "due at the same millisecond"
    assert found[5:] == ["a4"]
    workers.done("a1", "b1", "a2", "a3", "b2", "a4")
    broker.advance("3s")
    assert workers.take() == ["b3"]
    assert [len(queues) for queues in workers.queues.values()] == [1, 1]


@pytest.mark.parametrize(
    ("type", "group", "why"),
    [
        ("fifo", "", "topic 'steps' takes fifo messages, not delay"),
        ("normal", "one", "topic 'steps' takes normal messages, not fifo"),
        ("fifo", "x" * 64, "message_group: "),
    ],
)
def test_a_schedule_is_refused_whose_firings_would_be(
    broker: BrokerProcess, type: str, group: str, why: str
) -> None:
    """With the same sentence over HTTP and by the command line; nothing is left of it."""
    broker.create_topic("steps", type)
    wanted: dict[str, object] = {"name": "s", "topic": "steps", "body": "x", "every_ms": 10_000}
    option = ["--message-group", group] if group else []
    ended = horolog(broker, "schedule", "create", "s", "steps", "x", "--every", "10s", *option)
    assert ended.returncode in (2, 4), ended
    with pytest.raises(HorologError, match=re.escape(why)) as refusal:
        broker.admin.post("/v1/schedules", wanted | ({"message_group": group} if group else {}))
    assert refusal.value.code in (ErrorCode.TYPE_CONFLICT, ErrorCode.ILLEGAL_MESSAGE_GROUP)
    assert refusal.value.message.partition(": ")[2] in ended.stderr, ended.stderr
    assert broker.admin.get("/v1/schedules")["schedules"] == []
