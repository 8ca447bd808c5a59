"""The process around the core: loop, front ends, start and stop.

main, parts, open_broker            a process from start to end; `failures` says why it ends otherwise
loop                                turns: commands in (`inputs`, `ticket`), effects performed, `replies` given
next_turn                           when the next turn is
given_back                          what was leased for callers who have gone
group_commit, jobs, threads         writes and syncs; work in threads
checkpointing, backups              who wants a checkpoint, and who keeps its files
write_back                          what a checkpoint will sync goes to the disk before
simulated_time                      a clock that is moved
running                             what doors and admin API need of all this
door, link                          a listening port and its connections; `ports`, `tls`, `shares`, `untaken` guard them
store_host                          the address that messages name as their store
grpc_front, http2_link, call        the door of 5.x clients, and one call
grpc_unary                          calls with one message each, and who handles them
grpc_produce, grpc_consume          its handlers: sends, recalls; receives, acks
grpc_session, grpc_transactions     its handlers: Telemetry, routes; half messages
grpc_access, grpc_clients           who may call what, and who is there
grpc_stacks                         what the threads of a client do
remoting                            the doors of 4.x clients
messages                            recall, reschedule and find, wherever a message rests
adoptions                           staging, and the file work of commits
dead_letters, listing, resets       commands of many turns: re-drive, page by page, reset offsets
transaction_checks                  who is asked what became of a transaction
together                            requests of several connections as one command
auto_create, message_id             topics and ids that clients leave to the broker
connected, meters, rates            what operators are told
logs, line_writer                   stderr, and who waits for it; `room` tells there of a full disk
supervisor, memory                  the service manager, and what the process keeps
"""
