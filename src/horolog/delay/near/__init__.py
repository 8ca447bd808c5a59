"""The near store: the next 24 hours, a pair of append files an hour, a chain of entries a second.

store       the hours that have files
hour        one hour: its files, heads and states
hours       sorts messages by hour, up to the end of the near window
filing      files many messages into their hours at once
chain       loads one second of an hour, in pieces
"""
