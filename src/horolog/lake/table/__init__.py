"""The lake's table, for the jobs that write it and the broker that reads it.

    schema    its columns and partitions, and what one file of it holds
    delta     which files belong to it: commits to its Delta log, and what is forgotten
    reading   its rows: by hour, by message, by key, by window
    given_up  notes of offloads that the broker has not, and the table perhaps

Needs `deltalake` and `pyarrow` (the extra `spark`), and no JVM.
"""
