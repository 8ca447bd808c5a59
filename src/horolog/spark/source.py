"""The Spark data source `horolog`: topics as tables and streams, DataFrames as scheduled messages.

    df.write.format("horolog").option("broker", "http://127.0.0.1:8090").option("topic", "t") …

Spark finds it through the package `pyspark_horolog`.  Spark calls the methods by keyword, so the
names of their parameters are Spark's.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from horolog.spark.packages import check_version


class HorologDataSource(DataSource):
    """The data source; its options and columns are in docs/guides/spark.md."""

    def __init__(self, options: dict[str, str]) -> None:
        check_version()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog"

    def schema(self) -> StructType:
        """Return the columns of a read whose schema the user does not name."""
        from horolog.spark.reading import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build the reader of a batch."""
        from horolog.spark.reading import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Build the reader of a stream: a topic, or messages as they become due (`mode=due`)."""
        from horolog.spark.reading import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Build the writer that schedules the rows of a DataFrame, all or none."""
        from horolog.spark.writing import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Build the writer that schedules the rows of every micro-batch, exactly once."""
        from horolog.spark.writing import stream_writer

        return stream_writer(self.options, schema, overwrite)
