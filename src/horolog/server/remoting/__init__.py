"""The doors of RocketMQ 4.x clients: name server and broker, over the remoting protocol.

front, link, request        which handler gets which code; one connection, one request
family, node                what a family of handlers is, and what families share
produce, transactions       sends, recalls, half messages
pull, pop, offsets          messages by offset and by lease, what is consumed
retries, replies            what consumers failed on, what they reply
clients, registry           heartbeats, and who is there by them
assignments, locks          who consumes which queue
routes, kv, kv_table        what the name server is asked
access                      who may ask what
administration              what admin tools ask: `topics`, `groups`, `members`, `presence`, `subscriptions`,
`figures`, `settings`, `queries`, `resets`, `moved`, `pulled`
"""
