"""The commit log and the files that are derived from it.

record, control_records, half_records   layouts of records; `controls` decodes each kind of control
                                        record
frame, segment                          frames, the unit of writes and syncs; the segment files,
                                        named by `file_names`
commit_log                              appends frames, assigns log positions, reads records back
frame_reader, frame_index, queue_runs   read a record by log position; find frames; the messages of
                                        a queue in a frame
stored, unaligned, record_check         fields and checks of many records at once, as columns;
                                        `whole_rows` copies rows
scan, resync, frame_watch               read the tail at a start; find the next frame after damage;
                                        check copied segments
flipped_frame                           repairs a frame in which one bit has flipped
salvage                                 gives up unreadable parts of the log, on an operator's
                                        request only
recovery                                decision table: what a start does with the files it finds
checkpoint                              the state of a shard at one log position
consume_queue, queue_unit               the index of a queue, from queue offset to log position; its
                                        20-byte units; `queue_names` names directories and files
open_queues                             bounds how many consume queues have a file open
key_index, key_chunk, key_tail, key_rows  map message ids and keys to log positions; `key_merge`
                                          sorts and searches
"""
