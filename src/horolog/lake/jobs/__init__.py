"""The lake in jobs: `pipeline.offload`, `pipeline.promote`, the rebuild, the audit.

broker    what they ask of a running broker
rows      frozen runs written as files of the table
table     the table as a DataFrame
load      how much waits there, for a forecast
rebuild   what offloads have left, from the log alone
"""
