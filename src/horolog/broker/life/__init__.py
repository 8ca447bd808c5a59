"""The life of a shard: opened from facts, replayed, repaired, checkpointed, relieved of old segments, within its disk.

opening, facts            a start: what is there, and what the recovery table makes of it
early_end                 whether the log ends before messages that were filed from it
unreadable                files with bad sectors are copied, where a mapped one has ended the process
sweeping, log_tail        what an open removes because nothing names it; the log's end, cut and made durable
replay                    what frames of the log change
salvage, after_salvage    a damaged log is made whole without what is lost; how a replay goes on after that;
salvaged_meta             and what `meta` must say, by the log
repair, quarantine        what is damaged: rebuilt from the log, or set aside; `flipped_states` are put right before
checkpoints, snapshot     when one is taken, what is in it; `checkpoint_life` is its table
queues_ahead              consume queues are written some in each turn before one
consumers_copy            what groups have taken, held for a checkpoint until it is written
checkpoint_job, restore   one is made durable; a shard is put into the state of one
named_files               what files a checkpoint stands for
retention                 old segments go
space                     whether the disk has room for what was promised
"""
