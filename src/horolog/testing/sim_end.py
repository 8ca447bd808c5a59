"""The end of a simulation: a crash, then all time passes, everything is consumed and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horolog.protocol.commands import DescribeBroker, DescribeTopic, Receive
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash
from horolog.testing.sim_checks import PromiseBroken

if TYPE_CHECKING:
    from horolog.testing.simulation import Simulation

_Place = tuple[str, int, int]


def drain(sim: Simulation) -> None:
    """Crash, restart, let all time pass, consume everything as a new group, and compare."""
    sim.disk.clear_faults()
    sim.disk.capacity_bytes = None
    _crash(sim)
    sim.loads.finish()
    sim.lake.finish(sim.clock.wall_ms())
    latest = max((max(row["dues"]) for row in sim.history.messages.values()), default=0)
    latest = max(latest, sim.giving_up.latest_ms, sim.in_order.latest_ms, sim.traders.latest_ms)
    latest = max(latest, sim.late.latest_ms, sim.movers.latest_ms)
    sim.readers.check(sim.topics)
    sim.clock.advance(max(0, latest - sim.clock.wall_ms()) + 20_000)
    sim.broker.settle(2_000)
    sim.traders.all_over(sim.clock)
    sim.schedules.remove_all(sim.clock.wall_ms())
    delivered = _consume(sim)
    view = sim.broker.ask(DescribeBroker())
    may_wait = 0 if sim.rot is None else len(_missing(sim, delivered))
    if view.pending > may_wait or (view.problems and sim.rot is None):
        raise PromiseBroken(f"at the end {view.pending} pending, problems {list(view.problems)}")
    if sim.rot is None:
        sim.levels.check(sim.broker)
    _check_kept(sim, delivered)
    _check_reported(sim, delivered)
    sim.readers.finish(delivered, sim.topics)
    sim.polls.finish()
    sim.retries.finish(lost_allowed=sim.rot is not None)
    sim.giving_up.finish(lost_allowed=sim.rot is not None)
    sim.in_order.finish(sim.clock, lost_allowed=sim.rot is not None)
    sim.traders.finish(lost_allowed=sim.rot is not None)
    sim.late.finish(lost_allowed=sim.rot is not None)
    rotten = () if sim.rot is None else sim.rot.keys
    sim.movers.finish(lost_allowed=sim.rot is not None, rotten=rotten)
    sim.schedules.finish(lost_allowed=sim.rot is not None)
    sim.back_offs.finish(lambda: _crash(sim), lost_allowed=sim.rot is not None)
    sim.history.final(
        delivered, lost_allowed=False, dropped=lambda topic, name: _dropped(sim, topic, name)
    )


def _crash(sim: Simulation) -> None:
    sim.disk.crash(power_cut=sim.flush == "sync")
    sim.lose_answers()
    sim.open()


def _consume(sim: Simulation) -> dict[_Place, str]:
    delivered: dict[_Place, str] = {}
    for topic in sim.topics:
        while messages := sim.broker.ask(
            Receive("final", topic, -1, "*", 32, 600_000, False, 0, "final")
        ).messages:
            for message in messages:
                stored = layout.decode(message.layout)
                decoded = properties.decode(stored.properties)
                message_id = decoded[properties.UNIQ_KEY]
                due = int(decoded.get(properties.TIMER_DELIVER_MS, "0"))
                place = (topic, message.queue_id, message.queue_offset)
                sim.history.intact(message_id, stored.body)
                sim.history.received("final", place, message_id, stored.store_ms, due)
                delivered[place] = message_id
    return delivered


def _dropped(sim: Simulation, topic: str, message_id: str) -> bool:
    """Return whether retention has dropped the place where a message was made visible."""
    start = sim.broker.shard.log.start
    position = sim.broker.watch.positions.get(key_hash(topic, message_id))
    return position is not None and position < start


def _check_kept(sim: Simulation, delivered: dict[_Place, str]) -> None:
    """Check that each queue is complete from its min offset on, except for rotten messages."""
    for name in sim.topics:
        topic = sim.broker.ask(DescribeTopic(name))
        for queue, (first, end) in enumerate(
            zip(topic.min_offsets, topic.queue_offsets, strict=True)
        ):
            offsets = {at for t, q, at in delivered if (t, q) == (name, queue)}
            lowest = min(offsets, default=end)
            holes = set(range(first, end)) - offsets
            if sim.rot is not None and len(holes) <= len(_missing(sim, delivered)):
                continue
            if holes or lowest > first:
                raise PromiseBroken(f"P2: {name} {queue}: {first} to {end} without {sorted(holes)}")


def _missing(sim: Simulation, delivered: dict[_Place, str]) -> set[str]:
    """Return the ids of messages that may have rotted and were not delivered."""
    return sim.history.excused - set(delivered.values())


def _check_reported(sim: Simulation, delivered: dict[_Place, str]) -> None:
    """Check that the broker has reported a problem if an acknowledged message is missing."""
    rows = sim.history.messages
    lost = {
        name
        for name in _missing(sim, delivered)
        if rows[name]["stored"]
        and not rows[name]["recall"]
        and not rows[name]["recall_unknown"]
        and not _dropped(sim, rows[name]["topic"], name)
    }
    if lost and not (
        sim.broker.problems or any("quarantined" in line for line in sim.broker.reports)
    ):
        raise PromiseBroken(f"{sorted(lost)[:9]} are missing, and nobody says so")
