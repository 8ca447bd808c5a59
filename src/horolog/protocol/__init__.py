"""Commands of front ends and broker, and RocketMQ's protocols as bytes in, commands out.

Protocol code takes bytes and returns commands, events or bytes; sockets belong to `server`.

grpc, http2         the protocol of 5.x clients
remoting            the protocol of 4.x clients
rocketmq            what both protocols share: names, properties, the stored message layout
commands            the one vocabulary of commands and results; its parts by subject:
`send_commands`, `transaction_commands`, `lease_commands`, `queue_commands`, `retry_commands`,
`dead_letter_commands`, `recall_commands`, `move_commands`, `pending_commands`,
`history_commands`, `topic_commands`, `adoption_commands`, `tier_commands`, `schedules`
accepted            which types of message each type of topic accepts
queue_read          binary answer of a bulk read of a queue
"""
