"""The side of consumers: queues, filters, leases, progress."""
