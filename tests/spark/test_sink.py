"""`df.write.format("horolog")`: all rows, once, with everything a message has; refusals before any job."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import AnalysisException, PySparkException
from received import bodies, received

from horolog.spark import make_session
from horolog.spark.failures import sentence_of

pytestmark = pytest.mark.process


def options(broker):
    return {"broker": broker.admin_url, "topic": "t", "deliverAtUnit": "ms"}


def write(df, to, **more) -> None:
    chosen = options(to) | more
    df.write.format("horolog").options(**chosen).mode("append").save()


def rows(spark, broker, count, first=0):
    """Messages m0, m1 … due one second apart, from one second on."""
    now = broker.now_ms()
    return spark.range(first, first + count).selectExpr(
        "concat('m', id) as body", f"{now} + 1000 * (id + 1) as deliver_at"
    )


def test_rows_become_messages(spark, broker) -> None:
    broker.create_topic("t")
    at = dt.datetime.fromtimestamp(broker.now_ms() / 1_000 + 60, dt.UTC)
    df = spark.createDataFrame(
        [
            (
                bytearray(b"one"),
                at + dt.timedelta(seconds=2),
                "red",
                ["a", "b"],
                "id-1",
                {"k": "v"},
            ),
            (bytearray(b"two"), at + dt.timedelta(seconds=1), None, None, "id-2", None),
        ],
        "body binary, deliver_at timestamp, tag string, keys array<string>, message_id string,"
        " properties map<string,string>",
    )
    write(df.coalesce(1), broker)
    assert broker.pending("t") == 2
    broker.advance("61500ms")
    (first,) = received(broker, "t")
    assert (first["body"], first["message_id"], first["tag"]) == ("two", "id-2", "")
    broker.advance("1s")
    (second,) = received(broker, "t")
    assert (second["body"], second["message_id"], second["tag"]) == ("one", "id-1", "red")
    assert second["keys"] == ["a", "b"]
    assert second["properties"] == {"k": "v"}
    assert second["deliver_at_ms"] == round((at + dt.timedelta(seconds=2)).timestamp() * 1_000)


def test_a_job_id_is_written_once(spark, broker) -> None:
    broker.create_topic("t")
    for _ in range(2):
        write(rows(spark, broker, 20), broker, jobId="march")
    write(rows(spark, broker, 5, first=100), broker, jobId="april")
    broker.advance("1h")
    assert sorted(bodies(broker, "t")) == sorted(f"m{i}" for i in [*range(20), *range(100, 105)])


def test_files_go_through_the_broker_without_a_shared_directory(spark, broker) -> None:
    broker.create_topic("t")
    write(rows(spark, broker, 50), broker, staging="upload", rowsPerFile="10")
    broker.advance("1h")
    assert bodies(broker, "t") == [f"m{i}" for i in range(50)]


def test_no_rows_are_a_transaction_too(spark, broker) -> None:
    broker.create_topic("t")
    write(rows(spark, broker, 0), broker, jobId="none")
    assert broker.admin.get("/v1/adoptions", {"app": "none"})["version"] == 0


def test_a_view_is_inserted_into(spark, broker) -> None:
    broker.create_topic("t")
    now = broker.now_ms()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW future (body STRING, deliver_at BIGINT) USING horolog"
        f" OPTIONS (broker '{broker.admin_url}', topic 't', deliverAtUnit 'ms')"
    )
    spark.sql(f"INSERT INTO future SELECT concat('m', id), {now} + 1000 + id FROM range(3)")
    broker.advance("1h")
    assert bodies(broker, "t") == ["m0", "m1", "m2"]


@pytest.mark.parametrize(
    ("select", "more", "expected"),
    [
        (["1L as deliver_at"], {}, "column 'body': is required; there are deliver_at"),
        (["'b' as body"], {}, "column 'deliver_at': is required; there are body"),
        (["'b' as body", "1L as deliver_at", "'c' as body"], {}, "column 'body': is there more than"),
        (["'b' as body", "'x' as deliver_at"], {}, "column 'deliver_at': is string; it must be"),
        (["'b' as body", "1L as deliver_at", "1 as tga"], {}, "column 'tga': there is no such"),
        (["'b' as body", "1L as deliver_at"], {"staging": "ftp"}, "option 'staging': 'ftp' is none"),
        (["'b' as body", "1L as deliver_at"], {"deliverAtUnit": ""}, "column 'deliver_at': is bigint; say what it counts since 1970 with deliverAtUnit (ms, s, us)"),
        (["'b' as body", "1L as deliver_at"], {"deliverAtUnit": "h"}, "option 'deliverAtUnit': 'h' is none of ms, s, us"),
        (["'b' as body", "1L as deliver_at"], {"overdueMax": "1"}, "option 'overdueMax': '1' is not a duration"),
        (["'b' as body", "1L as deliver_at"], {"jobId": "ä" * 101}, "option 'jobId': is longer than 200 bytes"),
        (["'b' as body", "1L as deliver_at"], {"topik": "t"}, "option 'topik': there is no such"),
        (["'b' as body", "1L as deliver_at"], {"topic": ""}, "option 'topic': is required"),
        (["'b' as body", "1L as deliver_at"], {"topic": "a b"}, "option 'topic': topic 'a b' has characters other"),
        (["'b' as body", "1L as deliver_at"], {"topic": "none"}, "topic 'none' does not exist"),
        (["'b' as body", "1L as deliver_at"], {"broker": "x"}, "option 'broker': 'x' is not a URL"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_any_job(spark, shared_broker, select, more, expected) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = tracker.getJobIdsForGroup(None)
    with pytest.raises(AnalysisException) as refused:
        write(spark.range(1).selectExpr(*select), shared_broker, **more)
    assert expected in sentence_of(refused.value)
    assert tracker.getJobIdsForGroup(None) == before


def test_a_thread_of_its_own_writes_once_it_has_asked_for_the_session(spark, broker) -> None:
    """Spark looks for sources in Python only in threads in which a session is active."""
    broker.create_topic("t")
    df = rows(spark, broker, 3)

    def in_thread() -> None:
        assert make_session("another name") is spark
        write(df, broker)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(in_thread).result()
    assert broker.pending("t") == 3


def test_a_topic_is_not_overwritten(spark, shared_broker) -> None:
    df = spark.range(1).selectExpr("'b' as body", "1L as deliver_at")
    with pytest.raises(AnalysisException, match="use mode append"):
        df.write.format("horolog").options(**options(shared_broker)).mode("overwrite").save()


@pytest.mark.parametrize(
    ("body", "deliver_at", "expected"),
    [
        ("''", "{now} + id", "body: empty; at least 1 byte is needed; partition 0, row 0: body="),
        ("'b'", "{now} - 86400001", "and what was due before "),
    ],
)  # what else may be wrong with a value: test_rows
def test_a_bad_value_ends_the_write_and_nothing_is_scheduled(
    spark, shared_broker, body, deliver_at, expected
) -> None:
    df = spark.range(2).selectExpr(
        f"{body} as body",
        f"cast({deliver_at} as bigint) as deliver_at".format(now=shared_broker.now_ms()),
    )
    with pytest.raises(PySparkException) as refused:
        write(df.coalesce(1), shared_broker)
    assert expected in sentence_of(refused.value)
    assert shared_broker.pending("t") == 0
