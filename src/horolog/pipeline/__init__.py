"""Jobs over whole logs and lakes, on Spark.  Needs the extra `spark`.

audit                       schedules against hand-overs: `audit_tables`, `audit_faults`, `audit_report`
forecast                    what waits, by time: `forecast_report`
rebuild                     a data directory from its log: `rebuild_tasks`, `rebuild_controls`, `rebuild_halves`,
                            `rebuild_names`, `rebuild_adopted`, `rebuild_checkpoint`
offload, promote            to the lake, and back
log_source, pending_source  the log, and what waits, as tables
log_walk                    frames of the log, as columns
log_table, log_rows         rows about its messages; `log_screen` and `log_totals` add them up
pending_rows, adopted_files what waits in files, what adoptions brought
data_files                  the files of a data directory, read beside whoever writes them
between                     where a job keeps what lies between its steps
report, progress            a page of HTML; how a job says what it is at
"""
