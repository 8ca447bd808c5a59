"""Adopt: take over whole transactions of scheduled messages that somebody else has written, by one record each."""
