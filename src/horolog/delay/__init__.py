"""Scheduled messages at rest: `near` (hours), `far` (buffers and runs), `run` (run files); `store` joins them.

store, filing               where every scheduled message rests, and is found again; how it gets there
entry, entry_files          one message, and the pair of files that messages are appended to
entry_keys, key_run         the entries of such a pair by message id
state                       what a message can become, as a table
source, span                rows that the wheel loads, from any of these places
resolve                     what a replay finds for a hand-over or a recall
repair, repair_entries      what is damaged, made whole from the log; `damage` is what cannot be opened
repair_from_log             entries and records that are both damaged
lanes                       what was scheduled by delay level
pending, row_sum            what waits: counted, listed, summed up
tier                        what another place that holds messages must offer
"""
