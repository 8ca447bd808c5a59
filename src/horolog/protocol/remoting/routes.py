"""Routes and the cluster, as a name server returns them.

The JSON is compact with sorted keys, because the Go client finds the addresses by text search.
"""

from __future__ import annotations

import orjson

from horolog.protocol.topic_commands import PERM_READ, PERM_WRITE

INHERIT = 1  # bit of RocketMQ's template topic: topics are made like it
READ_WRITE = PERM_READ | PERM_WRITE
ID_OF_LEADER = "0"


def broker_entry(broker_name: str, cluster_name: str, address: str) -> dict[str, object]:
    """Build the entry of the one broker."""
    return {
        "brokerAddrs": {ID_OF_LEADER: address},
        "brokerName": broker_name,
        "cluster": cluster_name,
        "enableActingMaster": False,
    }


def route(
    broker: dict[str, object], read_queues: int, write_queues: int, perm: int, order: str = ""
) -> bytes:
    """Encode the route of a topic: the broker and the queues.

    order  "broker:queues" for a topic whose order a client keeps over all queues; "" for others
    """
    found: dict[str, object] = {
        "brokerDatas": [broker],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": broker["brokerName"],
                "perm": perm,
                "readQueueNums": read_queues,
                "topicSysFlag": 0,
                "writeQueueNums": write_queues,
            }
        ],
    }
    if order:
        found["orderTopicConf"] = order
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def cluster(broker: dict[str, object]) -> bytes:
    """Encode all brokers, and the cluster of each."""
    name = str(broker["brokerName"])
    return orjson.dumps(
        {
            "brokerAddrTable": {name: broker},
            "clusterAddrTable": {str(broker["cluster"]): [name]},
        },
        option=orjson.OPT_SORT_KEYS,
    )
