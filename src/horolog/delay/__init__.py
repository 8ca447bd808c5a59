"""Scheduled messages at rest: hours, their indexes and state, and where each one is filed."""
