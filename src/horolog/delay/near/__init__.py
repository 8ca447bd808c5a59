"""The next 24 hours: one pair of append files for each hour, with a chain of entries for each second."""
