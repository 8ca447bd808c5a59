"""Whoever writes on a disk that the others do not see is refused before a row is lost.

`/proc/self/cwd` is another directory for every process: a place below it is one that driver and workers do not share,
for any user, and without another machine.  The workers of the session were started elsewhere than in `tmp_path`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lake_world
import pytest
from cluster import CONF
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from horolog.errors import ErrorCode, HorologError
from horolog.pipeline.audit import audit
from horolog.pipeline.forecast import forecast
from horolog.pipeline.offload import offload
from horolog.pipeline.rebuild import rebuild
from horolog.spark.delta_append import DeltaAppend
from horolog.spark.failures import sentence_of
from horolog.spark.shared_place import TOKENS, check_written, prove_shared, shared_place
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

APART = "is not one directory for driver and executors: "


@pytest.fixture
def apart(spark, tmp_path, monkeypatch) -> str:
    """A place that the driver sees and no worker does."""
    assert spark.range(1).rdd.map(lambda _: os.getcwd()).first() != str(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "/proc/self/cwd/apart"


def test_a_place_that_all_share_is_proved_and_left_clean(spark, tmp_path) -> None:
    place = tmp_path / "place"
    prove_shared(spark, str(place), "LAKE")
    prove_shared(spark, str(place), "LAKE", {__file__: Path(__file__).read_bytes()})
    assert list(place.iterdir()) == []


def test_workers_with_another_disk_are_refused(spark, apart) -> None:
    with pytest.raises(
        HorologError, match=APART + ".* does not see what the driver wrote"
    ) as error:
        prove_shared(spark, apart, "--out")
    assert (error.value.code, error.value.field) == (ErrorCode.CONFIG, "--out")
    assert error.value.message.endswith("it must be on a disk that all share")
    assert list(Path(apart).iterdir()) == []


def test_workers_with_another_data_directory_are_refused(spark, tmp_path) -> None:
    with pytest.raises(HorologError, match=r"sees another .*meta, or none"):
        prove_shared(spark, str(tmp_path), "--out", {str(tmp_path / "meta"): b"ours"})


def test_what_the_driver_does_not_see_is_not_committed(tmp_path) -> None:
    """The other way: the task saw the token, and wrote elsewhere all the same."""
    (tmp_path / "whole").write_bytes(b"1234")
    check_written(str(tmp_path), "table", [("whole", 4)])
    for name, size in (("gone", 4), ("whole", 5)):
        with pytest.raises(HorologError, match=f"table: .*{APART}.*{name}"):
            check_written(str(tmp_path), "table", [("whole", 4), (name, size)])


def test_tokens_of_killed_drivers_go_after_a_day(tmp_path) -> None:
    folder = tmp_path / TOKENS
    with shared_place(str(tmp_path), "table"):
        for name, age_s in (("old", 90_000), ("new", 60)):
            (folder / name).touch()
            seen_s = (folder / name).stat().st_mtime - age_s
            os.utime(folder / name, (seen_s, seen_s))
    assert [file.name for file in folder.iterdir()] == ["new"]


def test_a_stream_into_a_table_fails_and_does_not_move_on(spark, apart, tmp_path) -> None:
    """It used to end well, with files where nobody looks and a table whose log names them."""
    elsewhere = Path(spark.range(1).rdd.map(lambda _: os.getcwd()).first())
    source = tmp_path / "in"
    spark.range(5).selectExpr("id", "cast(id as string) as text").write.json(str(source))
    checkpoint = tmp_path / "checkpoint"

    def run(table: str) -> None:
        stream = spark.readStream.schema("id long, text string").json(str(source))
        writer = stream.writeStream.foreachBatch(DeltaAppend(table))
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    with pytest.raises(PySparkException) as refused:
        run(apart)
    assert f"table: {apart} {APART}" in sentence_of(refused.value)
    assert not (elsewhere / "apart").exists()
    assert not DeltaTable.is_deltatable(apart)
    assert list((checkpoint / "commits").glob("[0-9]*")) == []
    run(str(tmp_path / "table"))
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 5
    assert not (tmp_path / "table" / TOKENS).exists()


def test_the_jobs_refuse_before_they_begin(spark, broker, apart, tmp_path) -> None:
    broker.create_topic("t")
    body = {"topic": "t", "body": "b", "deliver_at_ms": broker.now_ms() + 80 * 3_600_000}
    broker.admin.post("/v1/messages", body)
    jobs = {
        "LAKE": lambda: offload(broker.admin, apart, lake_world.now_ms(broker), spark=spark),
        "--out": lambda: audit(spark, broker.data_dir, out=Path(apart)),
        "--out:": lambda: forecast(spark, broker.data_dir, out=Path(apart)),
        "--out: ": lambda: rebuild(spark, broker.data_dir, Path(apart)),
    }
    for what, job in jobs.items():
        with pytest.raises(HorologError, match=f"^{what}.*{APART}"):
            job()
    assert broker.admin.get("/v1/offloads")["offloads"] == []
    assert not any(Path(apart).rglob("*.parquet"))


@pytest.mark.slow
def test_an_audit_on_a_cluster_whose_workers_have_another_disk(cluster, tmp_path) -> None:
    """Driver and workers have other working directories; with a shared one the same audit is clean."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("t")
        flags = ["--master", cluster.url]
        flags += [text for pair in CONF.items() for text in ("--conf", "=".join(pair))]
        for out, code in (("/proc/self/cwd/out", 2), (str(tmp_path / "out"), 0)):
            done = subprocess.run(
                [*installed_command(), "pipeline", "audit", broker.data_dir, "--out", out, *flags],
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
                cwd=tmp_path,
            )
            assert done.returncode == code, done.stderr[-3_000:]
            assert (APART in done.stderr) is bool(code)
