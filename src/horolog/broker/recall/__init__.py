"""Recall: find messages wherever they are, cancel or reschedule them, tell their history.

recall_decisions  map the commands to handlers, which wait for messages that are not filed yet
recalls           recall one message, or all with a key: decide the answer, make its RECALL record
reschedules       reschedule one message, in a frame with its copy
bulk_recalls      recall a window of messages, piece by piece
bulk_moves        reschedule a window of messages, piece by piece
look_ups          look up messages by id or key, and what became of them
past              read the log records of an id or key; the only module here that uses the log's
                  key index
histories         everything that has happened to the messages with an id
trails            gather events from the records of the log, one after another
endings           find out how messages ended that the delay store has forgotten
control_scans     read the control records of the log, piece by piece
key_searches      search adopted messages by key, which have no index, piece by piece

Doors use `server.messages`, which also looks where a tier has messages.
"""
