"""The commit log and what is derived from it.

record, control_records, half_records   the layouts of records; `controls` says what each control record means
frame, segment                          what is written and synced as one; the files it stands in, and `file_names` theirs
commit_log                              positions, frames, and records read back
frame_reader, frame_index, queue_runs   one record from its log position, the messages beside it in its frame
stored, unaligned, record_check         many records at once, as columns; `whole_rows` copies rows
scan, resync, frame_watch               the tail at a start, and what is damaged
flipped_frame                           a frame of which one bit has flipped is put right
salvage                                 what cannot be read is given up, when somebody asks for it
recovery                                the table that decides what a start does
checkpoint                              the state of a shard at one log position
consume_queue, queue_unit               which message has which queue offset; a unit in memory and in a file
open_queues                             which queues have a file open
key_index, key_chunk, key_tail, key_rows  from message ids and keys to log positions; `key_merge` sorts and searches
"""
