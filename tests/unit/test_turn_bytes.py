"""What the receives of one turn lease is bounded in bytes, and each of them gets something (P11)."""

from __future__ import annotations

from horolog.broker.consume import receives
from horolog.protocol.commands import CreateTopic, MessageType, Receive, SendMessages, TopicType
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
