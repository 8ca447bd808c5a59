"""The installed `horolog` against a real broker.

Every command, and what it says when it is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

Run = Callable[..., subprocess.CompletedProcess[str]]


def commands(broker: BrokerProcess) -> Run:
    """Runs `horolog` against that broker."""

    def run_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forked.run(
            [*installed_command(), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "HOROLOG_ADMIN": broker.admin_url},
        )

    return run_command


@pytest.fixture
def run(horolog_broker: BrokerProcess) -> Run:
    """Commands against a broker of the test's own."""
    return commands(horolog_broker)


@pytest.fixture(scope="module")
def refusing_broker() -> Iterator[BrokerProcess]:
    """One for all refusals: they change nothing."""
    with BrokerProcess() as broker:
        broker.create_topic("reminders")
        yield broker


def said(ended: subprocess.CompletedProcess[str]) -> str:
    """Stdout of a command that went well."""
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_message_from_send_to_ack(run: Run) -> None:
    """By topic create, send, pending, clock advance, receive, topic describe and list."""
    assert said(run("topic", "create", "reminders", "--type", "delay", "--queues", "1")) == (
        "topic reminders: type delay, 1 queue\n"
    )
    assert said(run("topic", "create", "reminders", "--type", "DELAY", "--queues", "1")).startswith(
        "topic reminders"
    )
    again = run("topic", "create", "reminders", "--type", "delay")
    assert again.returncode == 4
    assert "--queues: " in again.stderr
    assert "exists with 1 queue, not 8" in again.stderr
    fewer = run("topic", "set", "reminders", "--queues", "0")
    assert fewer.returncode != 0
    assert said(run("topic", "set", "reminders", "--queues", "1")) == (
        "topic reminders: type delay, 1 queue\n"
    )
    sent = said(run("send", "reminders", "stand up", "--in", "90s", "--tag", "desk", "--key", "k1"))
    assert "recall handle  " in sent
    assert "total" in said(run("pending"))
    listed = json.loads(said(run("pending", "--list", "--json")))["messages"]
    assert [(row["topic"], row["tag"], row["keys"]) for row in listed] == [
        ("reminders", "desk", ["k1"])
    ]
    due = listed[0]["deliver_at"]
    by_second = said(run("pending", "--hour", due, "--topic", "reminders"))
    assert by_second.startswith("SECOND")
    assert due[:19] in by_second
    window = ("--from", due, "--to", "9999-01-01T00:00Z")
    assert listed[0]["message_id"] in said(run("pending", "--list", *window))
    for command in (["pending", "--list"], ["message", "search", "--topic", "reminders"]):
        assert run(*command).stderr == ""
    assert "the list ends at its limit, 1: " in run("pending", "--list", "--limit", "1").stderr
    nothing = run("receive", "reminders", "--group", "me", "--ack")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "nothing to receive" in nothing.stderr
    assert "(simulated)" in said(run("clock", "advance", "90s"))
    received = said(run("receive", "reminders", "--group", "me", "--ack"))
    assert received.splitlines()[1] == "stand up"
    assert f"due {due}, tag desk" in received
    assert "CONSUMED BELOW" in said(run("topic", "describe", "reminders", "--group", "me"))
    assert said(run("topic", "list")).splitlines()[1].split() == [
        "reminders",
        "delay",
        "1",
        "1",
        "0",
    ]


def test_a_lease_that_is_not_acknowledged_comes_again(run: Run) -> None:
    """With the next attempt; --filter takes what has the tag."""
    said(run("topic", "create", "audit", "--type", "normal", "--queues", "1"))
    said(run("send", "audit", "-", "--tag", "a", "--property", "source=cron", stdin="from stdin"))
    assert run("receive", "audit", "--group", "other", "--filter", "b").stdout == ""
    first = json.loads(
        said(run("receive", "audit", "--group", "me", "--invisible", "10s", "--json"))
    )
    assert first["messages"][0]["body"] == "from stdin"
    assert first["messages"][0]["properties"] == {"source": "cron"}
    assert run("receive", "audit", "--group", "me").stdout == ""
    said(run("clock", "advance", "11s"))
    again = json.loads(said(run("receive", "audit", "--group", "me", "--max", "32", "--json")))
    assert [message["attempt"] for message in again["messages"]] == [2]


