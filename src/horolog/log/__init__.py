"""The commit log and what is derived from it: frames, records, consume queues, checkpoint, recovery."""
