"""Messages looked up over remoting, by where they lie, by id and by key."""

from __future__ import annotations

from pathlib import Path

from tests.support.remoting_door import STORE_HOST, RemotingDoor, remoting_door
from tests.support.remoting_requests import layouts, sending

from horolog.protocol.remoting.codes import Code, Status


def hosts(door: RemotingDoor) -> list[tuple[bytes, int]]:
    """The store hosts that a look-up by place, and one by key, name."""
    with door.client() as client:
        door.create("orders", queues=1)
        fields = sending(properties={"UNIQ_KEY": "A" * 32, "KEYS": "k", "TAGS": "TagA"})
        sent = client.done(Code.SEND_MESSAGE_V2, fields, b"x")
        asked = {"topic": "orders", "offset": int(sent.fields["msgId"][16:], 16)}
        bodies = [
            client.done(Code.VIEW_MESSAGE_BY_ID, asked).body,
            client.done(Code.QUERY_MESSAGE, {"topic": "orders", "key": "k"}).body,
        ]
        return [message.store_host for body in bodies for message in layouts(body)]


def test_the_store_is_where_the_tool_has_dialled(tmp_path: Path) -> None:
    """Tools that say who consumed a message compare it with the broker's address in the cluster's list."""
    with remoting_door(tmp_path) as door:
        assert hosts(door) == [(b"\x7f\0\0\1", door.broker[1])] * 2


def test_an_advertised_store_stays(tmp_path: Path) -> None:
    with remoting_door(tmp_path, advertised="broker.example") as door:
        assert hosts(door) == [(STORE_HOST[:4], 10_911)] * 2


def test_what_is_looked_up_by_is_what_the_tool_says(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        names = {"UNIQ_KEY": "A" * 32, "KEYS": "k", "TAGS": "TagA"}
        client.done(Code.SEND_MESSAGE_V2, sending(properties=names), b"x")

        def code(key: str, **fields: object) -> int:
            asked = {"topic": "orders", "key": key, **fields}
            return client.call(Code.QUERY_MESSAGE, asked).code

        for found in (
            code("k"),
            code("k", indexType="K"),
            code("A" * 32, indexType="U"),
            code("A" * 32, indexType="K", _UNIQUE_KEY_QUERY=True),
        ):
            assert found == Status.SUCCESS
        assert code("k", indexType="U") == Status.QUERY_NOT_FOUND
        by_tag = client.call(
            Code.QUERY_MESSAGE, {"topic": "orders", "key": "TagA", "indexType": "T"}
        )
        assert by_tag.code == Status.INVALID_PARAMETER
        assert by_tag.remark.startswith(
            "indexType: 'T'; messages are indexed by key (K) and id (U)"
        )
