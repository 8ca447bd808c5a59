"""Consume: give messages out, park polls that find none, and record what is consumed.

receives, renewals   give messages out by lease, and keep the leases of living clients
lease_changes, acks  acknowledge, change or give up a lease
pulls, offsets       give messages out by offset, and take over the offsets that groups commit
waiting              serve, time out and cancel parked polls
lags                 how far consumer groups have consumed topics
queued, queue_times  read one message by its queue offset, or find one by its store time
"""
