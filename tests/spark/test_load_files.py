"""Files as strangers have them: lines that are no rows are refused with their text, and all others are loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from received import bodies

from horolog.cli.main import run
from horolog.errors import HorologError
from horolog.spark.bulk_load import bulk_load
from horolog.spark.load_input import Columns, read_input, selected
from horolog.spark.text_files import MALFORMED

pytestmark = pytest.mark.process
AT = "2100-01-01 00:00:00"


def rows_of(spark, tmp_path, name: str, content: str | bytes, body: str = "text", **options: str):
    """(body, malformed text) of each row of a file."""
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    df = selected(read_input(spark, [str(file)], "", "", options), Columns("at", body))
    return [(row.body, row.malformed_text) for row in df.select("body", "malformed_text").collect()]


def test_a_row_with_too_many_or_too_few_values_is_refused(spark, tmp_path) -> None:
    """Also if only some columns are asked for: else Spark fills it up, or cuts it."""
    lines = ["text,at,n", f"a,{AT},1", f"b,{AT}", f"c,{AT},3,4", f"d,{AT},5"]
    for body in ("text", "n || text"):
        found = rows_of(spark, tmp_path, "x.csv", "\n".join(lines), body)
        assert [line for _, line in found] == [None, lines[2], lines[3], None]
        assert [value is None for value, _ in found] == [False, True, True, False]
    (whole, *_) = rows_of(spark, tmp_path, "x.csv", "\n".join(lines), "to_json(struct(*))")
    assert json.loads(whole[0]) == {"text": "a", "at": AT, "n": "1"}


def test_bytes_that_are_no_utf_8_are_refused_and_not_replaced(spark, tmp_path) -> None:
    latin = f"text,at\na,{AT}\nGr\xfc\xdfe,{AT}\n".encode("latin-1")
    (_, refused) = rows_of(spark, tmp_path, "x.csv", latin)
    assert refused == (None, f"Gr\ufffd\ufffde,{AT}")
    found = rows_of(spark, tmp_path, "x.csv", latin, encoding="ISO-8859-1")
    assert found == [("a", None), ("Grüße", None)]
    lines = [f'{{"text":"{text}","at":"{AT}"}}'.encode("latin-1") for text in ("a", "Gr\xfc")]
    assert rows_of(spark, tmp_path, "x.jsonl", b"\n".join(lines)) == [
        ("a", None),
        (None, lines[1].decode(errors="replace")),
    ]


def test_a_mark_of_the_byte_order_is_no_part_of_a_name(spark, tmp_path) -> None:
    mark = "\ufeff"
    assert rows_of(spark, tmp_path, "x.csv", f"{mark}text,at\r\na,{AT}\r\n\r\n") == [("a", None)]
    one = json.dumps({"text": "a", "at": AT})
    assert rows_of(spark, tmp_path, "x.json", mark + one) == [("a", None)]


def test_a_column_that_is_not_there_is_refused_with_those_that_are(spark, tmp_path) -> None:
    with pytest.raises(HorologError, match=r"body: 'txt': .*`at`, `text`\]") as caught:
        rows_of(spark, tmp_path, "x.csv", f"text,at\na,{AT}\n", body="txt")
    assert MALFORMED not in str(caught.value)


def test_files_with_nothing_in_them(spark, tmp_path) -> None:
    assert rows_of(spark, tmp_path, "x.csv", "text,at\n") == []
    for name, what in (("x.csv", "column names"), ("x.json", "a JSON object")):
        with pytest.raises(HorologError, match=f"FILE: there is no line with {what} in .*{name}"):
            rows_of(spark, tmp_path, name, "")


@pytest.mark.parametrize(
    ("name", "says"), [("b.csv", "no line with column names in .*/b"), ("b.csv.gz", "has 0 bytes")]
)
def test_an_empty_file_among_others_is_refused(spark, tmp_path, name, says) -> None:
    """Spark passes over it, as if what was lost had never been there."""
    (tmp_path / "a.csv").write_text(f"text,at\na,{AT}\n")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(HorologError, match=says):
        read_input(spark, [str(tmp_path / "a.csv"), str(tmp_path / name)], "", "")


def test_an_empty_json_file_is_a_partition_without_rows(spark, tmp_path) -> None:
    """Spark writes one for an empty first partition, so it is no damage."""
    written = tmp_path / "x.json"
    spark.range(0, 4, 1, 2).where("id > 1").write.json(str(written))
    assert 0 in [part.stat().st_size for part in written.glob("part-*.json")]
    read = read_input(spark, [str(written)], "", "")
    assert sorted(row.id for row in read.collect()) == [2, 3]


def test_files_with_other_columns_are_not_mixed_up(spark, tmp_path) -> None:
    """Spark tells values by their place, so what is a tag in one file would be a body in the other one."""
    for name, header in (("a.csv", "text,at"), ("b.csv", "at,text"), ("c.csv", "text,at")):
        (tmp_path / name).write_text(f"{header}\nx,y\n")
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv")]
    with pytest.raises(HorologError, match=r"/b.csv has the columns at, text, .* have text, at"):
        read_input(spark, files, "", "")
    same = read_input(spark, [files[0], files[2]], "", "")
    assert (same.columns, same.count()) == (["text", "at", MALFORMED], 2)


@pytest.mark.parametrize("name", ["a b", "100%25", "März", "a#1", "a?b", "x[1]", "{y}"])
def test_csv_files_are_found_whatever_their_names(spark, tmp_path, name) -> None:
    (tmp_path / "x.csv").mkdir()
    for number in (1, 2):
        (tmp_path / "x.csv" / f"{name}{number}.csv").write_text(f"text,at\n{number},{AT}\n")
    df = selected(read_input(spark, [str(tmp_path / "x.csv")], "", ""), Columns("at", "text"))
    assert sorted(row.body for row in df.collect()) == ["1", "2"]


def test_directories_of_csv_files_may_name_a_column(spark, tmp_path) -> None:
    for day in ("day=1", "day=2"):
        (tmp_path / "x.csv" / day).mkdir(parents=True)
        (tmp_path / "x.csv" / day / "a.csv").write_text(f"text,at\na,{AT}\nb\n")
    df = read_input(spark, [str(tmp_path / "x.csv")], "", "")
    rows = selected(df, Columns("at", "text || day")).collect()
    found = sorted((row.body or "", row.malformed_text) for row in rows)
    assert found == [("", "b"), ("", "b"), ("a1", None), ("a2", None)]


@pytest.mark.parametrize("name", ["_b.csv", ".b.csv"])
def test_a_file_that_spark_takes_for_hidden_is_refused(spark, tmp_path, name) -> None:
    """Spark passes over it, and its rows would be missing."""
    files = [str(tmp_path / each) for each in ("a.csv", name)]
    for file in files:
        Path(file).write_text(f"text,at\na,{AT}\n")
    with pytest.raises(HorologError, match=f"/{name}: Spark passes over files"):
        read_input(spark, files, "", "")
    (tmp_path / "_c.csv").mkdir()
    (tmp_path / "_c.csv" / "part.csv").write_text(f"text,at\na,{AT}\n")
    assert read_input(spark, [files[0], str(tmp_path / "_c.csv")], "", "").count() == 2


def test_times_in_nanoseconds_are_refused_with_a_way_out(spark, tmp_path) -> None:
    """As pandas writes them unless it is told otherwise."""
    times = pa.array([1], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"at": times}), tmp_path / "x.parquet")
    with pytest.raises(HorologError, match=r"FILE: .*NANOS.*; .*coerce_timestamps='us'"):
        read_input(spark, [str(tmp_path / "x.parquet")], "", "")
    pq.write_table(
        pa.table({"at": times}),
        tmp_path / "x.parquet",
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
    )
    assert read_input(spark, [str(tmp_path / "x.parquet")], "", "").count() == 1


def test_the_mode_of_the_reader_is_the_users(spark, tmp_path) -> None:
    (tmp_path / "x.csv").write_text(f"text,at\na,{AT}\nb\n")
    given = {"mode": "DROPMALFORMED"}
    df = read_input(spark, [str(tmp_path / "x.csv")], "", "", given)
    assert [row.body for row in selected(df, Columns("at", "text || at")).collect()] == [f"a{AT}"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_command_refuses_lines_and_loads_the_others(
    spark, broker, tmp_path, capsys, monkeypatch, kind
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is everybody's
    broker.create_topic("t")
    soon = [broker.now_ms() + 1_000 + i for i in range(3)]
    if kind == "csv":
        lines = ["text,at", f"a,{soon[0]}", f"b,{soon[1]},c", "d", f"e,{soon[2]}"]
    else:
        good = [json.dumps({"text": text, "at": at}) for text, at in zip("aze", soon, strict=True)]
        lines = [good[0], '{"text": "b", "at', "[1, 2]", good[2]]
    bad = lines[-3:-1]
    file = tmp_path / f"x.{kind}"
    file.write_text("\n".join(lines))
    base = ["pipeline", "load", str(file), "--topic", "t", "--deliver-at", "at", "--body", "text"]
    base += ["--deliver-at-unit", "ms", "--job-id", "j", "--admin", broker.admin_url, "--json"]
    assert run(base) == 4
    error = capsys.readouterr().err
    assert "2 of 4 may not become messages (row: " in error
    assert broker.pending("t") == 0
    base += ["--rejects", str(tmp_path / "bad")]
    assert run(base) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["rows"], done["rejected"]) == (2, 2)
    rows = {row["malformed_text"]: row for row in pq.read_table(done["rejects"]).to_pylist()}
    assert sorted(rows) == sorted(bad)
    assert all("is no row of the file" in row["reason"] for row in rows.values())
    assert {row["body"] for row in rows.values()} == {None}
    assert run(base) == 0
    assert json.loads(capsys.readouterr().out)["already"] is True
    broker.advance("1h")
    assert sorted(bodies(broker, "t")) == ["a", "e"]


def parquet(path, columns: dict[str, list]) -> str:
    pq.write_table(pa.table(columns), path, write_page_checksum=True, compression="none")
    return str(path)


@pytest.mark.parametrize("order", [0, 1])
def test_columns_that_only_some_parquet_files_have_are_kept(spark, tmp_path, order) -> None:
    """Spark takes the columns of one file, whatever the order."""
    files = [
        parquet(tmp_path / "a.parquet", {"at": [AT], "text": ["a"]}),
        parquet(tmp_path / "b.parquet", {"at": [AT], "text": ["b"], "tag": ["x"]}),
    ][:: 1 - 2 * order]
    df = selected(read_input(spark, files, "", ""), Columns("at"))
    assert {row.body for row in df.collect()} == {
        json.dumps({"at": AT, "text": "a"}, separators=(",", ":")),
        json.dumps({"at": AT, "text": "b", "tag": "x"}, separators=(",", ":")),
    }


def test_a_column_with_two_types_in_parquet_files_is_refused(spark, tmp_path) -> None:
    files = [
        parquet(tmp_path / "a.parquet", {"at": [AT], "n": [1]}),
        parquet(tmp_path / "b.parquet", {"at": [AT], "n": ["x"]}),
    ]
    with pytest.raises(HorologError, match=r"FILE: a column has different types in .*/a.parquet"):
        read_input(spark, files, "", "")
    df = read_input(spark, files, "", "", {"mergeSchema": "false"})
    assert df.select("at").count() == 2


@pytest.mark.parametrize("how", ["flipped", "cut", "empty"])
def test_damaged_parquet_files_are_named(spark, broker, tmp_path, how) -> None:
    broker.create_topic("t")
    good = parquet(tmp_path / "good.parquet", {"at": [AT], "text": ["good"]})
    bad = tmp_path / "bad.parquet"
    parquet(bad, {"at": [AT], "text": ["bad" * 100]})
    content = bytearray(bad.read_bytes())
    content[content.index(b"badbad")] ^= 1
    bad.write_bytes({"flipped": content, "cut": content[:-9], "empty": b""}[how])

    def load() -> None:
        df = selected(read_input(spark, [good, str(bad)], "", ""), Columns("at", "text"))
        bulk_load(df, broker=broker.admin_url, topic="t")

    with pytest.raises(HorologError, match=rf"{bad.name}\b"):
        load()
    assert broker.pending("t") == 0
