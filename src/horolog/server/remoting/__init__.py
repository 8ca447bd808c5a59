"""The doors of RocketMQ 4.x clients: name server and broker, over the remoting protocol.

front, link, request        the handler of each code; one connection; one request
own_requests                requests of the broker to a client
family, node                protocol of a family of handlers; state that families share
produce, transactions       sends, recalls, half messages
pull, pop, offsets          messages by offset and by lease; committed offsets
unanswered                  pulls and pops without an answer yet
retries, replies            messages that consumers failed on; replies to requests
clients, registry           heartbeats, and the connected clients that they register
asked, returning            consumers that are back, but have sent no heartbeat yet
assignments, locks          which client consumes which queue
routes, kv, kv_table        requests to the name server
access                      which client may send which request
administration              requests of admin tools: `topics`, `groups`, `members`, `presence`,
`subscriptions`, `figures`, `settings`, `queries`, `resets`, `unseen_resets`,
`pulled`
"""
