"""Scheduled messages at rest: `near` (hours), `far` (buffers and runs), `run` (run files); `store` joins them.

Any of them gives rows that the wheel loads (`source`, `span`), in the form of `entry`, in the states of `state`.
"""
