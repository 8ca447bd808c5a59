"""Consume: give messages out by lease or by offset, let those who found none wait, note what is consumed.

receives, renewals  by lease, and how leases of living clients go on
lease_changes, acks  what a consumer does with a lease: acknowledge, change, give up
pulls, offsets      by offset, and the offsets that groups commit
waiting             whoever found nothing
lags                how far groups are
queued, queue_times one message by its queue offset, or by its time
"""
