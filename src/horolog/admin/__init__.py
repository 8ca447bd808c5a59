"""The admin port: health, topics, pending counts and the clock over HTTP with JSON."""
