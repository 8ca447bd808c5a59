"""Leases of push consumers, which go on while their client lives: over starts of the broker, too (P3)."""

from __future__ import annotations

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode
from horolog.limits import (
    AUTO_RENEW_MS,
    AUTO_RENEW_TOTAL_MAX_MS,
    CLIENT_EXPIRY_MS,
    CLIENT_GONE_INVISIBLE_MS,
    RENEW_AHEAD_MS,
    RENEW_FIRST_MS,
)
from horolog.log.control_records import (
    NO_HOLDER,
    Holder,
    decode_grant,
    encode_grant,
    granted_rows,
)
from horolog.log.record import ENVELOPE_BYTES
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    ClientGone,
    ClientSeen,
    CreateTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode

_BEAT_MS = 10_000


def send(broker, n: int, first: int = 0) -> None:
    ids = range(first, first + n)
    every = [encode(topic="t", body=b"x", message_id=f"m{i}") for i in ids]
    broker.ask(SendMessages("t", every))


def receive(broker, client: str = "c", batch: int = 32, *, renew: bool = True) -> list:
    return broker.ask(Receive("g", "t", -1, "*", batch, 60_000, renew, 0, client)).messages


def offsets(messages: list) -> list[int]:
    return [each.queue_offset for each in messages]


def ack(broker, messages: list) -> list:
    return broker.ask(Ack("g", "t", [each.receipt_handle for each in messages])).refused


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send(world.broker, 4)
    return world.broker


