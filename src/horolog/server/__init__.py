"""Everything around the core: event loop, doors for clients, start and stop of the process.

main, parts, open_broker            start and stop a broker; `failures` explains why it failed
loop                                turns: take `inputs`, perform effects, give `replies` (`ticket`)
next_turn                           decides when the loop has its next turn
lease_release                       releases messages leased for callers that have disconnected
group_commit, jobs, threads         writes and syncs of the log; jobs in threads
checkpointing, backups              take checkpoints; keep their files while a backup copies them
write_back                          starts writing files to disk before a checkpoint syncs them
simulated_time                      moves a simulated clock forward
running                             protocols: what doors and the admin API use of the broker
door, link                          a listening port and its connections
intake                              limits what all doors have accepted together
ports, tls, shares                  bind ports; TLS; limit the share of each client address
unread_answers                      limits the answers that peers have not read
store_host                          the address that messages name as their store
grpc_front, http2_link, call        the door of 5.x clients; its connections; one call
grpc_unary                          calls with one request message, and the table of their handlers
grpc_produce, grpc_consume          gRPC handlers of sends and recalls; of receives and acks
grpc_session, grpc_transactions     gRPC handlers of Telemetry and routes; of half messages
grpc_access, grpc_clients           permissions of gRPC calls; connected gRPC clients
grpc_stacks                         thread stacks of a gRPC client
remoting                            the doors of 4.x clients
messages                            recall, reschedule and find messages, wherever they rest
adoptions                           staging directories and file work of adoptions
dead_letters, listing, resets       re-drive dead letters, list pages, reset offsets, in many turns
transaction_checks                  chooses which producer is asked how a transaction ended
batching                            gathers requests of several connections into one command
auto_create, message_id             create topics and message ids that clients leave to the broker
connected, meters, rates            connected clients, meters and rates, for operators
logs, line_writer, refusal_log      log to stderr without blocking; warn there of a full disk
supervisor, memory                  notify the service manager; limit the memory of the process
"""
