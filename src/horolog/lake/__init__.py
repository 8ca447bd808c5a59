"""The lake: scheduled messages of the far future in a Delta table, and how they come and go.

    core        its part of the broker's core, behind the protocol of `delay.tier`
    table       the table itself
    frozen_run  what is about to go there
    serve       beside the running broker: reads the table, fetches what is late
    jobs        for Spark

`serve` and `jobs` do not know each other; both may enter `table`.
"""
