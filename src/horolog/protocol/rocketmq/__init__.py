"""What both RocketMQ protocols share: names, properties, tags, the stored message layout.

message, record_columns         from fields to a checked record, one or many
layout, properties, bodies      the stored layout and its parts
names, tags, message_group      what clients call things
delays, late_policy, lease_time when a message is due, too late, given out again
backoff, retry                  attempts: pauses, copies
recall_handle                   what a producer keeps to cancel a message
sql92, sql_conditions           filters
"""
