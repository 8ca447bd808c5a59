"""The installed broker's remoting doors: addresses, restarts, and being without them."""

from __future__ import annotations

import socket

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_requests import bodies, pulling, sending

from horolog.protocol.remoting.codes import Code, Status
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process


def test_what_a_4x_client_has_stored_is_there_after_a_crash() -> None:
    """Messages, progress of groups, and ids that name the broker's address."""
    with BrokerProcess() as broker:
        with RemotingClient(broker.namesrv_address) as namesrv:
            answer = namesrv.json(Code.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]["broker-a"]
            assert answer["brokerAddrs"] == {"0": broker.broker_address}
        with RemotingClient(answer["brokerAddrs"]["0"]) as client:
            sent = client.done(Code.SEND_MESSAGE_V2, sending(), b"kept")
            client.done(
                Code.SEND_MESSAGE_V2, sending(properties={"TIMER_DELAY_SEC": "60"}), b"later"
            )
            address = bytes.fromhex(sent.fields["msgId"][:16])
            host, port = socket.inet_ntoa(address[:4]), int.from_bytes(address[4:], "big")
            assert f"{host}:{port}" == broker.broker_address
            progress = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
            assert client.done(Code.QUERY_CONSUMER_OFFSET, progress).fields == {"offset": "0"}
            client.done(Code.UPDATE_CONSUMER_OFFSET, progress | {"commitOffset": 1})
        broker.kill()
        broker.restart()
        with RemotingClient(broker.broker_address) as client:
            assert client.done(Code.QUERY_CONSUMER_OFFSET, progress).fields == {"offset": "1"}
            broker.advance("60s")
            pulled = client.done(Code.PULL_MESSAGE, pulling())
            assert bodies(pulled) == [b"kept", b"later"]
            position = int(sent.fields["msgId"][16:], 16)
            viewed = client.done(Code.VIEW_MESSAGE_BY_ID, {"offset": position})
            assert pulled.body.startswith(viewed.body)
            missing = client.call(Code.VIEW_MESSAGE_BY_ID, {"offset": position + 1})
            assert missing.code == Status.SYSTEM_ERROR


def test_a_broker_without_remoting_says_nothing_of_its_ports() -> None:
    with BrokerProcess(arguments=["--no-remoting"]) as broker:
        assert "grpc-port" in broker.ready
        assert "broker-port" not in broker.ready
        assert "namesrv-port" not in broker.ready
