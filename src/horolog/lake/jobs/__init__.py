"""The lake in Spark jobs: `pipeline.offload`, `pipeline.promote`, the rebuild, the audit.

broker    requests to the admin API of a running broker
rows      writes frozen runs as files of the table
table     the table as a DataFrame
load      counts of the messages in the lake, for a forecast
rebuild   rebuilds the state of the lake from the log alone
"""
