"""Reading every file of a data directory offline, without changing it.

files                   which reader reads which file
log_file                a segment of the log; `given_up`: what damaged bytes of it seem to say
shard_files             checkpoints, consume queues, `meta`, notes of a quarantine, manifests of backups
key_files               the log key index
hour_files, run_file    hours and far buffers; runs and their state
lake_file               what waits in the lake
report                  what a reader finds
"""