def beats(world, broker, ms: int, *clients: str) -> None:
    """So much time passes, and these clients show themselves as they do."""
    for _ in range(ms // _BEAT_MS):
        world.clock.advance(_BEAT_MS)
        for client in clients:
            broker.ask(ClientSeen(client))
        broker.settle()


def renewed(world, broker, batch: int = 1) -> list:
    """What a client was given, and has for so long that it was renewed."""
    held = receive(broker, batch=batch)
    world.clock.advance(RENEW_FIRST_MS)
    broker.settle()
    return held


def start_again(world, *, from_checkpoint: bool = False) -> None:
    if from_checkpoint:
        checkpoint(world)
    world.reopen()


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_p3_what_a_push_consumer_works_on_is_not_given_out_again_after_a_start(
    world, broker, from_checkpoint: bool
) -> None:
    held = receive(broker, batch=2)
    beats(world, broker, 40_000, "c")
    for _ in range(3):
        start_again(world, from_checkpoint=from_checkpoint)
        beats(world, broker, 3 * AUTO_RENEW_MS, "c")
        assert offsets(receive(broker, "other", renew=False)) in ([2, 3], [])
        broker.check_invariants(rows=True)
    assert ack(broker, held) == [None, None], "the first handles are good"
    world.reopen()
    world.clock.advance(AUTO_RENEW_MS)
    assert offsets(receive(broker)) == [2, 3]


def test_a_client_has_a_minute_to_come_again(world, broker) -> None:
    held = renewed(world, broker)
    world.clock.advance(AUTO_RENEW_MS - 5_000)
    world.reopen()
    world.clock.advance(CLIENT_EXPIRY_MS - 1_000)
    assert offsets(receive(broker, "other")) == [1, 2, 3]
    broker.ask(ClientSeen("c"))
    beats(world, broker, 3 * AUTO_RENEW_MS, "c", "other")
    assert ack(broker, held) == [None]


def test_what_nobody_works_on_any_more_comes_a_minute_after_the_start(world, broker) -> None:
    renewed(world, broker)
    world.reopen()
    start = world.clock.monotonic_ms()
    while not (found := receive(broker, "other", batch=1, renew=False)) or offsets(found) != [0]:
        world.clock.advance(1_000)
        ack(broker, found)
    assert world.clock.monotonic_ms() - start in range(CLIENT_EXPIRY_MS, CLIENT_EXPIRY_MS + 1_001)
    assert found[0].attempt == 2


def test_the_minute_is_kept_when_the_process_ends_again(world, broker) -> None:
    held = renewed(world, broker)
    world.clock.advance(AUTO_RENEW_MS - 1)
    world.reopen()
    broker.settle()
    world.clock.advance(RENEW_AHEAD_MS)
    assert offsets(receive(broker, "other")) == [1, 2, 3], "time goes on in the log"
    world.reopen()
    broker.settle()
    world.clock.advance(CLIENT_EXPIRY_MS - 2 * _BEAT_MS)
    broker.ask(ClientSeen("c"))
    beats(world, broker, AUTO_RENEW_MS, "c", "other")
    assert ack(broker, held) == [None]


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_what_a_client_may_not_know_of_is_not_kept_for_it(
    world, broker, from_checkpoint: bool
) -> None:
    """The answer to its receive may have gone with the process."""
    receive(broker, batch=1)
    world.clock.advance(RENEW_FIRST_MS - 1)
    broker.settle()
    start_again(world, from_checkpoint=from_checkpoint)
    beats(world, broker, AUTO_RENEW_MS, "c")
    (found,) = receive(broker, batch=1)
    assert (found.queue_offset, found.attempt) == (0, 2)


def test_a_lease_that_has_ended_does_not_begin_again_with_a_start(world, broker) -> None:
    renewed(world, broker)
    world.clock.advance(CLIENT_EXPIRY_MS + AUTO_RENEW_MS)
    broker.settle()
    send(broker, 1, 4)  # the log has a newer time than the end of the lease
    world.reopen()
    assert offsets(receive(broker, "other")) == [0, 1, 2, 3, 4]


def test_a_client_that_left_holds_nothing_after_a_start(world, broker) -> None:
    renewed(world, broker, 2)
    broker.ask(ClientGone("c"))
    broker.settle()
    world.reopen()
    world.clock.advance(CLIENT_GONE_INVISIBLE_MS)
    assert offsets(receive(broker, "other")) == [0, 1, 2, 3]


def test_the_handle_of_a_client_that_left_is_good_after_two_starts(world, broker) -> None:
    held = renewed(world, broker)
    world.reopen()
    broker.ask(ClientGone("c"))
    broker.settle()
    world.reopen()
    assert ack(broker, held) == [None] * len(held)


def test_what_its_client_has_changed_is_not_renewed_after_a_start(world, broker) -> None:
    (held,) = renewed(world, broker)
    broker.ask(ChangeInvisible("g", "t", held.receipt_handle, 15_000))
    world.reopen()
    beats(world, broker, 20_000, "c")
    assert offsets(receive(broker, "c", renew=False)) == [0, 1, 2, 3]


def test_starts_do_not_make_the_three_hours_longer(world, broker) -> None:
    renewed(world, broker)
    ack(broker, receive(broker, "other"))
    starts, passed = 0, 0
    while not (found := receive(broker, "other", renew=False)):
        start_again(world, from_checkpoint=bool(starts % 2))
        starts += 1
        beats(world, broker, 20 * 60_000, "c")
        passed += 20 * 60_000
        assert passed < 2 * AUTO_RENEW_TOTAL_MAX_MS
    assert offsets(found) == [0]
    assert passed in range(AUTO_RENEW_TOTAL_MAX_MS, AUTO_RENEW_TOTAL_MAX_MS + 40 * 60_000)


def test_handles_of_others_stay_void(world, broker) -> None:
    (held,) = renewed(world, broker)
    world.reopen()
    beats(world, broker, AUTO_RENEW_MS, "c")
    forged = held.receipt_handle[:-4] + "AAAA"
    (refused,) = broker.ask(Ack("g", "t", [forged])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE
    assert ack(broker, [held]) == [None]


def test_a_grant_says_for_whom_it_is_renewed() -> None:
    rows = granted_rows([(7, 1, 3), (9, 2, 4)])
    for holder in (NO_HOLDER, Holder("host@1#é", 10_800_000), Holder("c", 0, 5), Holder("", 0, 5)):
        payload = encode_grant(1, 2, 3, 10, 60_000, rows, holder)[ENVELOPE_BYTES:]
        record = decode_grant(payload)
        assert record.holder == holder
        assert record.payload_bytes == len(payload)
        assert record.granted.tolist() == rows.tolist()


def test_what_many_hold_is_renewed_in_records_of_some_size(world, broker) -> None:
    send(broker, 3_000, 4)
    while receive(broker):
        pass
    before = broker.shard.log.end
    broker.ask(ClientGone("c"))
    broker.settle()
    sizes = [
        header.length for header, _ in broker.shard.log.intact_frames(before, broker.shard.log.end)
    ]
    assert max(sizes) <= broker.shard.log.frame_bytes_max


def test_golden_a_grant_with_its_holder() -> None:
    """As data directories have it."""
    holder = Holder("c@é", 10_800_000, 5)
    made = encode_grant(1, 2, 3, 10, 60_000, granted_rows([(7, 1, 3)]), holder, again=True)
    assert made.hex() == (
        "50000000080100000000000000000000010000000200000003000000010000000a0000000000"
        "000060ea000000000000070000000000000001000000030000000500000080cba40000000000"
        "6340c3a9"
    )
