"""What the receives of one turn lease is bounded in bytes, and each of them gets something (P11)."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace

import pytest

from horolog.broker.consume import receives
from horolog.limits import BODY_MAX
from horolog.protocol.commands import CreateTopic, MessageType, Receive, SendMessages, TopicType
from horolog.protocol.rocketmq.bodies import size_for_5x
from horolog.protocol.rocketmq.layout import COMPRESSED
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer


def test_many_receives_of_one_turn_share_its_bytes(world, monkeypatch) -> None:
    """2 048 receives of large messages were answered with all of them at once, in memory."""
    monkeypatch.setattr(receives, "TURN_LEASED_BYTES", 10_000)
    ask = world.broker.ask
    ask(CreateTopic("t", TopicType.MIXED, 1))
    for i in range(8):
        made = encode(topic="t", body=bytes(1_000), message_id=f"m{i}", type=MessageType.NORMAL)
        ask(SendMessages("t", [made]))
    asked = [Answer(Receive(f"g{i}", "t", -1, "*", 8, 60_000, False, 0, "c")) for i in range(4)]
    world.broker.step(asked)
    world.broker.settle()
    got = [len(each.result.messages) for each in asked]
    assert got[0] == 8
    assert 1 <= got[1] < 4, "as far as there is room"
    assert got[2:] == [1, 1]
    rest = ask(Receive("g3", "t", -1, "*", 8, 60_000, False, 0, "c"))
    assert len(rest.messages) == 7, "the next turn has room again"


@pytest.mark.parametrize("is_orderly", [False, True])
def test_what_was_compressed_counts_as_it_was_before(world, is_orderly: bool) -> None:
    """32 messages of 4 KB were an answer of 134 MB to a 5.x consumer, in one turn."""
    ask = world.broker.ask
    ask(CreateTopic("t", TopicType.MIXED, 1))
    body = zlib.compress(bytes(100_000))
    made = [
        encode(topic="t", body=body, message_id=f"m{i}", sys_flag=COMPRESSED, message_group=f"g{i}")
        for i in range(8)
    ]
    ask(SendMessages("t", made))
    receive = Receive(
        "g", "t", -1, "*", 8, 60_000, False, 0, "c", bytes_max=250_000, in_order=is_orderly
    )
    got = [len(ask(replace(receive, inflates=True)).messages) for _ in range(2)]
    assert got == [3, 3], "the one that takes the last of the room is the last"
    assert len(ask(receive).messages) == 2, "as it is stored, all that is left has room"


@pytest.mark.parametrize(
    ("body", "sys_flag", "plain"),
    [
        (zlib.compress(bytes(5_000)), COMPRESSED, 5_000),
        (zlib.compress(bytes(5_000)), 0, None),
        (gzip.compress(bytes(5_000), mtime=0), COMPRESSED, None),
        (b"neither", COMPRESSED, None),
        (zlib.compress(bytes(BODY_MAX + 1)), COMPRESSED, None),
    ],
)
def test_what_a_body_takes_in_an_answer(body: bytes, sys_flag: int, plain: int | None) -> None:
    made = encode(topic="t", body=body, message_id="m", sys_flag=sys_flag)
    size = len(made.record)
    assert size_for_5x(made.record) == (size if plain is None else size - len(body) + plain)
