"""Scheduled messages in motion: a calendar queue that knows which second is next, and what is due in it."""
