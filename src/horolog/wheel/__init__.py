"""Scheduled messages in motion: which second is next, and what is due in it."""
