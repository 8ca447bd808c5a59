"""The delay store: scheduled messages at rest in hours (`near`), buffers and runs (`far`, `run`).

store                       reads, finds and settles scheduled messages, wherever they rest
filing                      sorts new messages into near and far
entry                       layout of one entry of the delay index
entry_files                 the append files of an hour or a far buffer: delay log and delay index
entry_keys, key_run         look-up of entries by key hash; the files of sorted keys
state                       states of a message, their table of events, state file of an hour
source, span                protocol of the places that hold rows; loading seconds from all of them
resolve                     finds the messages that a hand-over or recall names, in a replay
repair, repair_entries      repair of damaged records and of damaged index entries
repair_from_log             repair of index entries whose records are damaged too
damage                      description of damaged or quarantined parts
lanes                       counts of the messages scheduled by delay level
pending, row_sum            counts and lists of pending messages; a sum that ignores their order
tier                        protocol of another place that holds scheduled messages
"""