def test_a_group_is_listed_described_reset_and_deleted(run: Run) -> None:
    """A topic is normal unless something else is said, and goes with what waits if that is said."""
    assert said(run("topic", "create", "audit", "--queues", "1")) == (
        "topic audit: type normal, 1 queue\n"
    )
    for body in ("a", "b"):
        said(run("send", "audit", body))
    assert said(run("receive", "audit", "--group", "me", "--max", "2", "--ack"))
    listed = said(run("group", "list")).splitlines()
    assert listed[1].split()[:2] == ["me", "1"]
    assert json.loads(said(run("group", "list", "--json")))["groups"][0]["waiting"] == 0
    planned = said(run("group", "reset", "me", "--topic", "audit", "--to", "earliest", "--dry-run"))
    assert planned.splitlines()[-1] == (
        "group me would be reset in audit: 2 messages again, 0 messages skipped"
    )
    done = json.loads(
        said(run("group", "reset", "me", "--topic", "audit", "--to", "earliest", "--json"))
    )
    assert (done["again"], done["queues"]) == (
        2,
        [{"queue_id": 0, "from_offset": 2, "to_offset": 0}],
    )
    described = said(run("group", "describe", "me"))
    assert described.splitlines()[-1].split()[:3] == ["audit", "2", "0"]
    assert run("receive", "audit", "--group", "me", "--max", "2").stdout.count("\n") > 1
    assert said(run("group", "clients")).startswith("CLIENT")
    assert said(run("group", "clients", "me")) == "no client of group me is connected\n"
    unknown = run("group", "clients", "you")
    assert (unknown.returncode, unknown.stderr) == (3, run("group", "describe", "you").stderr)
    nowhere = run("group", "reset", "me", "--topic", "audit", "--to", "soon")
    assert nowhere.stderr.startswith("horolog: --to: ")
    assert said(run("group", "delete", "me")) == "group me: deleted\n"
    assert run("group", "describe", "me").returncode == 3
    said(run("topic", "create", "later", "--type", "Delay", "--queues", "1"))
    said(run("send", "later", "x", "--in", "1h"))
    kept = run("topic", "delete", "later")
    assert kept.stderr.startswith("horolog: --pending: ")
    assert said(run("topic", "delete", "later", "--pending", "recall")) == (
        "topic later: deleted, 1 message recalled\n"
    )


def test_the_truth_about_a_recall(run: Run) -> None:
    """CANCELLED 0, NOT_FOUND 3, ALREADY_DELIVERED 4."""
    said(run("topic", "create", "reminders", "--type", "delay", "--queues", "1"))
    handles = [
        json.loads(said(run("send", "reminders", "x", "--in", due, "--json")))["recall_handle"]
        for due in ("1h", "2h")
    ]
    assert said(run("recall", handles[1])).startswith("CANCELLED")
    again = run("recall", handles[1])
    assert (again.returncode, again.stdout) == (3, "")
    assert again.stderr.startswith("horolog: NOT_FOUND")
    said(run("clock", "advance", "2h"))
    late = run("recall", handles[0])
    assert late.returncode == 4
    assert late.stderr.startswith("horolog: ALREADY_DELIVERED")
    unknown = run("recall", "--topic", "reminders", "--key", "nobody's")
    assert unknown.returncode == 3
    assert unknown.stderr.startswith("horolog: NOT_FOUND")
    assert run("recall", "nonsense").stderr.startswith("horolog: HANDLE: ")


