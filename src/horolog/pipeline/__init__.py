"""Jobs over whole logs and lakes, on Spark.  Needs the extra `spark`.

audit                       compare schedules with hand-overs: `audit_tables`, `audit_faults`,
                            `audit_report`; damaged files: `file_damage`
forecast                    count pending messages by due time: `forecast_report`
rebuild                     rebuild a data directory from its log: `rebuild_tasks`,
                            `rebuild_controls`, `rebuild_halves`, `rebuild_names`,
                            `rebuild_adopted`, `rebuild_checkpoint`
offload, promote            move messages into the lake, and back before they are due
log_source, pending_source  the log, and the pending messages, as tables
log_walk                    walk the frames of a segment; locate its records as columns
log_table, log_rows         rows about messages, built from records; `log_screen` and `log_totals`
                            aggregate them
pending_rows, adopted_files rows of hours, far buffers and runs; runs that ADOPT records name
data_files                  read the files of a data directory while a broker writes them
report, progress            an HTML page; the current stage of a job
"""
