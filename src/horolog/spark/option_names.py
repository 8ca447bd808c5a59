"""Names of the options of the data source, by what takes them.

A view `USING horolog` is read and written with the same options: a read ignores those of the sink
alone, and the sink those of reads alone.
"""

from __future__ import annotations

TOPIC_OPTIONS = (
    "mode",
    "broker",
    "path",
    "topic",
    "startingOffsets",
    "endingOffsets",
    "from",
    "to",
    "queues",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "timeout",
)
DUE_OPTIONS = (
    "mode",
    "path",
    "clock",
    "topic",
    "from",
    "to",
    "maxRowsPerTrigger",
    "maxRecordsPerPartition",
    "rows",
    "failOnDataLoss",
    "timeout",
)
SINK_OPTIONS = (
    "broker",
    "topic",
    "deliverAtUnit",
    "overdueMax",
    "staging",
    "jobId",
    "txnAppId",
    "timeout",
    "rowsPerFile",
)
_READING_OPTIONS = {*TOPIC_OPTIONS, *DUE_OPTIONS}
_SPARK_OPTIONS = {"checkpointLocation", "queryName"}
IGNORED_BY_READS = frozenset({*SINK_OPTIONS, *_SPARK_OPTIONS} - _READING_OPTIONS)
IGNORED_BY_SINK = frozenset({*_READING_OPTIONS, *_SPARK_OPTIONS})
