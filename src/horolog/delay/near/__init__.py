"""The next 24 hours: one pair of append files for each hour, with a chain of entries for each second.

store       the hours there are
hour        one of them
hours       where the near window ends
filing      many messages into their hours
chain       one second, read back in pieces
"""