def test_the_truth_about_a_reschedule(run: Run) -> None:
    """RESCHEDULED 0, NOT_FOUND 3, ALREADY_DELIVERED 4, with the status word in front."""
    said(run("topic", "create", "reminders", "--type", "delay", "--queues", "1"))
    sent = json.loads(said(run("send", "reminders", "x", "--in", "1h", "--json")))
    moved = json.loads(said(run("reschedule", sent["recall_handle"], "--to", "2h", "--json")))
    assert (moved["status"], moved["message_id"]) == ("RESCHEDULED", sent["message_id"])
    again = run("reschedule", sent["recall_handle"], "--to", "3h")
    assert (again.returncode, again.stdout) == (3, "")
    assert again.stderr.startswith("horolog: NOT_FOUND")
    assert "moved" in again.stderr
    said(run("clock", "advance", "2h"))
    late = run("reschedule", moved["recall_handle"], "--to", "3h")
    assert late.returncode == 4
    assert late.stderr.startswith("horolog: ALREADY_DELIVERED")
    assert run("reschedule", "nonsense", "--to", "1h").stderr.startswith("horolog: HANDLE: ")
    far = run("reschedule", moved["recall_handle"], "--to", "87673h")
    assert far.returncode == 4
    assert far.stderr.startswith("horolog: --to: ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["send", "nope", "x", "--in", "1s"], 3, "topic 'nope' does not exist"),
        (["send", "reminders", "x"], 4, "takes delay messages"),
        (["send", "reminders", "x", "--in", "87673h"], 4, "--in: "),
        (["send", "reminders", "", "--in", "1s"], 4, "BODY: empty"),
        (["send", "reminders", "x", "--in", "1s", "--tag", "a|b"], 4, "--tag: "),
        (
            ["send", "reminders", "x", "--in", "1s", "--property", "DELAY=3"],
            4,
            "--property: 'DELAY'",
        ),
        (["topic", "create", "re minders"], 4, "NAME: "),
        (["topic", "create", "reminders", "--queues", "0"], 2, "--queues: "),
        (["topic", "describe", "nope"], 3, "topic 'nope' does not exist"),
        (["topic", "describe", "reminders", "--group", "nope"], 3, "consumer group 'nope'"),
        (["receive", "reminders", "--group", "g", "--max", "33"], 2, "--max: "),
        (["receive", "reminders", "--group", "g", "--invisible", "1s"], 2, "--invisible: "),
        (["pending", "--topic", "nope"], 3, "topic 'nope' does not exist"),
        (["pending", "--hour", "now"], 2, "--hour: "),
        (["pending", "--list", "--limit", "0"], 2, "--limit: "),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_refusal_names_the_flag_and_changes_nothing(
    refusing_broker: BrokerProcess, arguments: list[str], code: int, message: str
) -> None:
    """One sentence on stderr; the broker goes on."""
    ended = commands(refusing_broker)(*arguments)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("horolog: ")
    assert ended.stderr.count("\n") == 1
    assert message in ended.stderr
    assert refusing_broker.pending() == 0
    assert refusing_broker.admin.get("/healthz")["healthy"] is True


def test_the_figures_of_a_broker_and_its_holes() -> None:
    """A flipped byte below the checkpoint of a start: counted by the command and by /healthz alike."""
    with BrokerProcess() as broker:
        run = commands(broker)
        healthy = said(run("broker"))
        assert "0  messages that could not be read" in healthy
        assert "0  log position (bytes) at which the log begins" in healthy
        broker.create_topic("t", "normal")
        for number in range(3):
            body = f"message {number}" * 20
            broker.admin.post("/v1/messages", {"topic": "t", "body": body})
        broker.stop()
        path = next((broker.data_dir / "shard-00" / "log").glob("*.log"))
        content = bytearray(path.read_bytes())
        content[content.index(b"message 1message 1")] ^= 3
        path.write_bytes(content)
        broker.start()
        taken = json.loads(said(run("receive", "t", "--group", "g", "--max", "32", "--json")))
        assert len(taken["messages"]) == 2
        shown = run("broker")
        assert shown.returncode == 1, shown.stderr
        assert "1  messages that could not be read" in shown.stdout
        assert "problem: " in shown.stdout
        assert json.loads(run("broker", "--json").stdout)["holes"] == 1
        assert run("verify", str(broker.data_dir)).returncode == 4, "in use"


def test_the_system_clock_is_shown_and_not_moved() -> None:
    """403 there, 4 here."""
    with BrokerProcess(clock="system") as broker:
        show = forked.run(
            [*installed_command(), "clock", "show", "--admin", broker.admin_url],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert show.stdout.endswith("(system)\n")
        advance = forked.run(
            [*installed_command(), "clock", "advance", "1s", "--admin", broker.admin_url],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert advance.returncode == 4
        assert "--clock simulated" in advance.stderr


def test_inspect_reads_every_file_of_a_data_directory(tmp_path: Path) -> None:
    """After a crash too.

    A flipped bit in the log is damage, said with its position, exit code 1.
    """

    def inspect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return forked.run(
            [*installed_command(), "inspect", *map(str, arguments)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("reminders")
        for due_ms in range(1_000, 40_000, 1_000):
            body = {"topic": "reminders", "body": "x" * 100, "in_ms": due_ms}
            broker.admin.post("/v1/messages", body)
        broker.advance("20s")
        broker.kill()
    tree = inspect(broker.data_dir, "--json")
    assert tree.returncode == 0, tree.stdout
    files = json.loads(tree.stdout)["files"]
    assert {each["kind"] for each in files} >= {
        "commit log segment", "delay index", "delay log", "checkpoint", "meta",
    }  # fmt: skip
    for each in files:
        shown = inspect(each["file"], "--limit", "5")
        assert shown.returncode == 0, shown.stdout
        assert each["kind"] in shown.stdout
    log = next(Path(each["file"]) for each in files if each["kind"] == "commit log segment")
    records = json.loads(inspect(log, "--records", "--limit", "1000", "--json").stdout)["rows"]
    kinds = [row["kind"] for row in records]
    assert (kinds.count("SCHEDULED"), kinds.count("HANDED")) == (39, 20)
    with log.open("r+b") as file:
        file.seek(records[5]["position"] + 50)
        flipped = bytes([file.read(1)[0] ^ 0x10])
        file.seek(-1, os.SEEK_CUR)
        file.write(flipped)
    damaged = inspect(log)
    assert damaged.returncode == 1
    assert "DAMAGED: bad frame at log position" in damaged.stdout
    assert inspect(tmp_path / "none").returncode == 3
    (tmp_path / "strange").write_text("?")
    assert inspect(tmp_path / "strange").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_ends_answers_a_parked_poll(number: signal.Signals) -> None:
    """With nothing, which is the truth; exit code 0, and the log holds no error."""
    with BrokerProcess(clock="system") as broker, ThreadPoolExecutor() as pool:
        broker.create_topic("reminders")
        body = {"topic": "reminders", "group": "me", "poll_ms": 20_000}
        poll = pool.submit(broker.admin.post, "/v1/receive", body)
        figures = (broker.admin.get("/v1/broker") for _ in range(1_000))
        assert any(each["parked_polls"] for each in figures)
        os.kill(broker.pid, number)
        assert poll.result(timeout=15) == {"messages": []}
        assert broker.wait() == 0
        assert " error " not in broker.stderr()


def test_messages_are_moved_handed_over_and_looked_at(run: Run) -> None:
    """By window with a dry run, one now, and the history that says so."""
    said(run("topic", "create", "jobs", "--type", "delay", "--queues", "1"))
    for body in ("a", "b", "c"):
        sent = json.loads(said(run("send", "jobs", body, "--in", "1h", "--tag", body, "--json")))
    window = ["--topic", "jobs", "--from", "2000-01-01T00:00Z"]
    planned = said(
        run("reschedule", *window, "--before", "2100-01-01T00:00Z", "--by", "30m", "--dry-run")
    )
    assert planned.startswith("3 messages (")
    assert planned.endswith("would be moved\n")
    shift = ["--before", "2100-01-01T00:00Z", "--tag", "a", "--by", "30m", "--operation", "later"]
    assert said(run("reschedule", *window, *shift)) == (
        "RESCHEDULED: 1 message due at another time\n"
    )
    assert said(run("reschedule", *window, *shift)).startswith("RESCHEDULED: 0 messages")
    listed = said(run("message", "search", "--topic", "jobs", "--tag", "a")).splitlines()
    assert [line.split()[1:3] for line in listed[1:]] == [["jobs", "pending"]]
    handle = sent["recall_handle"]
    stale = run("reschedule", handle, "--to", "3h", "--if-due", "2000-01-01T00:00Z")
    assert stale.returncode == 4
    assert stale.stderr.startswith("horolog: --if-due: DUE_TIME_CHANGED: message ")
    assert "queue          0, offset 0" in said(run("hand-over", handle))
    again = run("hand-over", handle)
    assert again.returncode == 3
    shown = said(run("message", "show", sent["message_id"], "--topic", "jobs"))
    assert [line.split()[1] for line in shown.splitlines()[-2:]] == ["accepted", "handed_over"]
    assert "by_request=True" in shown.splitlines()[-1]
    rest = ["--from", "2000-01-01T00:00Z", "--to", "2100-01-01T00:00Z"]
    assert said(run("hand-over", "--topic", "jobs", *rest)).startswith("HANDED_OVER: 2 messages")
    assert "pending" not in said(run("message", "search", "--topic", "jobs"))
    nobody = run("message", "show", "nobody", "--topic", "jobs")
    assert (nobody.returncode, nobody.stderr[:9]) == (3, "horolog: ")
