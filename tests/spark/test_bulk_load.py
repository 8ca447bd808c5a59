"""Bulk load: all rows or none, refused rows with their reason, and never twice."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from admin_proxy import AdminProxy
from pyspark.errors import PySparkException
from received import bodies, received

from horolog.cli.main import run
from horolog.errors import HorologError
from horolog.limits import HOUR_MS
from horolog.spark import bulk_load, load_plan
from horolog.spark.failures import sentence_of
from horolog.spark.load_input import Columns, read_input, selected
from horolog.spark.load_job import batch_settings
from horolog.spark.sink_columns import Unit
from horolog.spark.sink_options import sink_options
from horolog.spark.staged_runs import Task, stage
from horolog.spark.transaction import begin

pytestmark = pytest.mark.process


def load(df, broker, **more):
    return bulk_load(df, broker=broker.admin_url, topic="t", **{"deliver_at_unit": "ms", **more})


def test_skewed_rows_are_cut_into_slices_and_come_in_order(spark, broker, monkeypatch) -> None:
    """Half of the rows in one millisecond; each row's due time stands in its body."""
    monkeypatch.setattr(load_plan, "SLICE_ROWS_MIN", 100)
    broker.create_topic("t")
    start = broker.now_ms() + 48 * HOUR_MS
    df = spark.range(0, 2_000, 1, 3).selectExpr(
        f"{start} + if(id % 2 = 0, 1800000, pmod(xxhash64(id), 7200000)) as deliver_at",
        "concat(id, ' ', if(id % 2 = 0, 1800000, pmod(xxhash64(id), 7200000))) as body",
        "map('a', cast(id as string)) as properties",
    )
    result = load(df, broker)
    assert (result.rows, result.rejected, result.already) == (2_000, 0, False)
    assert result.files >= 4
    assert broker.pending("t") == 2_000
    broker.advance(48 * HOUR_MS + 3 * HOUR_MS)
    found = [tuple(int(part) for part in body.split()) for body in bodies(broker, "t")]
    assert sorted(number for number, _ in found) == list(range(2_000))
    assert [due for _, due in found] == sorted(due for _, due in found)


BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def limit_in(df, rows: int) -> str:
    with batch_settings(df, rows):
        return df.sparkSession.conf.get(BYTES)


def test_batches_have_no_limit_of_bytes_where_rows_are_small(spark, tmp_path) -> None:
    before = spark.conf.get(BYTES)
    small = spark.range(1_000).selectExpr("cast(id as string) as body", "id as deliver_at")
    assert limit_in(small, 1_000) == str((1 << 31) - 1)
    large = spark.range(4).selectExpr(
        "repeat(sha2(cast(id as string), 256), 5000) as body", "id as deliver_at"
    )
    large.write.parquet(str(tmp_path / "large"), compression="none")
    assert limit_in(spark.read.parquet(str(tmp_path / "large")), 4) == before
    unknown = spark.createDataFrame([(b"x", 1)], "body binary, deliver_at long")
    assert limit_in(unknown, 1) == before
    assert spark.conf.get(BYTES) == before


def test_settings_of_batches_that_somebody_has_made_stay(spark) -> None:
    small = spark.range(1_000).selectExpr("cast(id as string) as body", "id as deliver_at")
    spark.conf.set(BYTES, "1234567")
    try:
        assert limit_in(small, 1_000).rstrip("b") == "1234567"
        assert spark.conf.get(BYTES).rstrip("b") == "1234567"
    finally:
        spark.conf.unset(BYTES)


def mixed(spark, broker):
    now = broker.now_ms()
    return spark.range(100).selectExpr(
        "if(id % 50 = 7, '', concat('m', id)) as body",
        f"if(id = 9, null, {now} + 1000 + id) as deliver_at",
        "if(id = 11, 'a|b', null) as tag",
    )


def test_refused_rows_go_to_a_table_with_the_reason(spark, broker, tmp_path) -> None:
    broker.create_topic("t")
    result = load(mixed(spark, broker), broker, rejects=tmp_path / "bad")
    assert (result.rows, result.rejected) == (96, 4)
    refused = pq.read_table(result.rejects).to_pylist()
    assert sorted(row["reason"].partition(":")[0] for row in refused) == [
        "body", "body", "deliver_at", "tag",
    ]  # fmt: skip
    assert {row["body"] for row in refused} == {"", "m9", "m11"}
    assert broker.pending("t") == 96


