"""What is due beyond the near window: far buffers, runs in use, and the jobs that make runs."""
