"""The commands of offloads, which move messages due from some hour on to the lake and back.

    begin     BEGIN record: the messages in the far store are frozen (`lake.core.steps`); far
              buffers become runs
    freeze    FROZEN record, once all of them are in runs; then `pipeline.offload` reads the runs
              and writes Parquet
    commit    COMMIT record, the atomic point: the caller has compared count and checksum of the
              table with the runs.  Its frame has the count of messages by hour and topic; the runs
              are cut
    promote   an adoption brings an hour of a topic back (`LakeTier.check_promotion`); with its
              record that hour is no longer counted in the lake.  Each hour is promoted after all
              earlier hours
    recalls   of rows that were found in the table: `lake.core.recalls`

Steps are decided one at a time: while a record is appended and not yet applied, recalls and
hand-over wait (`broker.waits`), so that none of them meets a message on its way to the lake.
Freeze and commit are executed once all frozen far buffers have become runs.
"""

from __future__ import annotations

import numpy as np

from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.tier import Step, TierHost
from horolog.errors import ErrorCode, refused
from horolog.lake.core.stages import TABLE, Event, Stage
from horolog.lake.core.state import Lake, Offload
from horolog.lake.core.steps import (
    adopted_rows,
    frozen_runs,
    removed_mask,
    rows_of,
    waiting_counts,
)
from horolog.limits import (
    ADOPTION_APP_MAX,
    HOUR_MS,
    LAKE_MARGIN_MS,
    OFFLOAD_HOURS_MAX,
    OFFLOAD_MARGIN_MS,
)
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeOffload,
    DescribeTier,
    FreezeOffload,
    FrozenView,
    ListRecalled,
    OffloadView,
    TierHour,
    TierQuestion,
    TierStep,
    TierView,
)
from horolog.state_table import allows
from horolog.units import instant


def decide(lake: Lake, host: TierHost, command: TierStep | TierQuestion, wall_ms: int) -> object:
    """Execute a command and return the result that its docstring names.

    Steps are appended to the log, and applied when they are committed.
    """
    match command:
        case BeginOffload():
            return _begin(lake, host, command, wall_ms)
        case FreezeOffload(offload_id):
            return _freeze(lake, host, offload_id, wall_ms)
        case CommitOffload():
            return _commit(lake, host, command, wall_ms)
        case AbortOffload(offload_id):
            if not allows(TABLE, lake.stage_of(offload_id), Event.ABORT):
                return False
            host.append_step(Step({"step": "abort", "number": offload_id}, b""), wall_ms)
            return True
        case DescribeOffload(offload_id):
            return _view(lake, host, _of(lake, offload_id), with_runs=True)
        case DescribeTier(to_ms):
            return _lake_view(lake, host, to_ms)
        case ListRecalled(offload_id, hour):
            recalled = lake.recalled_of(_of(lake, offload_id).offload_id, hour)
            return list(zip(recalled["position"].tolist(), recalled["row"].tolist(), strict=True))


def _of(lake: Lake, offload_id: int) -> Offload:
    offload = lake.offloads.get(offload_id)
    if offload is None:
        raise refused("number", f"there is no offload {offload_id}", code=ErrorCode.NOT_FOUND)
    return offload


# --- steps ----------------------------------------------------------------------------------------


def _begin(lake: Lake, host: TierHost, command: BeginOffload, wall_ms: int) -> OffloadView:
    app, from_ms = command.app, command.from_ms
    if not app.strip() or len(app.encode()) > ADOPTION_APP_MAX:
        limit = f"1 to {ADOPTION_APP_MAX} bytes"
        raise refused("app", f"blank or too long; {limit} are allowed", limit)
    if lake.open is not None:
        if lake.open.app == app:
            return _view(lake, host, lake.open)
        raise refused(
            "app",
            f"offload {lake.open.offload_id} of app {lake.open.app!r} is under way; end or abort "
            "it first",
            "1 at a time",
            ErrorCode.TOO_MANY_REQUESTS,
        )
    if from_ms % HOUR_MS or from_ms < wall_ms + OFFLOAD_MARGIN_MS:
        limit = f"{OFFLOAD_MARGIN_MS // HOUR_MS} h from now"
        raise refused(
            "from_ms", f"{instant(from_ms)} must be a whole hour, and at least {limit}", limit
        )
    if host.is_stalled:
        raise refused("disk", "full; messages wait to be filed", code=ErrorCode.DISK_FULL)
    fields = {"step": "begin", "number": lake.next, "app": app, "from_ms": from_ms}
    host.append_step(Step(fields, b""), wall_ms)
    return OffloadView(lake.next, app, from_ms, Stage.SEALING.value, log_id=host.log_id)


