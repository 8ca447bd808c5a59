"""Metrics of a broker for Prometheus: its present values, their names, and their text format.

    present                  the values of one moment, as plain numbers
    figures, group_figures   read these values between two turns, at most once a second
    table                    every metric once: name, type, unit, labels, help, and its value
    exposition               the text formats, made in a thread
    page                     docs/reference/metrics.md

The core only counts (`broker.counters`); the loop and the doors measure themselves
(`server.meters`, `server.door`, `server.intake`).
"""
