"""Benchmarks: figures with their size and flush policy; `python -m benchmarks`.  Never tests."""