def _freeze(lake: Lake, host: TierHost, offload_id: int, wall_ms: int) -> OffloadView:
    offload = _of(lake, offload_id)
    if allows(TABLE, offload.stage, Event.FREEZE):
        host.append_step(Step({"step": "frozen", "number": offload_id}, b""), wall_ms)
    return _view(lake, host, offload)


def _commit(lake: Lake, host: TierHost, command: CommitOffload, wall_ms: int) -> OffloadView:
    offload = _of(lake, command.offload_id)
    if offload.stage is Stage.LAKE:
        return _view(lake, host, offload)
    if not allows(TABLE, offload.stage, Event.COMMIT):
        raise refused(
            "number", f"offload {command.offload_id} is {offload.stage.value}, not frozen"
        )
    if offload.from_ms < wall_ms + LAKE_MARGIN_MS:
        limit = f"{LAKE_MARGIN_MS // HOUR_MS} h"
        raise refused(
            "number",
            f"it is less than {limit} to {instant(offload.from_ms)}, where offload "
            f"{command.offload_id} begins; abort it and begin another one",
            limit,
        )
    counts = waiting_counts(host.delay.far, offload)
    if len(counts) > OFFLOAD_HOURS_MAX:
        limit = str(OFFLOAD_HOURS_MAX)
        raise refused(
            "number", f"{len(counts)} hours times topics; at most {limit} are allowed", limit
        )
    recalled = len(lake.recalled_of(offload.offload_id))
    has = int(counts["count"].sum()) + recalled
    if has != command.rows:
        raise refused("rows", f"the lake has {command.rows}, the broker {has}")
    fields = {
        "step": "commit",
        "number": offload.offload_id,
        "uri": command.uri,
        "rows": command.rows,
        "at_ms": wall_ms,
        "adopted": adopted_rows(host.delay.far, offload),
    }
    host.append_step(Step(fields, counts.tobytes()), wall_ms)
    waiting = int(counts["count"].sum())
    return OffloadView(
        offload.offload_id,
        offload.app,
        offload.from_ms,
        Stage.LAKE.value,
        command.uri,
        command.rows,
        waiting,
        host.log_id,
    )


# --- views ----------------------------------------------------------------------------------------


def _view(lake: Lake, host: TierHost, offload: Offload, *, with_runs: bool = False) -> OffloadView:
    waiting = sum(
        n for offload_id, _, _, n in lake.counts_before(1 << 40) if offload_id == offload.offload_id
    )
    view = OffloadView(
        offload.offload_id,
        offload.app,
        offload.from_ms,
        offload.stage.value,
        offload.uri,
        offload.rows,
        waiting,
        host.log_id,
        committed_ms=offload.committed_ms,
    )
    if with_runs and offload.stage is Stage.FROZEN:
        view.runs = _runs(lake, host, offload)
    return view


def _runs(lake: Lake, host: TierHost, offload: Offload) -> list[FrozenView]:
    recalled = lake.recalled_of(offload.offload_id)
    found = []
    for run in frozen_runs(host.delay.far):
        first, stop = rows_of(run, offload.from_ms)
        if first >= stop:
            continue
        removed = removed_mask(run, first, stop, recalled)
        bits = np.packbits(removed, bitorder="little").tobytes() if bool(removed.any()) else b""
        path = f"{host.delay.far.directory}/{run.info.name}.run"
        origin = (
            (run.provenance.position, run.provenance.first_row)
            if isinstance(run, AdoptedRun)
            else None
        )
        found.append(FrozenView(path, first, stop, bits, origin))
    return found


def _lake_view(lake: Lake, host: TierHost, to_ms: int) -> TierView:
    hours = [
        TierHour(offload_id, hour, topic, host.topic_name(topic), n)
        for offload_id, hour, topic, n in lake.counts_before(-(-to_ms // HOUR_MS))
    ]
    offloads = [_view(lake, host, offload) for _, offload in sorted(lake.offloads.items())]
    return TierView(lake.waiting, offloads, hours)
