"""The far store: far buffers, runs in use, and the jobs that make runs, for beyond the near window.

store                       all far buffers and runs of a shard
buffer                      the append files in which far messages gather
compaction, jobs            which run is made next; the work in the background
run                         a run in use, made of the four modules that follow
run_access                  its file: opened, made whole, or replaced by a blank
row_states                  states of its rows, in memory
run_state                   … and in a file
run_counts                  counts of its waiting rows
adopted                     runs that another program wrote
load                        loading one second, in pieces
checkpoint, names           the far store in a checkpoint; names of its files
"""
