"""horolog: a message broker for messages that must arrive later.

The core, a pure state machine that gets the time as an argument and returns effects:

    protocol                commands of clients, and their encodings in gRPC, HTTP/2 and remoting
    broker                  executes commands: the turns of a shard, its start and its recovery
    log                     the commit log, and the files derived from it
    delay                   stores scheduled messages: hours, far buffers, runs
    wheel                   finds which second is due next, and loads its messages
    ready                   which messages a consumer group may take

Around the core:

    server                  the process: loop, threads, listening ports for clients
    admin, page             the admin API over HTTP, and the web page that it serves
    metrics, access         metrics for Prometheus; identities and their rights
    storage                 files and locks, behind the interface that the core uses
    calendar                time zones and cron, for recurring schedules
    lake                    scheduled messages in a Delta table outside the broker
    cli                     the `horolog` command; `__main__` runs it
    backup, verify          copies of a data directory; checks that its files agree
    spark, pipeline         the Spark connector; jobs over whole logs and lakes
    testing                 a broker, clock and disk for tests, and the simulator

Shared modules: errors, limits, units, clock, places, histogram, state_table; config has the
settings, config_sources reads them, config_values checks them, and toml_file reads files of users.
"""

__version__ = "0.1.0"
