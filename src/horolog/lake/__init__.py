"""The lake: scheduled messages of the far future in a Delta table; offloading and promoting them.

    core        the lake in the broker's core, behind the protocol of `delay.tier`
    table       reads and writes the Delta table
    frozen_run  a run of the broker that is about to be offloaded
    serve       runs beside the broker: reads the table, promotes messages that no job has promoted
                in time
    jobs        the parts of Spark jobs

`serve` and `jobs` must not import each other; both may import `table`.
"""
