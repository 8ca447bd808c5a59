"""Readers of every file of a data directory, offline and without changing it.

files                   choice of the reader of a file
log_file                a segment of the log; `given_up`: records that damaged bytes seem to hold
shard_files             checkpoints, consume queues, `meta`, quarantine notes, backup manifests
key_files               the log key index
hour_files, run_file    hours and far buffers; runs and their state: `entries`
lake_file               messages that wait in the lake
report                  the findings of a reader
"""
