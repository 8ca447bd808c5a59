"""Verifying a data directory offline: every check sum and every cross-reference, with bounded memory.

directory, findings, met    all of it, in order; what was found, what the broker knew already
frames, records, holes      the log
checkpoints                 what checkpoints say
queues, keys                indexes against the log
hours, far, runs, entries   scheduled messages
adoptions, lake             what came from elsewhere, what went there
balance                     what waits in files against the log
reading                     a file in pieces
"""
