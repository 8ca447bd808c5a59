"""The process around the core: loop, front ends, start and stop."""
