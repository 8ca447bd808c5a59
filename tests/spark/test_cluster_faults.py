"""Offload, promotion and bulk load on a real cluster: whoever is killed, every message is there once.

One of each class of fault is slow; its twin at the other side of a commit, or at another step, is full.
"""

from __future__ import annotations

from pathlib import Path

import faulty_daemon
import lake_job
import pyarrow.parquet as pq
import pytest
from admin_proxy import AdminProxy
from cluster import wait_until
from lake_world import TOPICS, now_ms, total
from received import received
from stepped import Stepped

from horolog.lake.table import delta
from horolog.limits import HOUR_MS
from horolog.pipeline.offload import offload

pytestmark = [pytest.mark.slow, pytest.mark.process]

BEFORE = pytest.param("before", marks=pytest.mark.full)
AFTER = pytest.param("after", marks=pytest.mark.full)
SCRIPT = Path(lake_job.__file__)
OFFLOADED, ADOPTED = "/v1/offloads/commit", "/v1/adoptions/commit"
COUNT = 60
WAIT_S = faulty_daemon.WAIT_S


@pytest.fixture
def uri(tmp_path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def made(broker) -> dict[str, tuple[str, int]]:
    """Messages of two topics, one every two hours from 30 hours ahead: message id → (body, due ms)."""
    for topic in TOPICS:
        broker.create_topic(topic)
    now = now_ms(broker)
    sent = {}
    for i in range(COUNT):
        due = now + (30 + 2 * i) * HOUR_MS
        body = {"topic": TOPICS[i % 2], "body": f"b{i} " + "x" * 100, "deliver_at_ms": due}
        sent[broker.admin.post("/v1/messages", body)["message_id"]] = (body["body"], due)
    assert len(sent) == COUNT
    return sent


def job(kind, cluster, url, folder, fault="none") -> Stepped:
    given = (kind, cluster.url, url, str(folder / "lake"), str(folder), fault)
    return Stepped(SCRIPT, *given)


def done_through(hook, kind, cluster, broker, folder, fault="none") -> list[str]:
    """What a job says whose requests go through a hook; it ends well."""
    with (
        AdminProxy(broker.admin_url, hook) as proxy,
        job(kind, cluster, proxy.url, folder, fault) as running,
    ):
        lines = running.until("done: ")
        assert running.finish() == 0
    return lines


def far_of(broker, made) -> dict[str, str]:
    """Those that an offload takes: id → body."""
    start = -(-(now_ms(broker) + lake_job.BEYOND_MS) // HOUR_MS) * HOUR_MS
    far = {name: body for name, (body, due) in made.items() if due >= start}
    assert COUNT // 2 < len(far) < COUNT
    return far


def in_the_lake_once(broker, uri, made) -> None:
    """The table has the far ones, by id and body, and the broker counts them there and nowhere else."""
    far = far_of(broker, made)
    shown = broker.admin.get("/v1/offloads")
    assert [each["stage"] for each in shown["offloads"]] == ["lake"]
    assert shown["waiting"] == len(far)
    assert total(broker) == len(made)
    found = []
    for path in delta.files_of(uri, shown["offloads"][0]["number"]):
        table = pq.read_table(path.removeprefix("file://"), columns=["message_id", "body"])
        found += [(row["message_id"], row["body"].decode()) for row in table.to_pylist()]
    assert sorted(found) == sorted(far.items())


def handed_over_once(broker, made) -> None:
    """Each of them, by id and body, when its time has come."""
    broker.advance(30 * 24 * HOUR_MS)
    found = [message for topic in TOPICS for message in received(broker, topic)]
    expected = sorted((name, body) for name, (body, _) in made.items())
    assert sorted((message["message_id"], message["body"]) for message in found) == expected
    assert total(broker) == 0


def half_files(uri) -> list[Path]:
    return list(Path(uri).rglob("*.tmp"))


def killed_at(broker, wanted, when):
    """A hook that kills the broker at the first such request, before it or after it; and what it has seen."""
    seen = []

    def hook(path, forward):
        if path != wanted:
            return forward()
        seen.append(path)
        if len(seen) > 1:
            return forward()
        if when == "after":
            forward()
        broker.kill()
        broker.start()
        return None

    return hook, seen


# --- offload ------------------------------------------------------------------------------------


def test_an_executor_dies_in_the_middle_of_a_file(cluster, broker, tmp_path, uri, made) -> None:
    with job("offload", cluster, broker.admin_url, tmp_path, "dies") as running:
        lines = running.until("done: ")
        assert running.finish() == 0
    assert (tmp_path / "happened").exists()
    assert not any(line.startswith("failed") for line in lines)
    assert len(half_files(uri)) == 1
    in_the_lake_once(broker, uri, made)
    handed_over_once(broker, made)


@pytest.mark.parametrize("point", [pytest.param(" frozen", marks=pytest.mark.full), " written"])
def test_the_broker_dies_while_a_job_offloads(cluster, broker, tmp_path, uri, made, point) -> None:
    killed = []

    def at(line) -> None:
        if line.endswith(point) and not killed:
            killed.append(line)
            broker.kill()
            broker.start()

    with job("offload", cluster, broker.admin_url, tmp_path) as running:
        running.until("done: ", at)
        assert running.finish() == 0
    assert killed
    in_the_lake_once(broker, uri, made)
    handed_over_once(broker, made)


@pytest.mark.parametrize("when", [BEFORE, "after"])
def test_the_broker_dies_at_the_commit_of_an_offload(
    cluster, broker, tmp_path, uri, made, when
) -> None:
    hook, commits = killed_at(broker, OFFLOADED, when)
    lines = done_through(hook, "offload", cluster, broker, tmp_path)
    failed = [line for line in lines if line.startswith("failed")]
    assert len(failed) == 1, lines
    assert "no broker answers" in failed[0]
    assert len(commits) == (2 if when == "before" else 1)
    in_the_lake_once(broker, uri, made)
    handed_over_once(broker, made)


def test_the_driver_dies_and_its_task_does_not_know(cluster, broker, tmp_path, uri, made) -> None:
    """The task finishes its file when driver and executor are dead: it is nobody's."""
    with job("offload", cluster, broker.admin_url, tmp_path, "lingers") as first:
        first.until(" frozen")
        first.go()
        wait_until((tmp_path / "happened").exists, WAIT_S)
        assert len(half_files(uri)) == 1
        first.kill()
    wait_until(lambda: not half_files(uri), WAIT_S)
    assert not delta.has_table(uri)
    assert total(broker) == len(made)
    with job("offload", cluster, broker.admin_url, tmp_path) as second:
        second.until("done: ")
        assert second.finish() == 0
    number = broker.admin.get("/v1/offloads")["offloads"][0]["number"]
    assert len(list(Path(uri).rglob("part-*.parquet"))) > len(delta.files_of(uri, number))
    in_the_lake_once(broker, uri, made)
    handed_over_once(broker, made)


@pytest.mark.parametrize("when", [pytest.param("written", marks=pytest.mark.full), "before", AFTER])
def test_the_driver_dies_at_the_commit_of_an_offload(
    cluster, broker, tmp_path, uri, made, when
) -> None:
    """Before the table's commit, between the table's and the broker's, and before it hears of the broker's."""
    running = []

    def hook(path, forward):
        if path != OFFLOADED or not running:
            return forward()
        if when == "after":
            forward()
        running.pop().kill()
        return None

    with AdminProxy(broker.admin_url, hook) as proxy:
        with job("offload", cluster, proxy.url, tmp_path) as first:
            running.append(first)
            first.until(" written")
            if when == "written":
                running.pop().kill()
            first.go()
            assert first.next_line() == ""
        assert delta.has_table(uri) == (when != "written")
        assert total(broker) == len(made)
        assert (broker.admin.get("/v1/offloads")["waiting"] > 0) == (when == "after")
        with job("offload", cluster, proxy.url, tmp_path) as second:
            lines = second.until("done: ")
            assert second.finish() == 0
    assert not any(line.startswith("failed") for line in lines)
    in_the_lake_once(broker, uri, made)
    handed_over_once(broker, made)


# --- promotion ----------------------------------------------------------------------------------


@pytest.fixture
def waiting(broker, uri, made) -> int:
    """How many are in the lake."""
    return offload(broker.admin, uri, now_ms(broker) + lake_job.BEYOND_MS).rows


def all_back(broker, uri, made) -> None:
    """The broker has all of them without the table, and hands each over once."""
    assert broker.admin.get("/v1/offloads")["waiting"] == 0
    assert total(broker) == len(made)
    Path(uri).rename(uri + " is gone")
    handed_over_once(broker, made)
    broker.restart()  # which sweeps what a dead task has left
    assert staged(broker) == []


def staged(broker) -> list[str]:
    """Files of transactions that are not over."""
    return sorted(path.name for path in Path(broker.data_dir).glob("*/staging/*/*.run"))


def test_an_executor_dies_in_the_middle_of_a_run(
    cluster, broker, tmp_path, uri, made, waiting
) -> None:
    with job("promote", cluster, broker.admin_url, tmp_path, "dies") as running:
        lines = running.until("done: ")
        assert running.finish() == 0
    assert (tmp_path / "happened").exists()
    assert lines == ["begun", f"done: {waiting}"]
    all_back(broker, uri, made)


@pytest.mark.parametrize("when", [BEFORE, "after"])
def test_the_broker_dies_at_a_commit_of_a_promotion(
    cluster, broker, tmp_path, uri, made, waiting, when
) -> None:
    hook, commits = killed_at(broker, ADOPTED, when)
    lines = done_through(hook, "promote", cluster, broker, tmp_path)
    assert not any(line.startswith("failed") for line in lines)
    assert len(commits) > waiting // 2
    all_back(broker, uri, made)


@pytest.mark.parametrize("when", ["before", AFTER])
def test_the_driver_dies_in_the_middle_of_a_promotion(
    cluster, broker, tmp_path, uri, made, waiting, when
) -> None:
    running, commits = [], []

    def hook(path, forward):
        if path != ADOPTED:
            return forward()
        commits.append(path)
        if len(commits) != 5:
            return forward()
        answer = forward() if when == "after" else None
        running[0].kill()
        return answer or forward()

    with AdminProxy(broker.admin_url, hook) as proxy:
        with job("promote", cluster, proxy.url, tmp_path) as first:
            running.append(first)
            first.until("begun")
            first.go()
            assert first.next_line() == ""
        with job("promote", cluster, proxy.url, tmp_path) as second:
            lines = second.until("done: ")
            assert second.finish() == 0
    assert len(lines) == 2, lines
    all_back(broker, uri, made)


# --- bulk load ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["late", "second"])
def test_two_attempts_of_a_task_of_a_load(cluster, broker, tmp_path, fault) -> None:
    """`second`: both have whole files before the commit; `late`: one of them writes on after it."""
    broker.create_topic("t")
    there = []

    def hook(path, forward):
        if path == ADOPTED:
            there.append(staged(broker))
        return forward()

    lines = done_through(hook, "load", cluster, broker, tmp_path, fault)
    assert lines == ["begun", f"done: {lake_job.ROWS}"]
    assert (tmp_path / "happened").exists()
    of_first = [name for name in there[0] if name.startswith("p000000-")]
    assert (len(there), len(of_first), len(there[0])) == (1, 2, lake_job.PARTS + 1)
    assert staged(broker) == []
    assert total(broker) == lake_job.ROWS
    broker.restart()
    broker.advance("2h")
    found = received(broker, "t")
    assert sorted(each["body"] for each in found) == sorted(f"m{i}" for i in range(lake_job.ROWS))
    assert len({each["message_id"] for each in found}) == lake_job.ROWS
