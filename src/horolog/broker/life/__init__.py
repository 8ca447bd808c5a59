"""The life of a shard: opened from facts, replayed, repaired, checkpointed, relieved of old segments, within its disk."""
