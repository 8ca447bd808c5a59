"""The columns of the sink, selected from files or a table by SQL expressions of the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from horolog.errors import ErrorCode, refused
from horolog.spark.failures import sentence_of
from horolog.spark.sink_columns import TIME_OF_DAY, Unit
from horolog.spark.sink_options import unit_missing
from horolog.spark.text_files import MALFORMED, quoted, read_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_READERS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED = frozenset({".bz2", ".gz"})  # for text files; Parquet is compressed inside
# `*` as an argument: all columns of the input.
_STAR = re.compile(r"(?<=[(,])\s*\*\s*(?=[,)])")
_WHOLE = frozenset({"bigint", "int", "smallint", "tinyint"})
_Cast: TypeAlias = "Callable[[Column, str, str], Column]"


class Columns(NamedTuple):
    """SQL expressions for the columns of a message; "" for a column that is left out."""

    deliver_at: str
    body: str = ""
    tag: str = ""
    keys: str = ""
    message_id: str = ""
    properties: Mapping[str, str] = {}


def read_input(
    session: SparkSession,
    files: Sequence[str],
    jdbc: str,
    table: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of files of one kind, or of a database table.

    Files are CSV with a header, JSON with an object a line, or Parquet.  Lines that cannot be
    parsed become rows too (`text_files`); `selected` recognises them.  Damaged or different Parquet
    files are refused (`parquet_files`).
    options  for Spark's reader, which win over what is set here
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from horolog.spark.parquet_files import read_parquet

    try:
        if jdbc:
            reader = session.read.format("jdbc").options(**(options or {}))
            return reader.option("url", jdbc).option("dbtable", table).load()
        kinds = {_kind(file) for file in files}
        if len(kinds) > 1:
            raise refused("FILE", "all files must be of one kind")
        kind = kinds.pop()
        for file in files:
            _refuse_hidden(session, file)
        if kind == "parquet":
            return read_parquet(session, files, options or {})
        return read_lines(session, kind, files, options or {})
    except (PySparkException, Py4JError) as error:
        said = sentence_of(error)
        if "TIMESTAMP(NANOS" in said:
            said += (
                "; Spark reads no nanoseconds: write the times in microseconds (pandas: to_parquet "
                "with coerce_timestamps='us', allow_truncated_timestamps=True)"
            )
        if not jdbc:
            raise refused("FILE", said, code=ErrorCode.NOT_FOUND) from None
        if "No suitable driver" in said:
            said += "; name the database's driver: --conf spark.jars=FILE.jar"
        raise refused("--jdbc", said, code=ErrorCode.SPARK_FAILED) from None


def _refuse_hidden(session: SparkSession, file: str) -> None:
    """Refuse a file with a name by which Spark takes it for hidden.

    Spark would pass over it without a word, and the load would seem complete without its rows.
    """
    name = PurePath(file).name
    if not name.startswith(".") and (not name.startswith("_") or "=" in name):
        return
    jvm = session._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(file)
    found = path.getFileSystem(session._jsc.hadoopConfiguration()).globStatus(path) or ()
    if any(each.isFile() for each in found):  # directories are read whatever their names
        raise refused("FILE", f"{file}: Spark passes over files whose names begin with _ or .")


def selected(df: DataFrame, columns: Columns, unit: Unit | None = None) -> DataFrame:
    """Select the columns of the sink.

    A line that could not be parsed keeps only its text, so that the refusal can show it.
    unit  of due times that are numbers, also numbers in texts
    Errors: BAD_REQUEST that names the column whose expression is wrong.
    """
    made = _messages(df, columns, unit)
    if MALFORMED not in df.columns:
        return df.select(*[column.alias(name) for name, column in made.items()])
    from pyspark.sql import functions as sql

    line = sql.col(MALFORMED)
    read = [sql.when(line.isNull(), column).alias(name) for name, column in made.items()]
    return df.select(*read, sql.make_valid_utf8(line).alias("malformed_text"))


def _messages(df: DataFrame, columns: Columns, unit: Unit | None) -> dict[str, Column]:
    from pyspark.sql import functions as sql

    due, values = _due(df, columns.deliver_at, unit)
    chosen = {
        "deliver_at": due,
        "body": _expression(df, "body", columns.body or "to_json(struct(*))", _as_body),
        "deliver_at_text": values,
    }
    for name in ("tag", "keys", "message_id"):
        text = getattr(columns, name)
        if text:
            cast = _as_keys if name == "keys" else _as_text
            chosen[name] = _expression(df, name, text, cast)
    if columns.properties:
        pairs = []
        for name, text in columns.properties.items():
            pairs += [sql.lit(name), _expression(df, "properties", text, _as_text)]
        chosen["properties"] = sql.create_map(*pairs)
    return chosen


def _due(df: DataFrame, expression: str, unit: Unit | None) -> tuple[Column, Column]:
    """Return the due time, null where it cannot be computed, and the input values of each null.

    An expression that fails for one row (a text that is no date, an overflow) would end the whole
    load, and the row could not be refused.  Spark's function `try_add` returns null for any failure
    of its arguments.
    """
    from pyspark.sql import functions as sql

    # Spark computes an expression that occurs twice only once, and outside of `try_add`: so the
    # expression must occur once.
    made = _as_time(sql.expr(expression), _type_of(df, "deliver_at", expression), unit)
    due = sql.try_add(made, sql.expr("interval 0 seconds"))
    named = [quoted(name) for name in df.columns if _is_named(name, expression)]
    if not named:
        return due, sql.lit(None).cast("string")
    values = sql.concat_ws(", ", *[sql.col(name).cast("string") for name in named])
    return due, sql.when(due.isNull() & (values != ""), values)


def _is_named(column: str, expression: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", expression, re.IGNORECASE) is not None


def _expression(df: DataFrame, name: str, text: str, cast: _Cast) -> Column:
    from pyspark.sql import functions as sql

    if MALFORMED in df.columns:
        every = ", ".join(quoted(column) for column in df.columns if column != MALFORMED)
        text = _STAR.sub(lambda _: every, text)
    return cast(sql.expr(text), _type_of(df, name, text), name)


def _type_of(df: DataFrame, name: str, text: str) -> str:
    """Return Spark's name of an expression's type; BAD_REQUEST, with the column, if it is wrong."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    try:
        theirs = df.drop(MALFORMED)  # so that Spark does not suggest that column
        return theirs.select(sql.expr(text).alias(name)).schema.fields[0].dataType.simpleString()
    except PySparkException as error:
        raise refused(name, f"{text!r}: {sentence_of(error)}") from None


