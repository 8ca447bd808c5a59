"""`horolog dlq` against a real broker: what it lists, re-drives and refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import forked
import pytest
from scenario_grpc import GrpcSide

from horolog.admin.client import path_of
from horolog.cli import listing, main
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(horolog_broker: BrokerProcess) -> Run:
    """`horolog dlq` against that broker."""

    def dlq(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*installed_command(), "dlq", *arguments, "--admin", horolog_broker.admin_url]
        return forked.run(command, capture_output=True, text=True, timeout=60, check=False)

    return dlq


def die(broker: BrokerProcess, topic: str, *bodies: str) -> list[str]:
    """Let the group billing give messages up; gives their ids."""
    broker.create_topic(topic, "mixed", 1)
    side = GrpcSide(broker)
    try:
        sent = side.send(topic, [{"body": body, "properties": {}} for body in bodies])
        for shown in side.receive(topic, "billing", "*"):
            side.bury(topic, "billing", shown)
    finally:
        side.close()
    return [each.message_id for each in sent]


def words(ended: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert ended.returncode == 0, ended.stderr
    return [line.split() for line in ended.stdout.splitlines()]


def test_a_list_of_more_than_a_page(
    horolog_broker: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A thousand is the most that one request returns, and was the most that could be listed."""
    ids = die(horolog_broker, "orders", *"abcdefgh")
    monkeypatch.setattr(listing, "ADMIN_LIST_MAX", 3)
    for limit, shown in ((7, ids[:7]), (9, ids)):
        arguments = ["dlq", "list", "billing", "--limit", str(limit), "--json"]
        assert main.run([*arguments, "--admin", horolog_broker.admin_url]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [each["message_id"] for each in listed["messages"]] == shown
        assert (listed["waiting"], listed["next"] is None) == (8, limit == 9)


def test_a_session(run: Run, horolog_broker: BrokerProcess) -> None:
    ids = die(horolog_broker, "orders", "a", "b", "c", "d")
    assert words(run("list"))[1:] == [["billing", "4", "0"]]
    listed = words(run("list", "billing", "--limit", "3"))
    assert [row[1:] for row in listed[1:4]] == [[each, "orders", "1"] for each in ids[:3]]
    assert " ".join(listed[-1]) == "4 dead letters of billing waiting, 0 re-driven"

    dry = run("redrive", "billing", "--limit", "1", "--dry-run")
    assert dry.stdout == "would be re-driven: 1 dead letter\n"
    assert run("redrive", "billing", "--limit", "1").stdout == "re-driven: 1 dead letter\n"
    once_more = run("redrive", "billing", "--id", ids[0], "--id", "nobody", "--id", ids[2])
    assert once_more.returncode == 4
    assert once_more.stdout == "re-driven: 1 dead letter\nre-driven before: 1\n"
    assert once_more.stderr == "no dead letter has the id nobody\n"

    spread = json.loads(
        run("redrive", "billing", "--all", "--delay", "10m", "--rate", "4", "--json").stdout
    )
    assert (spread["redriven"], spread["last_due_ms"] - spread["first_due_ms"]) == (2, 250)
    assert words(run("list", "billing"))[1] == []
    assert len(words(run("list", "billing", "--all"))) == 4 + 3
    topic = horolog_broker.admin.get(path_of("topics", "orders"))
    assert (sum(topic["queue_offsets"]), topic["pending"]) == (4 + 2, 2)


def test_refusals_name_the_flag(run: Run, horolog_broker: BrokerProcess) -> None:
    die(horolog_broker, "orders", "a")
    for arguments, code, sentence in (
        (["redrive", "billing"], 2, "--all: give one of --id, --all and --limit"),
        (["redrive", "nobody", "--all"], 3, "GROUP: consumer group 'nobody' does not exist"),
        (["redrive", "billing", "--all", "--to", "no"], 3, "--to: topic 'no' does not exist"),
        (["redrive", "billing", "--all", "--delay", "soon"], 2, "--delay: "),
        (["redrive", "billing", "--all", "--rate", "9999999"], 2, "--rate: "),
        (["list", "billing", "--limit", "0"], 2, "--limit: "),
    ):
        ended = run(*arguments)
        assert sentence in ended.stderr, ended.stderr
        assert ended.returncode == code, (arguments, ended.stderr)
    assert words(run("list"))[1:] == [["billing", "1", "0"]]
