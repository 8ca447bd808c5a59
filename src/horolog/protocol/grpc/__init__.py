"""RocketMQ 5.x: messages, status codes and handles of `apache.rocketmq.v2`."""
