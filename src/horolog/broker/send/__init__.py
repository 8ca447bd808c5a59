"""Send: accept messages from producers and from retries, each once.

sends           check, decide and append the sends of a turn; `group_queues` chooses the queue of a
                message group
message_frames  append a frame of messages of any origin
late_marks      flag the messages of a turn that have a late policy of their own
repeats         recognise repeated sends, which are not stored again; `key_filter` and `log_times`
                limit the search
send_backs      decide where a message goes that a consumer failed on: another attempt, or the dead
                letters
dead_letters    count and list dead letters, and send them once more
"""