def test_one_bad_row_refuses_the_load_when_there_is_no_place_for_it(spark, broker) -> None:
    broker.create_topic("t")
    with pytest.raises(HorologError) as refused:
        load(mixed(spark, broker), broker, job_id="j")
    assert "4 of 100 may not become messages" in refused.value.message
    assert "nothing was loaded" in refused.value.message
    assert re.search(r"\), for example \w+=.*; so nothing", refused.value.message)
    assert broker.pending("t") == 0
    assert broker.admin.get("/v1/adoptions", {"app": "j"})["version"] == -1
    assert list((broker.data_dir).rglob("staging/*")) == []


DIES_BEFORE_COMMIT = """
import os, sys
from horolog.spark import bulk_load, make_session, transaction
transaction.commit = lambda *given: (print("staged", flush=True), os.kill(os.getpid(), 9))
session = make_session("dies", master="local[1]", conf={"spark.driver.memory": "512m"})
now = int(sys.argv[2])
df = session.range(50).selectExpr("concat('m', id) as body", f"{now} + 1000 + id as deliver_at")
bulk_load(df, broker=sys.argv[1], topic="t", job_id="march", deliver_at_unit="ms")
"""


def test_a_load_that_is_repeated_is_there_once(spark, broker) -> None:
    """After one that has staged its files and was heard of no more; then again."""
    broker.create_topic("t")
    now = broker.now_ms()
    given = {"broker": broker.admin_url, "topic": "t", "jobId": "march", "deliverAtUnit": "ms"}
    left = begin(broker.admin_url, "march", 0, "t", 60_000)
    rows = {
        "body": [f"m{i}" for i in range(50)],
        "deliver_at": [now + 1_000 + i for i in range(50)],
    }
    assert stage(Task(left, sink_options(given), 0, 0), pa.table(rows).to_batches()).files
    assert broker.pending("t") == 0
    loaded_once(spark, broker, now)


@pytest.mark.parametrize(("job_id", "rows"), [("", 50), ("march", 0)])
def test_a_load_whose_answer_was_lost_counts_its_rows(spark, broker, job_id, rows) -> None:
    """Under a name, another driver may have committed the same rows meanwhile."""
    broker.create_topic("t")
    lost = []

    def hook(path, forward):
        answer = forward()
        if path.endswith("/commit") and not lost:
            lost.append(path)
            return None
        return answer

    due = f"{broker.now_ms()} + 1000 + id as deliver_at"
    df = spark.range(50).selectExpr("concat('m', id) as body", due)
    with AdminProxy(broker.admin_url, hook) as proxy:
        done = bulk_load(df, broker=proxy.url, topic="t", deliver_at_unit="ms", job_id=job_id)
    assert (len(lost), done.already, done.rows) == (1, not rows, rows)
    assert broker.pending("t") == 50


@pytest.mark.slow
def test_a_load_is_there_once_whose_driver_is_killed_before_the_commit(spark, broker) -> None:
    broker.create_topic("t")
    now = broker.now_ms()
    died = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_COMMIT, broker.admin_url, str(now)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=dict(os.environ),
    )
    assert (died.returncode, died.stdout) == (-9, "staged\n"), died.stderr
    assert broker.pending("t") == 0
    loaded_once(spark, broker, now)


def loaded_once(spark, broker, now: int) -> None:
    df = spark.range(50).selectExpr("concat('m', id) as body", f"{now} + 1000 + id as deliver_at")
    assert load(df, broker, job_id="march").rows == 50
    again = load(df, broker, job_id="march")
    assert (again.already, again.rows) == (True, 0)
    broker.advance("1h")
    assert sorted(bodies(broker, "t")) == sorted(f"m{i}" for i in range(50))


