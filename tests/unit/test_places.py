"""A location in a store that is not supported is refused before anything runs, by all that take one."""

from __future__ import annotations

from pathlib import Path

import pytest

from horolog.admin.client import AdminClient
from horolog.cli.main import run
from horolog.errors import ErrorCode, HorologError
from horolog.lake.table import delta
from horolog.pipeline.audit import audit
from horolog.pipeline.forecast import forecast
from horolog.pipeline.log_source import LogSource
from horolog.pipeline.offload import abort_open, offload
from horolog.pipeline.pending_source import PendingSource
from horolog.pipeline.rebuild import rebuild
from horolog.places import is_irregular, local_place
from horolog.spark.bulk_load import bulk_load
from horolog.spark.delta_append import DeltaAppend
from horolog.spark.reading_options import due_options, topic_options

BUCKET = "s3a://bucket/lake"
SILENT = "http://127.0.0.1:9"  # nobody is asked


def test_paths_and_file_urls_are_places() -> None:
    for given, meant in (
        ("/lake", "/lake"),
        ("lake/a b", "lake/a b"),
        ("./s3a:", "./s3a:"),
        ("file:///lake/a%20b", "/lake/a b"),
        ("file:/lake", "/lake"),
        ("file://localhost/lake", "/lake"),
        (Path("/lake"), "/lake"),
    ):
        assert local_place(given, "x") == meant


@pytest.mark.parametrize(
    "given",
    [
        "",
        BUCKET,
        "S3A://bucket",
        "s3:/bucket",
        "hdfs://name/dir",
        "abfss://c@a/dir",
        "dbfs:/dir",
        "gs:dir",
        "file://host/dir",
        "file:dir",
        " s3a://bucket",
        Path(BUCKET),
    ],
)
def test_others_are_refused(given) -> None:
    with pytest.raises(HorologError, match=r"^--rejects: .*a plain path or a file:// URL") as error:
        local_place(given, "--rejects")
    assert error.value.code is ErrorCode.BAD_REQUEST
    assert error.value.field == "--rejects"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: DeltaAppend(BUCKET), "table"),
        (lambda: offload(AdminClient(SILENT), BUCKET, 0), "LAKE"),
        (lambda: abort_open(AdminClient(SILENT), BUCKET), "LAKE"),
        (lambda: delta.open_table(BUCKET), "lake"),
        (lambda: delta.has_table(BUCKET), "lake"),
        (lambda: delta.is_committed(BUCKET, "0", 1), "lake"),
        (lambda: bulk_load(None, broker=SILENT, topic="t", rejects=BUCKET), "rejects"),
        (lambda: audit(None, Path(BUCKET)), "DATA_DIR"),
        (lambda: audit(None, Path("d"), out=Path(BUCKET)), "--out"),
        (lambda: forecast(None, Path("d"), out=Path(BUCKET)), "--out"),
        (lambda: rebuild(None, Path("d"), Path(BUCKET)), "--out"),
        (lambda: due_options({"path": BUCKET}), "option 'path'"),
        (lambda: topic_options({"topic": "t", "path": BUCKET}, is_stream=False), "option 'path'"),
        (lambda: LogSource({"path": BUCKET}).reader(LogSource({}).schema()), "option 'path'"),
        (
            lambda: PendingSource({"path": BUCKET}).reader(PendingSource({}).schema()),
            "option 'path'",
        ),
    ],
)
def test_everything_that_takes_a_place_refuses_a_bucket(call, what, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HorologError) as error:
        call()
    assert error.value.message.startswith(f"{what}: ")
    assert "s3a: is not supported" in error.value.message
    assert list(tmp_path.iterdir()) == []


def test_no_load_runs_whose_refused_rows_could_not_be_kept(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("users.csv").write_text("a\n")
    for place in ("users.csv", "users.csv/bad"):
        with pytest.raises(HorologError, match=r"^rejects: .*users\.csv is no directory") as error:
            bulk_load(None, broker=SILENT, topic="t", rejects=place)
        assert error.value.code is ErrorCode.BAD_REQUEST
    words = ["users.csv", "--topic", "t", "--deliver-at", "at", "--rejects", "users.csv"]
    assert run(["pipeline", "load", *words]) == 2
    assert "--rejects: users.csv cannot be made" in capsys.readouterr().err


def test_an_audit_of_no_time_at_all_proves_nothing(capsys) -> None:
    """With the dates the wrong way round it found no fault."""
    window = ["--from", "2026-03-02T00:00Z", "--to", "2026-03-01T00:00Z"]
    assert run(["pipeline", "audit", "d", *window]) == 2
    assert "--to: is not after --from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["offload", BUCKET, "--admin", SILENT], "LAKE"),
        (["offload", BUCKET, "--abort", "--admin", SILENT], "LAKE"),
        (
            ["load", "a.csv", "--topic", "t", "--deliver-at", "at", "--rejects", BUCKET],
            "--rejects",
        ),
        (["audit", BUCKET], "DATA_DIR"),
        (["audit", "d", "--out", BUCKET], "--out"),
        (["forecast", "d", "--out", BUCKET], "--out"),
        (["rebuild", "d", "--out", BUCKET], "--out"),
    ],
)
def test_commands_name_the_flag(words, flag, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", *words]) == 2
    output = capsys.readouterr().err
    assert output.startswith(
        f"horolog: {flag}: 's3a://bucket/lake' s3a: is not supported; it must be"
    )
    assert output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["serve", "--data-dir", BUCKET, "--grpc-port", "0", "--admin-port", "0"], "--data-dir"),
        (["backup", BUCKET, "--admin", SILENT], "DIR"),
        (["restore", BUCKET, "--data-dir", "d"], "BACKUP"),
        (["restore", "b", "--data-dir", BUCKET], "--data-dir"),
    ],
)
def test_a_bucket_is_no_directory_of_a_broker_or_a_backup(
    words, flag, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) != 0
    output = capsys.readouterr().err
    assert output.startswith(f"horolog: {flag}: 's3a:/bucket/lake' ")
    assert "s3a: is not supported; it must be a plain path" in output
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_looked_up_is_not_irregular(tmp_path: Path) -> None:
    """A directory that could not be searched ended a reload before the access file was read."""
    long = tmp_path / ("x" * 300)  # refused by the kernel, also for root
    assert not is_irregular(long)
    assert is_irregular(tmp_path)
    assert not is_irregular(tmp_path / "missing")
