"""Metrics of a broker for Prometheus: its present values, their names, and their text format.

    present                  the values of one moment, as plain numbers
    figures, group_figures   read these values between two turns, at most once a second
    metric                   what a metric is, and the ways to read its value
    table                    every metric once: name, type, labels, how to read it, help
    exposition               the text formats, made in a thread
    page                     docs/reference/metrics.md

The core only counts (`broker.counters`); the loop and the doors measure themselves
(`server.meters`, `server.door`, `server.intake`).
"""
