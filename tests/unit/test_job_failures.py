"""What fails below a job is one sentence, whoever says it; our own mistakes are not hidden."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from horolog.errors import ErrorCode, HorologError
from horolog.spark.due_source import now_ms
from horolog.spark.failures import job_failures
from horolog.spark.message_columns import MESSAGE_SCHEMA
from horolog.spark.reading import batch_reader
from horolog.spark.reading_options import due_options
from horolog.spark.sink_columns import Target
from horolog.spark.sink_options import sink_options
from horolog.spark.transaction import StagedRun, Transaction
from horolog.spark.writing import BatchWriter, Staged, StreamWriter, batch_writer, stream_writer
from horolog.testing.broker import installed_command

OF_A_WORKER = """An exception was thrown from the Python worker:

Traceback (most recent call last):
  File "rows.py", line 95, in write_unit
OSError: [Errno 28] No space left on device: '/lake'"""
OF_A_STAGE = """An error occurred while calling o7.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.ThreadUtils.awaitResult(ThreadUtils.scala:1)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Cannot read a.parquet. SQLSTATE: KD001
\tat org.apache.spark.sql.Errors(Errors.scala:1)
Caused by: org.apache.parquet.ParquetDecodingException: CRC checksum verification failed
\tat java.lang.Thread.run(Thread.java:1)"""
SILENT = "http://127.0.0.1:1"
SHORT = {"timeout": "1ms"}
NOT_WRITABLE = OSError(30, "Read-only file system", "/lake/number=1")


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (NOT_WRITABLE, ErrorCode.DISK_FAILED, "offload: /lake/number=1: Read-only file system; a job may"),
        (OSError("Couldn't deserialize thrift\nmore"), ErrorCode.DISK_FAILED, "offload: Couldn't deserialize thrift; a"),
        (pa.ArrowInvalid("no footer"), ErrorCode.SPARK_FAILED, "offload: no footer; a job may be run again"),
        (PySparkException("[BAD] it is\n\nJVM stacktrace:\nat a"), ErrorCode.SPARK_FAILED, "offload: [BAD] it is; a job"),
        (PySparkException(OF_A_WORKER), ErrorCode.SPARK_FAILED, "offload: [Errno 28] No space left on device: '/lake'; a job"),
        (Py4JError(OF_A_STAGE), ErrorCode.SPARK_FAILED, "offload: [FAILED_READ_FILE.NO_HINT] Cannot read a.parquet: CRC checksum verification failed; a job"),
        (Py4JNetworkError("Answer from Java side is empty"), ErrorCode.SPARK_FAILED, "offload: Answer from Java side"),
    ],
)  # fmt: skip
def test_what_libraries_say_is_a_sentence(error, code, says) -> None:
    with pytest.raises(HorologError) as failed, job_failures("offload"):
        raise error
    assert failed.value.code is code
    assert failed.value.message.startswith(says)
    assert "\n" not in failed.value.message


def test_refusals_and_mistakes_of_ours_stay_what_they_are() -> None:
    for error in (HorologError(ErrorCode.CONFIG, "no"), AssertionError("ours"), KeyError("ours")):
        with pytest.raises(type(error)) as failed, job_failures("offload"):
            raise error
        assert failed.value is error


def test_a_broker_that_does_not_answer_is_reported_with_the_option_that_names_it(tmp_path) -> None:
    """In Spark nobody has typed a flag."""
    asked = {"broker": SILENT, "topic": "t", "timeout": "1ms"}
    rows = StructType().add("body", "string").add("deliver_at", "timestamp")
    target = Target("t", 1, 1, 1, 2, 1, (bytes(4), 0))
    begun = Transaction(SILENT, "app", 0, "token", "", False, target, 1)
    staged = [Staged(begun, [StagedRun("0.run", 1, 1, 1, 1, 1)])]
    sink = sink_options(asked)
    calls: tuple[tuple[str, Callable[[], object]], ...] = (
        ("broker", lambda: batch_writer(asked, rows, False)),
        ("broker", lambda: stream_writer(asked, rows, False)),
        ("broker", lambda: BatchWriter(sink, begun).commit(staged)),
        ("broker", lambda: StreamWriter(sink).commit(staged, 0)),
        ("broker", lambda: batch_reader(asked, MESSAGE_SCHEMA).partitions()),
        ("clock", lambda: now_ms(due_options({"path": str(tmp_path), "clock": SILENT, **SHORT}))),
    )
    for option, call in calls:
        with pytest.raises(HorologError) as failed:
            call()
        assert failed.value.field == option
        said = failed.value.message
        assert said.startswith(f"option '{option}': no broker answers at {SILENT} ("), said
        assert said.endswith("; start one with `horolog serve`, or name another"), said


def test_who_watches_goes_on_while_no_broker_answers() -> None:
    command = [
        *installed_command(),
        "pipeline",
        "promote",
        "--watch",
        "--admin",
        "http://127.0.0.1:9",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stderr is not None
            line = watching.stderr.readline()
            assert line.startswith("horolog: no broker answers at http://127.0.0.1:9 (")
            assert line.endswith("; tried again in five minutes\n")
            assert watching.poll() is None
        finally:
            watching.kill()
