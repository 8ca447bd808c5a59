"""The consumer side: which messages a group may take, has leased, and gets again.

ready                       the entry point: groups, their progress, the waiting polls
groups                      names, ids and settings of consumer groups
progress, offset_runs       which messages of a queue a group has consumed
leases, lease_life          the leases of a group in a queue; the state table of a queue offset
free_pick                   picks messages of a queue for a receive; `picking`: request and result,
                            `filter`: tags and SQL
order, order_pick           picks messages for groups that consume in order
polls, deadlines            waiting receives and pulls, and the events that wake them
receipt, pop_receipt        receipt handles of leases
replayed                    applies GRANT and ACK records of the log
"""
