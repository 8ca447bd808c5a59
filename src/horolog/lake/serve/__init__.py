"""The lake beside the running broker: reads its table in threads, and asks the core."""
