"""The far store, for messages due beyond the near window: far buffers, runs in use, jobs for runs.

store                       all far buffers and runs of a shard
buffer                      the append files in which far messages gather
compaction, jobs            which run is made next; the work in the background
run                         a run in use
run_access                  a run's file: opened, made whole, or replaced by a blank
row_states                  states of a run's rows, in memory
run_state                   states of a run's rows, in a file
run_counts                  counts of a run's waiting rows
adopted                     runs that another program wrote
load                        loading one second, in pieces
checkpoint, names           the far store in a checkpoint; names of the far store's files
"""
