"""The pure core of the broker: it takes commands and the time, and returns effects.

    broker, effects                 one step of a shard, and the effects that it returns
    decisions, handlers             map each kind of command to the handler that decides it
    waits, under_way                what each command has to wait for, and whether that is over
    shard, applied                  the state of a shard, and the change a committed frame makes
    filing_pace                     how long committed messages wait to be filed together
    relations, problems             invariants between parts of a shard; the list of problems
    settings                        the settings that the core needs to know
    topics, topic_changes, groups   topics and consumer groups, and how commands change them
    attributes                      attributes that clients store with them
    hand_over                       append due messages once more, with their queue offsets
    late_messages                   drop or dead-letter messages that are too late to be handed over
    queries                         answer questions that change nothing
    pages                           list topics, groups, lags, and messages of a queue
    pending_lists                   list pending messages, over as many turns as that needs
    counters                        what a shard has done since its start, for metrics
    columns, key_columns            read and patch many records of a frame at once
    queue_units                     units of consume queues; tags codes of several tags
    send                            accept messages: sends, retries, dead letters
    consume                         give messages out by lease or by offset; record progress
    recall                          find, cancel or reschedule messages
    schedule                        plan the firings of recurring schedules
    adopt                           adopt files that another program has written
    transactions                    half messages, and how their transactions end
    life                            opening, replay, repair, checkpoints, retention and disk space

Time, disk content and the outcome of background jobs are arguments, and everything to be done is a
result (`broker.step`); the loop in `server` performs it.
"""
