"""RocketMQ 5.x: messages, status codes and handles of `apache.rocketmq.v2`.

messaging_pb2              what protobuf makes of `messaging.proto`
translate, status          requests to commands, errors to codes
settings, transactions     what clients are told, how they know transactions
quick_sends, sent_meanings, quick_records, quick_acks,
ready, message_fields, deliveries, alike
                           the same without protobuf's objects, for what comes by the thousand
"""
