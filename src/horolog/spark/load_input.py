"""From files or a table to the columns of the sink, by SQL expressions of the user's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from horolog.errors import ErrorCode, HorologError
from horolog.spark.failures import sentence_of
from horolog.spark.sink_columns import Unit
from horolog.spark.sink_options import unit_missing
from horolog.units import TIME_MAX_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_READERS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


_MADE = {Unit.MS: "timestamp_millis", Unit.S: "timestamp_seconds", Unit.US: "timestamp_micros"}

_Cast: TypeAlias = "Callable[[Column, str, str], Column]"


class Columns(NamedTuple):
    """SQL expressions of what a message is made from; "" for none."""

    deliver_at: str
    body: str = ""
    tag: str = ""
    keys: str = ""
    message_id: str = ""
    properties: Mapping[str, str] = {}


def read_input(session: SparkSession, files: Sequence[str], jdbc: str, table: str) -> DataFrame:
    """The rows of files of one kind (CSV with a header, Parquet), or of a database table."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        if jdbc:
            return session.read.format("jdbc").option("url", jdbc).option("dbtable", table).load()
        kinds = {_kind(file) for file in files}
        if len(kinds) > 1:
            raise _refused("FILE", "all files must be of one kind")
        kind = kinds.pop()
        reader = session.read.format(kind)
        if kind == "csv":
            reader = reader.option("header", "true").option("mode", "FAILFAST")
        return reader.load(list(files))
    except (PySparkException, Py4JError) as error:
        what = "--jdbc" if jdbc else "FILE"
        raise HorologError(
            ErrorCode.NOT_FOUND if not jdbc else ErrorCode.SPARK_FAILED,
            f"{what}: {sentence_of(error)}",
            field=what,
        ) from None


def selected(df: DataFrame, columns: Columns, unit: Unit | None = None) -> DataFrame:
    """The columns of the sink; BAD_REQUEST that names the column whose expression is wrong.

    unit  of due times that are numbers, also as texts
    """
    from pyspark.sql import functions as sql

    chosen = [
        _expression(df, "deliver_at", columns.deliver_at, partial(_as_time, unit=unit)),
        _expression(df, "body", columns.body or "to_json(struct(*))", _as_body),
    ]
    for name in ("tag", "keys", "message_id"):
        text = getattr(columns, name)
        if text:
            chosen.append(_expression(df, name, text, _as_keys if name == "keys" else _as_text))
    if (text := _unread_time(df, columns.deliver_at, unit)) is not None:
        chosen.append(text.alias("deliver_at_text"))
    if columns.properties:
        pairs = []
        for name, text in columns.properties.items():
            pairs += [sql.lit(name), _expression(df, "properties", text, _as_text)]
        chosen.append(sql.create_map(*pairs).alias("properties"))
    return df.select(*chosen)


def _expression(df: DataFrame, name: str, text: str, cast: _Cast) -> Column:
    from pyspark.sql import functions as sql

    return cast(sql.expr(text), _type_of(df, name, text), name).alias(name)


def _type_of(df: DataFrame, name: str, text: str) -> str:
    """Spark's name of an expression's type; BAD_REQUEST that names the column if the expression is wrong."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    try:
        return df.select(sql.expr(text).alias(name)).schema.fields[0].dataType.simpleString()
    except PySparkException as error:
        raise _refused(name, f"{text!r}: {sentence_of(error)}") from None


def _as_time(column: Column, kind: str, name: str, *, unit: Unit | None) -> Column:
    if kind == "timestamp":
        return column
    if kind in ("bigint", "int", "smallint", "tinyint") or re.fullmatch(r"decimal\(\d+,0\)", kind):
        if unit is None:
            raise unit_missing(name, kind)
        return column.cast("bigint")  # whole numbers of databases are often decimals
    if kind in ("date", "timestamp_ntz"):
        return column.cast("timestamp")  # in the session's time zone, which is UTC
    if kind == "string":
        return _time_of(column, unit)
    raise _refused(name, f"is {kind}; it must be a timestamp, a text like one, or a number")


def _time_of(text: Column, unit: Unit | None) -> Column:
    """Null where a text is no time, and where it is a number without a unit."""
    from pyspark.sql import functions as sql

    number = text.try_cast("bigint")
    of_text = sql.when(number.isNull(), text.try_cast("timestamp"))
    if unit is None:
        return of_text
    last = TIME_MAX_MS // 1_000 * unit.in_second  # Spark fails on what its timestamps cannot hold
    return sql.when(number.between(-last, last), getattr(sql, _MADE[unit])(number)).otherwise(
        of_text
    )


def _unread_time(df: DataFrame, expression: str, unit: Unit | None) -> Column | None:
    """The text of a due time that cannot be read; None if due times are no texts."""
    from pyspark.sql import functions as sql

    if _type_of(df, "deliver_at", expression) != "string":
        return None
    text = sql.expr(expression)
    return sql.when(_time_of(text, unit).isNull(), text)


def _as_body(column: Column, kind: str, name: str) -> Column:
    del name
    return column if kind in ("binary", "string") else column.cast("string")


def _as_keys(column: Column, kind: str, name: str) -> Column:
    return column if kind == "array<string>" else _as_text(column, kind, name)


def _as_text(column: Column, kind: str, name: str) -> Column:
    if kind.startswith(("array", "map", "struct", "binary")):
        raise _refused(name, f"is {kind}; it must be text")
    return column.cast("string")


def _kind(file: str) -> str:
    kind = _READERS.get(PurePath(file).suffix.lower())
    if kind is None:
        known = ", ".join(sorted(_READERS))
        raise _refused("FILE", f"{file!r} has none of the extensions {known}")
    return kind


def _refused(field: str, why: str) -> HorologError:
    return HorologError(ErrorCode.BAD_REQUEST, f"{field}: {why}", field=field)
