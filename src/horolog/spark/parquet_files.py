"""Parquet files, read so that damage and differences are refused instead of passed over.

Spark by itself takes the columns from one of the files, and drops what only others have; it ignores
files of 0 bytes, which a crash leaves; and it does not compare the pages' checksums, which nearly
every writer stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from horolog.errors import refused
from horolog.spark.file_damage import CHECKED_PAGES, refuse_empty_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPTIONS = {"mergeSchema": "true", **CHECKED_PAGES}


def read_parquet(
    session: SparkSession, files: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Read the rows of Parquet files and directories of them.

    options  for Spark's reader, which win over what is set here
    Errors: BAD_REQUEST if a column has different types in the files; DAMAGED for a file of 0 bytes
    """
    try:
        reader = session.read.format("parquet").options(**_OPTIONS).options(**options)
        found = reader.load(list(files))
    except Py4JError as error:
        if "CANNOT_MERGE_SCHEMAS" not in str(error):
            raise
        raise refused(
            "FILE",
            f"a column has different types in {', '.join(files)}; load them one by one, or with "
            "--read-option mergeSchema=false if you do not need that column",
        ) from None
    refuse_empty_files(found)
    return found
