"""The lake's Delta table, for the jobs that write it and the broker that reads it.

    schema    columns and partitions of the table, and the description of one file
    delta     the files of the table: commits to its Delta log, removal of old partitions
    reading   reads rows by hour, by message, by key, by window
    given_up  notes of offloads that were given up, whose files the table may still have

Needs `deltalake` and `pyarrow` (the extra `spark`), and no JVM.
"""
