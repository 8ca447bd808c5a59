"""Adopt: take over whole transactions of messages that another program has written.

adoptions      check whether a transaction is new and allowed, and append its one ADOPT record
adoption_life  the states of a version of an app, as a table
staging        the directories in which files wait for the record
staged_files   the file work before the record, for a thread
"""
