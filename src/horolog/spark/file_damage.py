"""Damage of files that Spark by itself passes over: 0 bytes, and pages that do not match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECKED_PAGES = {"parquet.page.verify-checksum.enabled": "true"}
"""Option of Spark's reader: compare the checksums of a Parquet file's pages."""


def refuse_empty_files(read: DataFrame, endings: tuple[str, ...] = ("",)) -> None:
    """Raise DAMAGED for a file of 0 bytes among those that were read.

    read     as a reader returns it
    endings  how the names end of the files to look at
    """
    listed = read._jdf.queryExecution().analyzed().relation().location().allFiles()
    for place in range(listed.size()):
        file = listed.apply(place)
        if not file.getLen() and (name := file.getPath().toString()).endswith(endings):
            raise refused("FILE", f"{name} has 0 bytes", code=ErrorCode.DAMAGED)
