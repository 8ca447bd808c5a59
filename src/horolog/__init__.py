"""horolog: a message broker for messages that must arrive later.

The core, which is told the time and returns effects:

    protocol                what a client may ask, and the bytes of gRPC, HTTP/2 and remoting
    broker                  what a command does: a turn of a shard, and the life of one
    log                     the commit log, and what is derived from it
    delay                   scheduled messages at rest: hours, far buffers, runs
    wheel                   scheduled messages in motion: which second is next
    ready                   which messages a consumer group may take

Around it:

    server                  the process: loop, threads, the doors of clients
    admin, page             the admin API over HTTP, and the page that it serves
    metrics, access         what is counted, for Prometheus; who may do what
    storage                 files and locks, as the core asks for them
    calendar                time zones and cron, for recurring schedules
    lake                    scheduled messages in a table elsewhere
    cli                     the `horolog` command; `__main__` runs it
    backup, verify          copies of a data directory; whether its files agree with each other
    spark, pipeline         the connector; jobs over whole logs and lakes
    testing                 a broker, clock and disk for tests, and the simulator

Words for all of them: errors, limits, units, clock, places, histogram, state_table; settings are in config, and come
from config_sources.
"""

__version__ = "0.1.0"
