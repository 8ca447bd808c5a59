"""Recurring schedules through the installed `horolog`: a session, and a `kill -9` half-way."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

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
    return subprocess.run(
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
        ([], "--cron: give either cron or every"),
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
