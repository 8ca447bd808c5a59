"""Reading every file of a data directory offline, without changing it.

One reader a kind of file.
"""