def test_the_command_loads_a_csv(spark, broker, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is everybody's
    broker.create_topic("t")
    now = broker.now_ms()
    lines = [
        "user,at,group",
        *(f"u{i},{now + 1000 + i},g{i % 2}" for i in range(10)),
        "u10,soon,g0",
    ]
    (tmp_path / "users.csv").write_text("\n".join(lines))
    base = ["pipeline", "load", str(tmp_path / "users.csv"), "--topic", "t"]
    base += ["--admin", broker.admin_url, "--job-id", "csv", "--json"]
    assert run([*base, "--deliver-at", "nowhere"]) == 2
    assert "--deliver-at: 'nowhere'" in capsys.readouterr().err
    assert run([*base, "--deliver-at", "at"]) == 4
    assert "is a number without a unit" in capsys.readouterr().err
    base += ["--deliver-at-unit", "ms"]
    assert run([*base, "--deliver-at", "at"]) == 4
    text = "1 of 11 may not become messages (deliver_at: 'soon' is no time)"
    assert text in capsys.readouterr().err
    more = ["--deliver-at", "at", "--tag", "`group`", "--property", "who=user"]
    more += ["--rejects", str(tmp_path / "bad")]
    assert run([*base, *more]) == 0
    text = json.loads(capsys.readouterr().out)
    assert (text["rows"], text["rejected"]) == (10, 1)
    broker.advance("1h")
    messages = received(broker, "t")
    assert [json.loads(message["body"])["user"] for message in messages] == [
        f"u{i}" for i in range(10)
    ]
    assert [message["properties"] for message in messages] == [{"who": f"u{i}"} for i in range(10)]
    assert {message["tag"] for message in messages} == {"g0", "g1"}
    assert run([*base, *more]) == 0
    assert json.loads(capsys.readouterr().out)["already"] is True


def test_the_command_loads_a_table_of_a_database(spark, broker, tmp_path, capsys, monkeypatch):
    """Of Derby, which is part of Spark; upper case and decimals are what databases give."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    broker.create_topic("t")
    url = f"jdbc:derby:{tmp_path / 'shop'}"
    system = spark.sparkContext._jvm.java.lang.System
    system.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    soon = broker.now_ms() + 1000
    users = spark.range(20).selectExpr(
        "concat('u', id) as NAME",
        f"cast({soon} + id as decimal(20, 0)) as REMIND_MS",
        f"timestamp_millis({soon} + id) as REMIND_AT",
        "if(id < 10, 'news', 'mail') as KIND",
    )
    table = {
        "url": f"{url};create=true",
        "dbtable": "users",
        "createTableColumnTypes": "KIND varchar(9)",
    }
    users.write.format("jdbc").options(**table).save()
    base = ["pipeline", "load", "--jdbc", url, "--topic", "t", "--admin", broker.admin_url]
    base += ["--body", "name", "--tag", "kind", "--conf", "spark.app.name=shop", "--json"]
    assert run([*base, "--table", "nowhere", "--deliver-at", "remind_at"]) == 1
    error = capsys.readouterr().err
    assert "--jdbc: " in error
    assert "'NOWHERE' does not exist" in error
    news = "(select * from users where kind = 'news') n"
    assert run([*base, "--table", news, "--deliver-at", "remind_at"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 10
    mail = "(select * from users where kind = 'mail') m"
    assert run([*base, "--table", mail, "--deliver-at", "remind_ms", "--keys", "name"]) == 2
    assert "--deliver-at-unit: " in capsys.readouterr().err
    mail_ms = ["--table", mail, "--deliver-at", "remind_ms", "--deliver-at-unit", "ms"]
    assert run([*base, *mail_ms, "--keys", "name"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 10
    broker.advance("1h")
    messages = received(broker, "t")
    assert [message["body"] for message in messages] == [f"u{i}" for i in range(20)]
    assert [message["tag"] for message in messages] == ["news"] * 10 + ["mail"] * 10


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["x.csv"], 3, "FILE: "),
        (["--jdbc", "jdbc:x", "--table", "t"], 1, "--conf spark.jars=FILE"),
        (["x.txt"], 2, "'x.txt' has none of the extensions .csv, .json, .jsonl, .parquet, .pq"),
        (["x.csv", "y.parquet"], 2, "all files must be of one kind"),
        (["x.csv", "--jdbc", "jdbc:x", "--table", "t"], 2, "give files, or --jdbc and --table"),
        (["x.csv", "--table", "t"], 2, "goes together with --jdbc"),
        (["x.csv", "--property", "a"], 2, "'a' is not NAME=EXPR"),
        (["x.csv", "--conf", "spark.jars"], 2, "--conf: 'spark.jars' is not NAME=VALUE"),
    ],
)
def test_wrong_flags_are_named(spark, monkeypatch, capsys, arguments, code, expected) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    command = ["pipeline", "load", *arguments, "--topic", "t", "--deliver-at", "at"]
    assert run(command) == code
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_a_due_time_in_seconds_is_what_it_says(spark, broker, tmp_path) -> None:
    """With its unit it is due then; with a wrong one it is refused, and not visible at once."""
    broker.create_topic("t")
    now_s = broker.now_ms() // 1_000
    df = spark.range(20).selectExpr("concat('m', id) as body", f"{now_s} + 3600 + id as deliver_at")
    with pytest.raises(HorologError, match="say what it counts since 1970 with deliverAtUnit"):
        load(df, broker, deliver_at_unit="")
    wrong = load(df, broker, rejects=tmp_path)
    assert (wrong.rows, wrong.rejected) == (0, 20)
    reasons = pq.read_table(wrong.rejects).column("reason").to_pylist()
    assert all(" ms is 1970-01-" in reason for reason in reasons)
    assert load(df, broker, deliver_at_unit="s").rows == 20
    assert broker.pending("t") == 20
    broker.advance("59m")
    assert bodies(broker, "t") == []
    broker.advance("2m")
    assert bodies(broker, "t") == [f"m{i}" for i in range(20)]


def test_how_long_rows_may_be_overdue_is_a_setting(spark, broker) -> None:
    broker.create_topic("t")
    df = spark.range(3).selectExpr(
        "concat('m', id) as body", f"{broker.now_ms()} - 2 * 86400000 as deliver_at"
    )
    with pytest.raises(HorologError, match="3 of 3 may not become messages"):
        load(df, broker)
    assert load(df, broker, overdue_max="3d").rows == 3
    assert sorted(bodies(broker, "t")) == ["m0", "m1", "m2"]


def test_texts_are_read_as_spreadsheets_and_databases_write_them(spark, tmp_path) -> None:
    """Spark would take a backslash for what escapes a quote, and leave the quotes in the text."""
    texts = ['{"a": "b"}', 'say "hi", you', "ends with \\", "Grüße"]
    with gzip.open(tmp_path / "texts.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    found = read_input(spark, [str(tmp_path / "texts.csv.gz")], "", "").collect()
    assert [row.text for row in found] == texts
    with (tmp_path / "lines.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["text", "n"], ["two\nlines", 1]])
    options = {"multiLine": "true", "sep": ";"}
    (row,) = read_input(spark, [str(tmp_path / "lines.csv")], "", "", options).collect()
    assert (row.text, row.n) == ("two\nlines", "1")
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    (tmp_path / "texts.jsonl").write_text(lines)
    found = read_input(spark, [str(tmp_path / "texts.jsonl")], "", "").collect()
    assert [row.text for row in found] == texts


def the_guides_csv() -> list[str]:
    """The words of the example with users.csv."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"
    (line,) = [line for line in guide.read_text().splitlines() if "load users.csv" in line]
    return shlex.split(line)[1:]


def test_the_guides_csv_is_loaded_but_for_its_bad_dates(
    spark, broker, tmp_path, capsys, monkeypatch
) -> None:
    """The due time is worked out of texts; a text that is no date is refused, and not the death of the load."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    broker.create_topic("mail")
    day = dt.datetime.fromtimestamp(broker.now_ms() / 1_000, dt.UTC).date()
    dates = [str(day), "not a date", "", f"{day} 10:00:00", "2023-13-45", str(day)]
    rows = ["name,signed_up", *(f"u{i},{date}" for i, date in enumerate(dates))]
    (tmp_path / "users.csv").write_text("\n".join(rows))
    places = {"users.csv": f"{tmp_path}/users.csv", "./rejects": f"{tmp_path}/rejects"}
    words = [places.get(word, word) for word in the_guides_csv()]
    without = words[: words.index("--rejects")]
    assert run([*without, "--admin", broker.admin_url]) == 4
    assert "3 of 6 may not become messages" in capsys.readouterr().err
    assert broker.pending("mail") == 0
    assert run([*words, "--admin", broker.admin_url, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["rows"], output["rejected"]) == (3, 3)
    assert sorted(pq.read_table(output["rejects"]).column("reason").to_pylist()) == [
        "deliver_at: '2023-13-45' is no time",
        "deliver_at: 'not a date' is no time",
        "deliver_at: is null",
    ]
    broker.advance("31d")
    assert sorted(json.loads(body)["name"] for body in bodies(broker, "mail")) == ["u0", "u3", "u5"]


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 18), ("America/New_York", 23)])
def test_texts_are_in_the_zone_of_the_session_and_have_a_date(spark, zone, hour) -> None:
    """Spark would read a time of day as one of today, and a failing text must not end the load."""
    texts = ["2030-01-01 18:00", "2030-01-01T18:00:00+01:00", "18:00", "T18:00:00", "18:00 UTC", ""]
    df = spark.createDataFrame([(text,) for text in texts], "at string")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        fails = "if(at = '', raise_error('no text'), at)"
        due = selected(df, Columns(fails, body="at")).selectExpr("unix_millis(deliver_at) as ms")
        found = [row.ms for row in due.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    day_ms = 1_893_456_000_000
    assert found == [day_ms + hour * HOUR_MS, day_ms + 17 * HOUR_MS, None, None, None, None]


def test_local_times_that_a_clock_change_skips_or_repeats(spark) -> None:
    """As the guide says: an hour later, and the first of the two."""
    texts = ["2027-03-28 02:30", "2027-03-28 03:30", "2027-10-31 02:30", "2027-10-31 03:30"]
    df = spark.createDataFrame([(text,) for text in texts], "at string")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        due = selected(df, Columns("at", body="at")).selectExpr("unix_seconds(deliver_at) as s")
        found = [row.s for row in due.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == [1_806_197_400, 1_806_197_400, 1_824_942_600, 1_824_942_600 + 2 * 3_600]


def test_a_due_time_that_overflows_is_refused(spark, broker, tmp_path) -> None:
    columns = Columns("at * 1000 + day * 1000", body="text", tag="text")
    now_s = broker.now_ms() // 1_000
    df = spark.createDataFrame(
        [(now_s, 60, "a"), (now_s, (1 << 63) - 1, "b")], "at long, day long, text string"
    )
    broker.create_topic("t")
    result = load(selected(df, columns, Unit.MS), broker, rejects=tmp_path)
    assert (result.rows, result.rejected) == (1, 1)
    (refused,) = pq.read_table(result.rejects).to_pylist()
    assert refused["reason"] == f"deliver_at: '{now_s}, {(1 << 63) - 1}' is no time"


def test_other_rows_under_the_same_job_id_are_refused(spark, broker, tmp_path) -> None:
    """The same ones in another order and in other parts are a repeat, whichever way they come."""
    for topic in ("t", "u"):
        broker.create_topic(topic)
    now = broker.now_ms()
    df = spark.range(0, 40, 1, 3).selectExpr(
        "concat('m', id) as body", f"{now} + 1000 + id as deliver_at", "map('a', 'b') as properties"
    )
    bad = df.union(spark.sql(f"select '', {now}L, map('a', 'b')"))
    assert load(bad, broker, job_id="march", rejects=tmp_path).rows == 40
    again = load(bad.orderBy("body").coalesce(1), broker, job_id="march")
    assert (again.already, again.rows) == (True, 0)
    options = {"broker": broker.admin_url, "topic": "t", "jobId": "march", "deliverAtUnit": "ms"}
    bad.repartition(2).write.format("horolog").options(**options).mode("append").save()
    text = r"'march' has committed version 0 as 't: 41 rows, sum \w{16}', and this is '"
    with pytest.raises(HorologError, match=text + "t: 40 rows, sum"):
        load(df, broker, job_id="march")
    with pytest.raises(HorologError, match=text + "u: 41 rows, sum"):
        bulk_load(bad, broker=broker.admin_url, topic="u", job_id="march", deliver_at_unit="ms")
    with pytest.raises(PySparkException) as refused:
        df.write.format("horolog").options(**options).mode("append").save()
    assert re.search(text + "t: 40 rows", sentence_of(refused.value))
    assert broker.pending() == 40