def _as_time(column: Column, kind: str, unit: Unit | None) -> Column:
    """Read a column as a timestamp.

    Null where a text is no time, has no date, or is a number without a unit.

    Errors: BAD_REQUEST for a column of numbers without a unit, or of another type.
    """
    if kind in ("timestamp", "date", "timestamp_ntz"):
        return column.cast("timestamp")  # in the session's time zone, which is UTC
    # Databases return whole numbers as decimals of scale 0.
    if kind in _WHOLE or re.fullmatch(r"decimal\(\d+,0\)", kind):
        if unit is None:
            raise unit_missing("deliver_at", kind)
        return _counted(column.cast("bigint"), unit)
    if kind != "string":
        raise refused(
            "deliver_at", f"is {kind}; it must be a timestamp, a text like one, or a number"
        )
    from pyspark.sql import functions as sql

    text = sql.try_to_binary(column, sql.lit("utf-8")).cast("string")
    number = text.try_cast("bigint")
    # Spark reads a time of day as one of the day on which the job runs.
    dated = sql.when(~text.rlike(TIME_OF_DAY), text.try_cast("timestamp"))
    of_text = sql.when(number.isNull(), dated)
    return of_text if unit is None else sql.coalesce(_counted(number, unit), of_text)


def _counted(number: Column, unit: Unit) -> Column:
    from pyspark.sql import functions as sql

    made = {
        Unit.MS: sql.timestamp_millis,
        Unit.S: sql.timestamp_seconds,
        Unit.US: sql.timestamp_micros,
    }
    return made[unit](number)


def _as_body(column: Column, kind: str, name: str) -> Column:
    del name
    return column if kind in ("binary", "string") else column.cast("string")


def _as_keys(column: Column, kind: str, name: str) -> Column:
    return column if kind == "array<string>" else _as_text(column, kind, name)


def _as_text(column: Column, kind: str, name: str) -> Column:
    if kind.startswith(("array", "map", "struct", "binary")):
        raise refused(name, f"is {kind}; it must be text")
    return column.cast("string")


def _kind(file: str) -> str:
    path = PurePath(file)
    is_packed = path.suffix.lower() in _COMPRESSED
    kind = _READERS.get((path.with_suffix("") if is_packed else path).suffix.lower())
    kind = None if is_packed and kind == "parquet" else kind
    if kind is None:
        known = ", ".join(sorted(_READERS))
        raise refused("FILE", f"{file!r} has none of the extensions {known}")
    return kind
