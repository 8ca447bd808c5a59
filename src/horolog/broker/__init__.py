"""The core: one step at a time, told the time, returning effects."""
