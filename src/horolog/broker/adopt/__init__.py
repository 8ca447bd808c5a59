"""Adopt: take over whole transactions of scheduled messages that somebody else has written, by one record each.

adoptions      is it new, may it be: the ADOPT record
adoption_life  what a version of an app can be, as a table
staging        the file work before it, for a thread
"""
