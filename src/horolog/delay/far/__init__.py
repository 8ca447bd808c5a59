"""What is due beyond the near window: far buffers, runs in use, and the jobs that make runs.

store                       all of it
buffer                      where far messages gather
compaction, jobs            which run is made next, and how
run                         a run in use: its file (`run_access`), what became of its rows (`row_states`,
`run_state`), what waits of it (`run_counts`)
adopted                     runs that somebody else wrote
load                        one second, read in pieces
checkpoint, names           what a checkpoint says of it, what its files are called
"""
