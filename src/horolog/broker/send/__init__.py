"""Send: take messages in, each once.

sends       the sends of a turn: checked, decided, appended; `group_queues` chooses the queue of a message group
message_frames  a frame of messages, whoever made them
late_marks  which messages of a turn have a late policy of their own
repeats     what repeats an earlier one is not stored again; `key_filter` and `log_times` say how far to look
send_backs  what a consumer failed on: where its next copy goes
dead_letters  dead letters counted, listed, and sent once more
"""
