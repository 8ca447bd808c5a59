"""Routes and the cluster, as the name server tells of them.

The JSON is compact and its keys are sorted: the Go client reads the addresses as text.
"""

from __future__ import annotations

import orjson

READ, WRITE, INHERIT = 4, 2, 1
READ_WRITE = READ | WRITE
ID_OF_LEADER = "0"


def broker_entry(broker_name: str, cluster_name: str, address: str) -> dict[str, object]:
    """The one broker."""
    return {
        "brokerAddrs": {ID_OF_LEADER: address},
        "brokerName": broker_name,
        "cluster": cluster_name,
        "enableActingMaster": False,
    }


def route(
    broker: dict[str, object], read_queues: int, write_queues: int, perm: int, order: str = ""
) -> bytes:
    """Where the queues of a topic are.

    order  "broker:queues" of a topic whose order a client keeps over all queues; "": any other
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
    """All brokers, and which cluster they are of."""
    name = str(broker["brokerName"])
    return orjson.dumps(
        {
            "brokerAddrTable": {name: broker},
            "clusterAddrTable": {str(broker["cluster"]): [name]},
        },
        option=orjson.OPT_SORT_KEYS,
    )
