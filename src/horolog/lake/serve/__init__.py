"""The lake beside the running broker.

reader    searches the table in threads, for recalls and look-ups
offloads  does the file work of offloads
late      promotes messages that no job has promoted in time
"""
