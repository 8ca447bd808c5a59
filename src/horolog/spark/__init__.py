"""horolog on Spark: the data source `horolog`, bulk load, and a session that is quiet.

    source                          the data source; Spark finds it by name
    reading, reading_options        topics as tables and streams: `topic_range`, `topic_parts`, `topic_files`,
                                    `topic_answers`, `stream_api`
    due_source                      what becomes due, as rows: `due_pieces`, `due_runs`, `due_lake`
    writing, sink_options           a DataFrame as scheduled messages: `sink_columns`, `row_checks`
    bulk_load, load_job             the same for any size: `load_input`, `text_files`, `load_plan`
    staged_runs, transaction        what tasks write (`staging_folder`: where), and the one commit
    rows, row_sums                  columns to records; what the rows of a job are, as a sum
    message_columns, message_decode, property_columns, values    records to columns
    shared_place                    whether executors see the same directory
    session, java, packages         what Spark needs, and a sentence where it is missing
    failures, watching              what Spark says, as a sentence; how far a job is
    delta_append                    exactly once into a Delta table

Importing this does not import Spark; what needs it says so in one sentence when it is missing.
"""

from __future__ import annotations

from horolog.spark.bulk_load import BulkLoadResult, bulk_load
from horolog.spark.session import make_session

__all__ = ["BulkLoadResult", "bulk_load", "make_session"]
