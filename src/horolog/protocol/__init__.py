"""Bytes in, commands out: what horolog shares with every RocketMQ client.

grpc, http2         5.x clients
remoting            4.x clients
rocketmq            what both share
commands            the one vocabulary of commands and results; its parts by subject: `send_commands`,
`transaction_commands`, `lease_commands`, `queue_commands`, `retry_commands`,
`dead_letter_commands`, `recall_commands`, `move_commands`, `pending_commands`,
`history_commands`, `topic_commands`, `adoption_commands`, `tier_commands`, `schedules`
accepted            which messages a topic of each type takes
queue_read          the answer of a bulk read
"""
