"""Offline verification of a data directory: every check sum and cross-reference, in bounded memory.

directory, findings         verify a whole directory, in order; collect findings
offline                     take a data directory that no broker uses
recorded_damage             report damage that the broker has recorded
frames, records, holes      the log: its frames, their records, and the stretches that are
                            unreadable
checkpoints                 the checkpoints, and the files that they name
queues, keys                consume queues and the key index against the log
hours, far, runs, entries   files of scheduled messages
adoptions, lake             adopted runs against the log; the state of the lake
balance                     count and hash of pending messages in files against the log
reading                     read a file in pieces
"""
