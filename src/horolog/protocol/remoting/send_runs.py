"""Runs of sends that are alike (`send_reader.Alike`), read as columns: one header serves all.

If one of the frames is bad, the whole run is left to `send.gather`, which adds each frame by itself
and knows the text of each refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.protocol.remoting.building import Building, Where, messages_of
from horolog.protocol.remoting.gathered import Gathered, Site
from horolog.protocol.remoting.send_header import Shared, names_of, shared_by
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.wanted import SendContext, Wanted
from horolog.protocol.rocketmq.record_columns import Host, Messages


def gather_alike(
    runs: Sequence[Alike],
    born_hosts: Sequence[Host],
    site: Site,
    new_ids: Callable[[int], list[bytes]],
    shapes: Shapes,
) -> Gathered | None:
    """Build one command for runs of one shape from several clients; None if a frame is bad.

    born_hosts  host of each run's client
    shapes      the shapes learned from the messages of such runs
    """
    whole = Alike(runs[0].shape)
    hosts: list[Host] = []
    for run, host in zip(runs, born_hosts, strict=True):
        whole.add(run.columns, run.bodies)
        hosts += [host] * len(run)
    cluster = site.cluster.encode()

    def context_of(delayed_properties: Sequence[bytes]) -> SendContext:
        return SendContext(site.levels, delayed_properties, new_ids, cluster)

    read = read_run(whole, hosts, context_of, shapes)
    if read is None:
        return None
    shared, messages = read
    building = Building(shared.topic, shared.name)
    building.add_runs(runs, messages)
    return building.finish()


def read_run(
    run: Alike,
    born_hosts: Sequence[Host],
    context_of: Callable[[Sequence[bytes]], SendContext],
    shapes: Shapes,
) -> tuple[Shared, Messages] | None:
    """Return the shared fields and the messages of a run; None if a frame is bad."""
    _, queues, born_ms, texts, _ = run.columns
    code, get = run.sample.code, run.sample.fields.get
    topic, _, sys_flag, _, flags, _, attempts, batch = names_of(code)
    same = [get(name) for name in (sys_flag, flags, attempts, batch)]
    sizes = list(map(len, run.bodies))
    if min(sizes) == 0 or max(sizes) > BODY_MAX:
        return None
    try:
        of = {each: shared_by(code, get(topic), each.decode(), *same) for each in set(queues)}
        if any(each.is_half for each in of.values()):
            return None
        context = context_of([of[queue].delayed_properties for queue in queues])
        wanted = shapes.read(texts, context)
        if wanted is None:
            wanted = Wanted.of(texts, context)
            shapes.missed(texts)
    except HorologError:
        return None
    count, shared = len(run), of[queues[0]]
    where = Where(
        [shared.flag] * count,
        [of[queue].queue_id for queue in queues],
        [shared.sys_flag] * count,
        [shared.attempts] * count,
        list(map(int, born_ms)),
    )
    return shared, messages_of(run.bodies, where, wanted, born_hosts)
