"""CSV and JSON files of lines, read so that a malformed line becomes a row with only its text.

Spark by itself ends the whole read at the first such line, or, in CSV, fills up a row that has too
few values and cuts a row that has too many; and where not all columns are asked for, Spark does not
even notice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from horolog.errors import refused
from horolog.spark.file_damage import refuse_empty_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField

MALFORMED = "__horolog_malformed"
"""Name of the column with the text of a malformed line, null in all other rows.

The column is missing if the user sets Spark's option `mode`.
"""

# A quote within quotes is doubled, as spreadsheets, databases and Python write it; Spark itself
# writes a backslash.
_CSV = {"header": "true", "escape": '"'}
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
LOST = "\ufffd"
"""Character by which Spark replaces bytes that are invalid in the file's encoding."""
_ENCODING = frozenset({"charset", "encoding"})
_WILD = re.compile(r"[][{}*?\\]")  # characters that have a meaning in Hadoop's patterns


def read_lines(
    session: SparkSession, kind: str, files: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Read the rows of files of one kind, "csv" or "json", with the column MALFORMED.

    options  for Spark's reader, which win over what is set here
    Errors: BAD_REQUEST if no line has column names (CSV) or an object (JSON), or if a CSV file has
    other columns than the first one, or no line; DAMAGED for a compressed file of 0 bytes
    """
    from pyspark.sql.types import StringType, StructField, StructType

    given = {name.lower() for name in options}
    own = _CSV if kind == "csv" else {}

    def reader(more: Mapping[str, str]) -> DataFrameReader:
        return session.read.format(kind).options(**own).options(**options).options(**more)

    if "mode" in given:
        return reader({}).load(list(files))
    found = reader(_PERMISSIVE).load(list(files))
    fields = [field for field in found.schema.fields if field.name != MALFORMED]
    if not fields:
        what = "column names" if kind == "csv" else "a JSON object"
        raise refused("FILE", f"there is no line with {what} in {', '.join(files)}")
    refuse_empty_files(found, (".gz", ".bz2"))  # a compressed file has a header at least
    if kind == "csv":
        _check_headers(reader, found, files)
    schema = StructType([*fields, StructField(MALFORMED, StringType())])
    rows = reader(_PERMISSIVE).schema(schema).load(list(files))
    if kind == "csv" and not given & _ENCODING:
        return rows.withColumn(MALFORMED, _malformed(fields))
    return rows


def _check_headers(
    reader: Callable[[Mapping[str, str]], DataFrameReader], found: DataFrame, files: Sequence[str]
) -> None:
    """Refuse files without any line, and files whose columns, or their order, differ.

    Spark assigns values to columns by place alone.
    """
    inputs = found.inputFiles()
    if len(inputs) < 2:
        return
    # Columns of which the directories' names have the values (`day=1/x.csv`) are in no header.
    relation = found._jdf.queryExecution().analyzed().relation()
    absent = {MALFORMED, *relation.partitionSchema().fieldNames()}
    wanted = [name for name in found.columns if name not in absent]
    for file in sorted(inputs):
        path = unquote(file)  # Spark lists files as URLs, but takes paths
        pattern = _WILD.sub(r"\\\g<0>", path)
        columns = [name for name in reader(_PERMISSIVE).load(pattern).columns if name != MALFORMED]
        if not columns:
            raise refused("FILE", f"there is no line with column names in {_name_of(file)}")
        if columns != wanted:
            raise refused(
                "FILE",
                f"{_name_of(file)} has the columns {', '.join(columns)}, and others of "
                f"{', '.join(files)} have {', '.join(wanted)}; load them one by one",
            )


def _name_of(file: str) -> str:
    return unquote(urlsplit(file).path)


def _malformed(fields: Sequence[StructField]) -> Column:
    """Return the column MALFORMED, filled also for rows with bytes that are not in the encoding.

    For such a row MALFORMED holds the values as Spark has read them.
    """
    from pyspark.sql import functions as sql

    columns = [sql.col(quoted(field.name)) for field in fields]
    texts = [
        sql.col(quoted(field.name)) for field in fields if field.dataType.simpleString() == "string"
    ]
    if not texts:
        return sql.col(MALFORMED)
    is_lost = sql.contains(sql.concat_ws(" ", *texts), sql.lit(LOST))
    return sql.coalesce(sql.col(MALFORMED), sql.when(is_lost, sql.to_csv(sql.struct(*columns))))


def quoted(name: str) -> str:
    """Quote a column's name for an SQL expression."""
    return f"`{name.replace('`', '``')}`"
