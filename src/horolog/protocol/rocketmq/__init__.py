"""What both RocketMQ protocols share: names, properties, tags, the stored message layout.

message, record_columns          fields to a checked record, for one message or many
layout, properties, bodies       the stored layout, its properties, its compressed bodies
names, tags, message_group       valid names; codes of tags and message groups
delays, late_policy, lease_time  due times, late messages, bounds of leases
backoff, retry                   pauses between attempts; copies for another attempt
recall_handle                    the handle by which a producer recalls a message
sql92, sql_conditions            SQL92 filters
"""
