"""Reading every file of a data directory offline, without changing it: one reader a kind of file."""
