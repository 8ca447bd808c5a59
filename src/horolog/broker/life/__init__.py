"""The life of a shard: opening, replay, repair, checkpoints, retention of the log, and disk space.

opening, facts            open a shard: gather what is on disk, and act as the recovery table says
refusals                  what a start that is refused says
early_end                 detect that the log ends before messages that were filed from it
unreadable                copy files with bad sectors, after a mapped one has ended the process
sweeping, log_tail        remove files that nothing names; cut the log's end and make it durable
replay                    apply the changes of log frames again
salvage, after_salvage    make a damaged log whole without what is lost; replay after such a salvage
salvaged_meta             derive from the log what `meta` must say
repair, quarantine        rebuild damaged parts from the log, or set them aside
flipped_states            correct single flipped bits of state files, before a repair
checkpoints, snapshot     decide when a checkpoint is taken, and what is in it
checkpoint_life           the states of a checkpoint, as a table
queues_ahead              write consume queues in the turns before a checkpoint, some in each
consumers_copy            hold progress and leases of groups until their checkpoint is written
checkpoint_job, restore   make a checkpoint durable; put a shard into the state of one
key_restore               restore the key index at a start, or rebuild it
named_files               list the files that belong to a checkpoint
retention                 drop old segments of the log
space                     check that the disk has room for what was promised
"""
