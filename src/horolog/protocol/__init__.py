"""Bytes in, commands out: what horolog shares with every RocketMQ client."""
