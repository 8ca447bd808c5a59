"""Offload and promotion, stopped anywhere and run again: exactly the rows, once, every time."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree

import orjson
import pyarrow.parquet as pq
import pytest
from admin_proxy import AdminProxy
from adopted_runs import stage
from forked import Forked
from lake_world import fill, now_ms, receive_all, total

from horolog.admin.client import AdminClient
from horolog.delay.entry import ENTRY_BYTES
from horolog.delay.run.format import HEADER_BYTES
from horolog.errors import ErrorCode, HorologError
from horolog.lake.jobs import broker as lake_broker
from horolog.lake.jobs.rows import plan
from horolog.lake.table import delta, reading
from horolog.limits import HOUR_MS
from horolog.pipeline.offload import APP, abort_open, offload, write
from horolog.pipeline.promote import forget_past, promote_due, promote_hour
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.storage.disk import Disk
from horolog.testing.broker import installed_command
from horolog.units import TIME_MAX_MS
from horolog.verify.directory import verify_directory

BEYOND = 48 * HOUR_MS


def from_ms(broker) -> int:
    return (now_ms(broker) + BEYOND) // HOUR_MS * HOUR_MS + HOUR_MS


def in_table(uri: str, number: int) -> list[str]:
    """Bodies, as the Delta log names their files."""
    found = []
    for path in delta.files_of(uri, number):
        found += [body.decode() for body in pq.ParquetFile(path).read()["body"].to_pylist()]
    return sorted(found)


def far_of(made: dict[str, int], start: int) -> list[str]:
    return sorted(body for body, due in made.items() if due >= start)


@pytest.mark.parametrize(
    ("part", "by_spark"),
    [
        ("a record", False),
        ("a record", True),
        ("an entry", False),
        ("both", False),
        ("all of them", False),
    ],
)
def test_what_rots_before_it_is_offloaded_is_repaired_first(
    broker, tmp_path, request, part, by_spark
) -> None:
    """The log has it still.  What nobody has is left where it is, and the broker says so."""
    spark = request.getfixturevalue("spark") if by_spark else None
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), from_ms(broker)
    frozen = lake_broker.begin(broker.admin, APP, start)
    (run,) = frozen.opened()
    rows = run.rows_between(start, TIME_MAX_MS)[3 : None if part == "all of them" else 6]
    entries = run.entries(rows)
    with run.path.open("r+b") as file:
        for row, entry in zip(rows.tolist(), entries, strict=True):
            if part != "a record":
                file.seek(HEADER_BYTES + row * ENTRY_BYTES)
                file.write(bytes(ENTRY_BYTES))
            if part in ("a record", "both"):
                file.seek(int(entry["position"]) + 40)
                file.write(b"\xa5" * 60)
    if part == "both":
        with pytest.raises(HorologError, match="not verify"):
            offload(broker.admin, uri, start, spark=spark)
        assert not delta.has_table(uri)
        assert total(broker) == len(made) - 3
        problems = broker.admin.get("/v1/broker")["problems"]
        assert any("3 messages quar" in each for each in problems)
        abort_open(broker.admin, uri)
        done = offload(broker.admin, uri, start, spark=spark)
        assert done.rows == len(far_of(made, start)) - 3
        return
    done = offload(broker.admin, uri, start, spark=spark)
    assert in_table(uri, done.number) == far_of(made, done.from_ms)
    assert broker.admin.get("/v1/broker")["repairs"] >= 3
    assert total(broker) == len(made)


@pytest.mark.parametrize("stopped", ["begun", "written", "committed", "told"])
def test_a_job_that_was_stopped_goes_on(broker, tmp_path, stopped) -> None:
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), from_ms(broker)
    frozen = lake_broker.begin(broker.admin, APP, start)
    files = []
    if stopped != "begun":
        files = write(frozen, plan(frozen.opened(), frozen.from_ms), uri, None)
    if stopped in ("committed", "told"):
        assert delta.commit_files(uri, frozen.log_id, frozen.offload_id, files)
    if stopped == "told":
        has = reading.sum_of(uri, frozen.offload_id)
        lake_broker.commit(broker.admin, frozen.offload_id, has.rows, has.checksum, uri)
    broker.kill()
    broker.restart()
    if stopped == "told":
        again = lake_broker.commit(broker.admin, frozen.offload_id, has.rows, has.checksum, uri)
        assert again["already"]
    else:
        done = offload(broker.admin, uri, start + 5 * HOUR_MS)
        assert (done.number, done.from_ms) == (frozen.offload_id, start)
        assert done.already == (stopped == "committed")
    assert in_table(uri, frozen.offload_id) == far_of(made, start)
    assert total(broker) == len(made)
    assert broker.admin.get("/v1/offloads")["waiting"] == len(far_of(made, start))


class StoppedError(Exception):
    """As a kill."""


def stop(*given: object) -> None:
    raise StoppedError


@pytest.mark.parametrize("stopped", ["written", "before", "between", "late"])
def test_what_is_given_up_leaves_nothing_in_the_table(
    broker, tmp_path, monkeypatch, stopped
) -> None:
    """The abort itself is stopped before or after the broker knows of it, or the job adds its files after all."""
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), from_ms(broker)
    frozen = lake_broker.begin(broker.admin, APP, start)
    files = write(frozen, plan(frozen.opened(), frozen.from_ms), uri, None)
    if stopped in ("before", "between"):
        assert delta.commit_files(uri, frozen.log_id, frozen.offload_id, files)
        where = (AdminClient, "post") if stopped == "before" else (delta, "forget")
        with monkeypatch.context() as patch:
            patch.setattr(*where, stop)
            with pytest.raises(StoppedError):
                abort_open(broker.admin, uri)
        assert in_table(uri, frozen.offload_id) == far_of(made, start)
    if stopped in ("written", "late"):
        assert abort_open(broker.admin, uri) == frozen.offload_id
    if stopped == "late":
        assert delta.commit_files(uri, frozen.log_id, frozen.offload_id, files)
        with pytest.raises(HorologError, match="there is no offload"):
            lake_broker.commit(broker.admin, frozen.offload_id, 1, 1, uri)
    done = offload(broker.admin, uri, start)
    assert (done.number == frozen.offload_id) == (stopped == "before")
    assert in_table(uri, done.number) == far_of(made, start)
    assert all("number=" + str(done.number) in path for path in delta.open_table(uri).file_uris())
    assert offload(broker.admin, uri, start).rows == 0  # what is in the lake stays there
    assert in_table(uri, done.number) == far_of(made, start)
    assert list((tmp_path / "lake" / "_given_up").iterdir()) == []
    assert total(broker) == len(made)


def test_a_table_that_lacks_rows_is_refused_and_nothing_changes(broker, tmp_path) -> None:
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), from_ms(broker)
    frozen = lake_broker.begin(broker.admin, APP, start)
    units = plan(frozen.opened(), frozen.from_ms)
    files = write(frozen, units, uri, None)
    assert len(files) > 1
    delta.commit_files(uri, frozen.log_id, frozen.offload_id, files[1:])
    with pytest.raises(HorologError, match="the lake has") as refused:
        offload(broker.admin, uri, start)
    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert total(broker) == len(made)
    assert abort_open(broker.admin, uri) == frozen.offload_id
    assert in_table(uri, frozen.offload_id) == []
    assert offload(broker.admin, uri, start).rows == len(far_of(made, start))


def test_what_is_recalled_while_it_is_copied_does_not_come_back(broker, tmp_path) -> None:
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), from_ms(broker)
    frozen = lake_broker.begin(broker.admin, APP, start)
    left_out = f"b{max(int(body[1:]) for body in made)}"
    topic = ("alpha", "beta")[int(left_out[1:]) % 2]
    gone = broker.admin.post("/v1/recall/key", {"topic": topic, "key": f"k{left_out[1:]}"})
    assert gone["cancelled"] == 1
    done = offload(broker.admin, uri, start)
    assert done.rows == len(far_of(made, start))  # the table has it
    assert total(broker) == len(made) - 1
    assert len(lake_broker.recalled_origins(broker.admin, frozen.offload_id)) == 1
    broker.advance(30 * 24 * HOUR_MS)
    assert sorted(receive_all(broker)) == sorted(set(made) - {left_out})


def test_whoever_promotes_is_killed_at_one_request_after_the_other(broker, tmp_path) -> None:
    """Before the request reaches the broker, or after it, so that nobody hears the answer."""
    made = fill(broker)
    offload(broker.admin, str(tmp_path / "lake"), from_ms(broker))
    job: list[subprocess.Popen[str]] = []
    seen: list[str] = []
    fatal = [0]  # which request of a process, counted from 1; 0: none

    def hook(path: str, forward):
        seen.append(path)
        if len(seen) == fatal[0]:
            if fatal[0] % 2:
                forward()
            job[-1].kill()
            return None
        return forward()

    kills = 0
    with AdminProxy(broker.admin_url, hook) as proxy:
        for fatal[0] in [5, 6, 7, 8, 0]:
            seen.clear()
            command = [*installed_command(), "pipeline", "promote", "--ahead", "400h"]
            command += ["--admin", proxy.url]
            job.append(Forked(command, stdout=subprocess.PIPE, text=True))
            job[-1].communicate(timeout=120)
            kills += job[-1].returncode == -signal.SIGKILL
            assert total(broker) == len(made)
    assert kills == 4
    assert job[-1].returncode == 0
    assert broker.admin.get("/v1/offloads")["waiting"] == 0
    broker.advance(30 * 24 * HOUR_MS)
    assert sorted(receive_all(broker)) == sorted(made)


def test_two_promote_at_once(broker, tmp_path) -> None:
    made = fill(broker)
    uri = str(tmp_path / "lake")
    offload(broker.admin, uri, from_ms(broker))
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(promote_due, broker.admin_url, ahead_ms=400 * HOUR_MS) for _ in range(2)
        ]
        rows = sum(job.result(timeout=120).rows for job in jobs)
    assert broker.admin.get("/v1/offloads")["waiting"] == 0
    assert rows == len(far_of(made, from_ms(broker)))
    assert total(broker) == len(made)
    broker.advance(30 * 24 * HOUR_MS)
    assert sorted(receive_all(broker)) == sorted(made)
    assert forget_past(broker.admin_url, 0) > 0
    assert all(delta.files_of(uri, number) == [] for number in (1, 2))


def test_a_table_that_lost_a_file_is_not_promoted(broker, tmp_path) -> None:
    fill(broker)
    uri = str(tmp_path / "lake")
    done = offload(broker.admin, uri, from_ms(broker))
    _, hours = lake_broker.hours(broker.admin, TIME_MAX_MS)
    delta.forget(uri, "9999", done.number)
    with pytest.raises(HorologError, match="the broker counts") as refused:
        promote_hour(broker.admin_url, uri, hours[0])
    assert refused.value.code is ErrorCode.DAMAGED
    assert broker.admin.get("/v1/offloads")["waiting"] == done.rows


def test_what_lies_where_the_tables_disk_is_not_mounted_is_not_the_table(broker, tmp_path) -> None:
    """Nothing more goes there, where the mounted disk would hide it, and no look-up takes it for the table."""
    made = fill(broker)
    uri, aside = tmp_path / "lake", tmp_path / "aside"
    done = offload(broker.admin, str(uri), from_ms(broker))
    late = max(made, key=lambda body: made[body])
    later = now_ms(broker) + 90 * 24 * HOUR_MS
    more = {"topic": "alpha", "body": "more", "deliver_at_ms": later}
    broker.admin.post("/v1/messages", more)
    uri.rename(aside)
    with pytest.raises(HorologError, match=r"^LAKE: there is no table at .*; mount or restore it"):
        offload(broker.admin, str(uri), from_ms(broker))
    assert not uri.exists()

    delta.commit_files(str(uri), broker.admin.get("/v1/offloads")["offloads"][0]["log_id"], 2, [])
    with pytest.raises(HorologError, match=r"has no file of offload 1, .*mount or restore the"):
        offload(broker.admin, str(uri), from_ms(broker))
    for path, asked in (
        ("/v1/recall/key", {"topic": "beta", "key": late.replace("b", "k")}),
        ("/v1/recall", {"topic": "beta", "message_id": "0" * 34, "deliver_at_ms": made[late]}),
        ("/v1/recall/window", {"topic": "beta", "from_ms": made[late], "to_ms": made[late] + 1}),
    ):
        with pytest.raises(HorologError, match="mount or restore the table") as refused:
            broker.admin.post(path, asked)
        assert refused.value.code is ErrorCode.IN_TIER
    assert broker.admin.get("/v1/offloads")["waiting"] == done.rows
    assert [each["stage"] for each in broker.admin.get("/v1/offloads")["offloads"]] == ["lake"]

    rmtree(uri)
    aside.rename(uri)
    assert offload(broker.admin, str(uri), from_ms(broker)).rows == 1
    assert total(broker) == len(made) + 1


def test_a_data_directory_with_a_lake_verifies(broker, tmp_path) -> None:
    fill(broker)
    offload(broker.admin, str(tmp_path / "lake"), from_ms(broker))
    _, hours = lake_broker.hours(broker.admin, TIME_MAX_MS)
    promote_hour(broker.admin_url, str(tmp_path / "lake"), hours[0])
    broker.kill()
    broker.restart()  # so that a checkpoint names it
    broker.kill()
    verdict = verify_directory(Disk(Path(broker.data_dir), read_only=True), quick=False)
    assert [f.what for f in verdict.findings.kept] == []


@pytest.mark.slow
def test_a_bulk_load_goes_to_the_lake_and_comes_back(broker, tmp_path) -> None:
    broker.create_topic("alpha")
    broker.create_topic("beta")
    body = {"app": "load", "version": 1, "topic": "alpha"}
    begun = broker.admin.post("/v1/adoptions/begin", body)
    start = from_ms(broker) + 10 * HOUR_MS
    messages = [
        encode(
            topic="alpha",
            body=b"%d " % i + b"x" * 60_000,
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=start + i * 40_000,
        )
        for i in range(200)
    ]
    claim = stage(begun, "a", messages)
    committed = {**body, "token": begun["token"], "files": [claim]}
    assert broker.admin.post("/v1/adoptions/commit", committed)["files"] == 1
    uri = str(tmp_path / "lake")
    assert offload(broker.admin, uri, from_ms(broker)).rows == 200
    broker.restart()
    assert total(broker) == 200
    assert promote_due(broker.admin_url, ahead_ms=400 * HOUR_MS).rows == 200
    broker.restart()
    assert total(broker) == 200
    broker.advance(start + 8_000_000 - now_ms(broker))
    found = [int(text.split()[0]) for text in receive_all(broker)]
    assert sorted(found) == list(range(200))
    broker.stop()
    verdict = verify_directory(Disk(Path(broker.data_dir), read_only=True), quick=False)
    assert [f.what for f in verdict.findings.kept] == []


@pytest.mark.parametrize("fault", ["reply", "broker"])
def test_the_commit_of_a_promotion_fails_once(broker, tmp_path, fault) -> None:
    made = fill(broker, 16)
    uri = str(tmp_path / "lake")
    done = offload(broker.admin, uri, from_ms(broker))
    commits = []

    def hook(path, forward):
        if path != "/v1/adoptions/commit" or commits:
            return forward()
        if fault == "reply":
            forward()
        else:
            broker.kill()
            broker.start()
        commits.append(path)
        return None

    with AdminProxy(broker.admin_url, hook) as proxy:
        promote_due(proxy.url, ahead_ms=400 * HOUR_MS)
    assert commits
    assert done.rows > 4
    assert broker.admin.get("/v1/offloads")["waiting"] == 0
    assert total(broker) == len(made)
    broker.advance(10 * 24 * HOUR_MS)
    assert sorted(receive_all(broker)) == sorted(made)


@pytest.mark.slow
def test_the_commands(broker, tmp_path) -> None:
    made = fill(broker, 16)
    where = {**os.environ, "HOROLOG_ADMIN": broker.admin_url}

    def run(*words: str) -> str:
        command = [*installed_command(), "pipeline", *words]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=150, env=where, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    uri = str(tmp_path / "lake")
    answer = orjson.loads(run("offload", uri, "--beyond", "48h", "--master", "local[1]", "--json"))
    assert answer["rows"] == broker.admin.get("/v1/offloads")["waiting"] > 4
    assert run("offload", uri, "--abort") == "Nothing is frozen.\n"
    assert run("promote", "--ahead", "20d").startswith(f"{answer['rows']} messages of ")
    assert total(broker) == len(made)
