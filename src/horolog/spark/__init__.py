"""horolog on Spark: the data source `horolog`, bulk load, and a session that logs little.

    source                          the data source; Spark finds it by name
    reading, reading_options        topics as tables and streams: `topic_range`, `topic_parts`,
                                    `topic_files`, `topic_answers`, `stream_api`
    due_source                      pending messages as rows when they become due: `due_pieces`,
                                    `due_runs`, `due_lake`
    writing, sink_options           the sink, from a DataFrame to scheduled messages:
                                    `sink_columns`, `row_checks`
    bulk_load, load_job             bulk load of a DataFrame of any size: `load_input`,
                                    `text_files`, `parquet_files`, `file_damage`, `load_plan`
    staged_runs, transaction        the runs that tasks stage (in a `staging_folder`), and the one
                                    commit of a job
    rows, row_sums                  encode columns as records; sum up the rows of a job
    message_columns, message_decode, property_columns, values    decode records into columns
    shared_place                    check that driver and executors see the same directory
    work_directory                  a directory for files on the way, which outlives no job for long
    session, java, packages         start a session; find Java and the packages, or name the
                                    missing one
    failures, watching              a failure of Spark in one sentence; the progress of a job
    given_options, option_names     options as Spark passes them, checked; which there are
    delta_append                    append micro-batches to a Delta table exactly once

Importing this package does not import Spark.  Functions that need Spark name it in one sentence
when it is missing.
"""

from __future__ import annotations

from horolog.spark.bulk_load import BulkLoadResult, bulk_load
from horolog.spark.session import make_session

__all__ = ["BulkLoadResult", "bulk_load", "make_session"]
