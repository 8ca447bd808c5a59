"""Recall: find a message by id or key wherever it rests, cancel it or move it, one or many, and say what became of it.

    recall_decisions  the commands, and what each of them does in which order
    recalls           one message, or all with a key: what is true of it, and its RECALL record
    reschedules       one message, in a frame with its copy
    bulk_recalls      a window, piece by piece
    bulk_moves        the same, moved
    look_ups          what became of messages, by id or key
    past              the records that the log has of an id or key; nobody else here asks its key index
    histories         everything that has happened to the messages with an id
    trails            what the records of the log tell of them, one after another
    endings           how messages ended that the delay store has forgotten
    control_scans     the control records of the log, piece by piece
    key_searches      adopted messages by key, which have no index, piece by piece

Doors ask `server.messages`, which also looks where a tier has messages.
"""
