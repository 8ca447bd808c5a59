"""Scheduled messages in motion: `wheel`, a calendar queue, knows which second is next; a `slot` is a loaded one."""
