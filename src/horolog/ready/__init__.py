"""The side of consumers: which messages of a group may be taken, leased, tried again.

ready                       the entrance: groups, their progress, the polls that wait
groups                      names, ids and settings of consumer groups
progress, offset_runs       what a group has taken from a queue
leases, lease_life          what it holds just now; what may happen to a queue offset, as a table
free_pick                   a look at a queue: what of it a receive gets; `chosen` is what was found, `filter` what is wanted
order, order_pick           the same for groups that consume in order
polls, deadlines            who waits, and what wakes them
receipt, pop_receipt        handles of leases
replayed                    what the log says of leases, again
"""
