"""The core: one step at a time, told the time, returning effects.

    broker, effects                 the step, and what it asks for
    decisions, deciding             which part decides which command
    waits, under_way                who waits for whom
    shard, applied                  the state of a shard; what a frame changes of it when it is committed
    filing_pace                     how long what is committed waits to be filed with more
    relations, problems             what must hold between its parts; what is wrong
    settings                        what the core knows of the configuration
    topics, topic_changes, groups   what clients name
    hand_over                       what is due is appended once more, with its queue offset
    late_messages                   what is too late for that ends
    queries                         questions that change nothing
    counters                        what was done since the start, for metrics
    columns, key_columns            many records of a frame at once
    queue_units                     units of consume queues, and the codes of several tags
    send                            take messages in
    consume                         give them out, by lease or by offset, and note what is consumed
    recall                          find a message, cancel it or move it
    schedule                        plan the firings of recurring schedules
    adopt                           take over whole transactions that somebody else has written
    life                            open, replay, repair, checkpoint, retain, and keep space

Pure: time, disk and answers are arguments and results (`broker.step`); the loop of `server` performs them.
"""
