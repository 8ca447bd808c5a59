"""The broker's settings, as RocketMQ's tools see them."""

from __future__ import annotations

from horolog.config import Settings
from horolog.limits import BODY_MAX, HOUR_MS, QUEUES_DEFAULT, SECOND_MS

_FLUSH = {"sync": "SYNC_FLUSH", "interval": "ASYNC_FLUSH", "os": "ASYNC_FLUSH"}


def properties_of(settings: Settings) -> dict[str, object]:
    """Return settings that mean the same in RocketMQ, under RocketMQ's names."""
    return {
        "autoCreateSubscriptionGroup": "true",
        "autoCreateTopicEnable": str(settings.remoting_auto_create).lower(),
        "brokerRole": "ASYNC_MASTER",  # the leader waits for no replica
        "defaultTopicQueueNums": QUEUES_DEFAULT,
        "fileReservedTime": settings.retention_ms // HOUR_MS,
        "flushDiskType": _FLUSH[settings.flush],
        "maxMessageSize": BODY_MAX,
        "messageDelayLevel": settings.levels.text,
        "storePathRootDir": settings.data_dir.absolute(),
        "timerMaxDelaySec": settings.max_delay_ms // SECOND_MS,
        "timerWheelEnable": "true",
        "transactionCheckInterval": settings.transaction_check_ms,
        "transactionCheckMax": settings.transaction_check_max,
        "transactionTimeOut": settings.transaction_timeout_ms,
    }
