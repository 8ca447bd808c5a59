"""The simulator in CI (P1, P2, P3, P7, P8): seeds for a budget of time, and proof that its checkers can fail."""

from __future__ import annotations

import pytest

from horolog.log.control_records import IS_EXPIRED
from horolog.log.frame import seal
from horolog.log.record import ENVELOPE, FLAGS_AT, KIND_AT, Kind
from horolog.log.segment import Write
from horolog.protocol.commands import Recalled, RecallStatus, Reschedule, Sent
from horolog.protocol.recall_commands import Rescheduled, RescheduleStatus
from horolog.testing.sim_checks import History, PromiseBroken
from horolog.testing.sim_lake import LakeJobs
from horolog.testing.sim_watch import HandOverWatch
from horolog.testing.simulation import Simulation
from horolog.testing.simulator import main, run_seed


def seeds(capsys, *options: str) -> str:
    """What the simulator's command says of seeds that all end well."""
    found = main(list(options))
    output = capsys.readouterr().out
    assert found == 0, output
    return output.strip()


def test_promises_hold_for_fifteen_seconds_of_seeds(capsys, record_property) -> None:
    output = seeds(capsys, "--seeds", "300", "--seconds", "15", "--at-least", "40")
    record_property("figures", output)


def test_promises_hold_on_the_real_disk(tmp_path) -> None:
    for seed in range(10):
        root = tmp_path / str(seed)
        root.mkdir()
        failure = run_seed(seed, root=root)
        assert not failure, f"seed {seed}\n{failure}"


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_promises_hold_for_three_minutes_of_seeds(capsys, record_property) -> None:
    """The first of the 10 000 below, at least 300."""
    limits = ("--seconds", "180", "--at-least", "300")
    output = seeds(capsys, "--seeds", "10000", "--first", "1000", *limits)
    record_property("figures", output)


@pytest.mark.full
@pytest.mark.timeout(0)
def test_promises_hold_for_10000_seeds(capsys) -> None:
    seeds(capsys, "--seeds", "10000", "--first", "1000")


@pytest.mark.parametrize(("seed", "rot"), [(100_630, False), (104_398, False), (1_127, True)])
def test_seeds_that_a_check_was_wrong_about(seed, rot) -> None:
    """What fires after its schedule has gone; what is taken back after a message that became a dead letter; what is
    sent again while its first half message cannot be read.
    """
    failure = run_seed(seed, rot=rot)
    assert not failure, failure


def test_only_those_whose_bits_flipped_are_missing() -> None:
    """The first five stories in which bits flip, which is about every third one."""
    flipped = 0
    for seed in range(100):
        simulation = Simulation(seed, rot=True)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        flipped += bool(simulation.rot.flips)
        if flipped == 5:
            break
    assert flipped == 5


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_only_those_whose_bits_flipped_are_missing_for_two_minutes(capsys, record_property) -> None:
    """The first of the 1 000 below, at least 150."""
    limits = ("--seconds", "120", "--at-least", "150")
    output = seeds(capsys, "--rot", "--seeds", "1000", "--first", "1000", *limits)
    record_property("figures", output)


@pytest.mark.full
@pytest.mark.timeout(0)
def test_only_those_whose_bits_flipped_are_missing_for_1000_seeds(capsys) -> None:
    seeds(capsys, "--rot", "--seeds", "1000", "--first", "1000")


def test_watch_notices_an_early_hand_over() -> None:
    body = ENVELOPE.pack(16, Kind.HANDED, 0, 0, 1_000)
    header = seal(log_id=1, shard=0, base=0, durable=0, append_ms=0, epoch=1, count=1, body=body)
    watch = HandOverWatch()
    watch.see([Write(0, header), Write(64, body)], 1_000)
    with pytest.raises(PromiseBroken, match="P1"):
        watch.see([Write(0, header), Write(64, body)], 999)


def history(due_ms: int = 5_000) -> History:
    made = History()
    for i, message_id in enumerate(("a", "b")):
        made.sent(message_id, "t", due_ms, 0)
        made.send_answered([message_id], Sent([100 + i], [0], [-1]))
    return made


@pytest.mark.parametrize("is_there", [True, False])
def test_watch_notices_a_message_that_is_too_late_twice(is_there) -> None:
    """But for one whose record was torn by a power cut, and written over."""
    watch = HandOverWatch()
    watch._see_expired(100, [(7, 0)])
    head = bytearray(16)
    head[KIND_AT], head[FLAGS_AT] = (Kind.RECALL_MANY, IS_EXPIRED) if is_there else (Kind.HANDED, 0)
    watch.new_life(200, lambda position: bytes(head))
    if is_there:
        with pytest.raises(PromiseBroken, match="P3"):
            watch._see_expired(300, [(7, 0)])
    else:
        watch._see_expired(300, [(7, 0)])


def test_history_notices_a_lost_message() -> None:
    with pytest.raises(PromiseBroken, match="P2"):
        history().final({("t", 0, 0): "a"}, lost_allowed=False)


def test_history_notices_a_second_hand_over() -> None:
    seen = history()
    seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)
    with pytest.raises(PromiseBroken, match="P3"):
        seen.received("g", ("t", 0, 1), "a", 5_000, 5_000)


def test_history_notices_another_message_at_the_same_offset() -> None:
    seen = history()
    seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)
    with pytest.raises(PromiseBroken, match="P3"):
        seen.received("g", ("t", 0, 0), "b", 5_000, 5_000)


def test_history_notices_disorder() -> None:
    with pytest.raises(PromiseBroken, match="P7"):
        history().final({("t", 0, 0): "b", ("t", 0, 1): "a"}, lost_allowed=False)


@pytest.mark.parametrize("status", [RecallStatus.CANCELLED, RecallStatus.NOT_FOUND])
def test_history_notices_an_untrue_recall(status) -> None:
    seen = history()
    seen.recall_answered("a", Recalled(status, "", "a", 5_000), asked_seen=False)
    with pytest.raises(PromiseBroken, match="P8"):
        seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)


@pytest.mark.parametrize("due_ms", [4_000, 5_000])
def test_history_notices_a_due_time_that_was_left(due_ms) -> None:
    """Message a is handed over at 5 000 as it was asked for: no copy may come that is due as it was before."""
    seen = history()
    row = seen.messages["a"]
    row["due_ms"], row["dues"] = due_ms, {due_ms}
    seen.reschedule_asked("a", None)
    asked = Reschedule("t", "a", due_ms, 0, now=True)
    moved = Rescheduled(RescheduleStatus.HANDED_OVER, "", "a", 5_000, 100, 0, 0, 1)
    seen.reschedule_answered(asked, moved, asked_seen=False)
    seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)
    if due_ms < 5_000:
        with pytest.raises(PromiseBroken, match="P8"):
            seen.received("h", ("t", 0, 0), "a", 5_000, due_ms)


def test_a_copy_that_was_sent_on_to_another_topic_is_not_the_message() -> None:
    jobs = object.__new__(LakeJobs)
    jobs._history = history()
    before = jobs._history.messages["a"]["origin"]
    jobs._note_origin("once-more", "a", 7.5)
    assert jobs._history.messages["a"]["origin"] == before
    jobs._note_origin("t", "a", 7.5)
    assert jobs._history.messages["a"]["origin"] == 7.5


def test_history_notices_a_redelivery_of_an_acknowledged_message() -> None:
    seen = history()
    seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)
    seen.acked.add(("g", "t", 0, 0))
    with pytest.raises(PromiseBroken, match="P3"):
        seen.received("g", ("t", 0, 0), "a", 5_000, 5_000)
