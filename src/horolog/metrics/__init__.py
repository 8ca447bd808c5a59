"""What a broker tells Prometheus: the numbers of now, their names, and how they are written.

    present                  the values of one moment, as plain numbers
    figures, group_figures   read them between two turns, at most once a second
    table, families          every metric once: name, type, unit, labels, help, and which of these numbers it is
    exposition               the text formats, made in a thread
    page                     docs/reference/metrics.md

The core only counts (`broker.counters`); the loop and the doors measure themselves (`server.meters`, `server.door`).
"""
