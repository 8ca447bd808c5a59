"""Offloads: what is due from an hour on leaves the disk for the lake, and comes back in time.

    begin     BEGIN record: what is in the far store is frozen (`lake.core.steps`); far buffers become runs
    freeze    FROZEN record, when that is done; somebody reads the runs and writes Parquet (`pipeline.offload`)
    commit    the caller has compared count and checksum of what the table has with the runs: COMMIT record, the
              atomic point.  Its frame says what waits of each hour and topic; the runs are cut
    promote   an adoption brings an hour of a topic back (`check_promotion`); with its record it is no longer
              counted in the lake.  Each hour is promoted after all hours before it
    recalls   of rows that were found in the table: `broker.lake_recalls`

Steps are decided one at a time: while a record is appended and not applied, recalls and hand-over wait (`in_flight`),
so none of them can meet a message on its way.
"""

from __future__ import annotations

import numpy as np

from horolog.broker.recall.recalls import instant
from horolog.broker.shard import Applied, Shard
from horolog.delay.far.adopted import AdoptedRun
from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.core.held import Lake, Offload
from horolog.lake.core.stages import TABLE, Event, Stage
from horolog.lake.core.steps import (
    Step,
    adopted_rows,
    frozen_gone,
    frozen_runs,
    is_sealing,
    promotion_of,
    rows_of,
    step_of,
    waiting_counts,
)
from horolog.limits import (
    ADOPTION_APP_MAX,
    HOUR_MS,
    LAKE_MARGIN_MS,
    OFFLOAD_HOURS_MAX,
    OFFLOAD_MARGIN_MS,
)
from horolog.log.record import encode_offload
from horolog.protocol.offload_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeLake,
    DescribeOffload,
    FreezeOffload,
    FrozenView,
    LakeGone,
    LakeHour,
    LakeQuestion,
    LakeStep,
    LakeView,
    OffloadView,
    TellLakeProblem,
)
from horolog.state_table import allows


def decide(shard: Shard, command: LakeStep | LakeQuestion, wall_ms: int) -> object:
    """The result that the command's docstring names; steps are appended, and apply when they are committed."""
    match command:
        case BeginOffload():
            return _begin(shard, command, wall_ms)
        case FreezeOffload(number):
            return _freeze(shard, number, wall_ms)
        case CommitOffload():
            return _commit(shard, command, wall_ms)
        case AbortOffload(number):
            if not allows(TABLE, shard.delay.far.lake.stage_of(number), Event.ABORT):
                return False
            append_step(shard, {"step": "abort", "number": number}, b"", wall_ms)
            return True
        case DescribeOffload(number):
            return _view(shard, _of(shard, number), with_runs=True)
        case DescribeLake(to_ms):
            return _lake_view(shard, to_ms)
        case LakeGone(number, hour):
            gone = shard.delay.far.lake.gone_of(_of(shard, number).number, hour)
            return list(zip(gone["position"].tolist(), gone["row"].tolist(), strict=True))
        case TellLakeProblem(why):
            shard.lake_problem = why
            return None


def _of(shard: Shard, number: int) -> Offload:
    offload = shard.delay.far.lake.offloads.get(number)
    if offload is None:
        raise HorologError(
            ErrorCode.NOT_FOUND, f"number: there is no offload {number}", field="number"
        )
    return offload


# --- steps ------------------------------------------------------------------------------------------


def _begin(shard: Shard, command: BeginOffload, wall_ms: int) -> OffloadView:
    lake = shard.delay.far.lake
    app, from_ms = command.app, command.from_ms
    if not app.strip() or len(app.encode()) > ADOPTION_APP_MAX:
        limit = f"1 to {ADOPTION_APP_MAX} bytes"
        raise refused("app", f"blank or too long; {limit} are allowed", limit)
    if lake.open is not None:
        if lake.open.app == app:
            return _view(shard, lake.open)
        raise refused(
            "app",
            f"offload {lake.open.number} of app {lake.open.app!r} is under way; end or abort it first",
            "1 at a time",
            ErrorCode.TOO_MANY_REQUESTS,
        )
    if from_ms % HOUR_MS or from_ms < wall_ms + OFFLOAD_MARGIN_MS:
        limit = f"{OFFLOAD_MARGIN_MS // HOUR_MS} h from now"
        raise refused(
            "from_ms", f"{instant(from_ms)} must be a whole hour, and at least {limit}", limit
        )
    if shard.stalled:
        raise refused("disk", "full; messages wait to be filed", code=ErrorCode.DISK_FULL)
    fields = {"step": "begin", "number": lake.next, "app": app, "from_ms": from_ms}
    append_step(shard, fields, b"", wall_ms)
    return OffloadView(lake.next, app, from_ms, Stage.SEALING.value, log_id=shard.log.log_id)


def _freeze(shard: Shard, number: int, wall_ms: int) -> OffloadView:
    offload = _of(shard, number)
    if offload.stage in (Stage.SEALING, Stage.FROZEN):
        _check_sealed(shard, number)
    if allows(TABLE, offload.stage, Event.FREEZE):
        append_step(shard, {"step": "frozen", "number": number}, b"", wall_ms)
    return _view(shard, offload)


def _check_sealed(shard: Shard, number: int) -> None:
    """Also of what is frozen already: a start files again what a checkpoint did not name, and has buffers then."""
    if is_sealing(shard.delay.far):
        raise refused(
            "number",
            f"offload {number} waits for far buffers to become runs",
            code=ErrorCode.TOO_MANY_REQUESTS,
        )


def _commit(shard: Shard, command: CommitOffload, wall_ms: int) -> OffloadView:
    offload = _of(shard, command.number)
    if offload.stage is Stage.LAKE:
        return _view(shard, offload)
    if not allows(TABLE, offload.stage, Event.COMMIT):
        raise refused("number", f"offload {command.number} is {offload.stage.value}, not frozen")
    _check_sealed(shard, command.number)
    if offload.from_ms < wall_ms + LAKE_MARGIN_MS:
        limit = f"{LAKE_MARGIN_MS // HOUR_MS} h"
        raise refused(
            "number",
            f"it is less than {limit} to {instant(offload.from_ms)}, where offload {command.number} "
            "begins; abort it and begin another one",
            limit,
        )
    counts = waiting_counts(shard.delay.far, offload)
    if len(counts) > OFFLOAD_HOURS_MAX:
        limit = str(OFFLOAD_HOURS_MAX)
        raise refused(
            "number", f"{len(counts)} hours times topics; at most {limit} are allowed", limit
        )
    recalled = len(shard.delay.far.lake.gone_of(offload.number))
    has = int(counts["count"].sum()) + recalled
    if has != command.rows:
        raise refused("rows", f"the lake has {command.rows}, the broker {has}")
    fields = {
        "step": "commit",
        "number": offload.number,
        "uri": command.uri,
        "rows": command.rows,
        "adopted": adopted_rows(shard.delay.far, offload),
    }
    append_step(shard, fields, counts.tobytes(), wall_ms)
    waiting = int(counts["count"].sum())
    return OffloadView(
        offload.number,
        offload.app,
        offload.from_ms,
        Stage.LAKE.value,
        command.uri,
        command.rows,
        waiting,
        shard.log.log_id,
    )


def append_step(shard: Shard, fields: dict[str, object], table: bytes, wall_ms: int) -> None:
    """A frame of its own, behind all that this turn has appended before."""
    assert not shard.delay.far.lake.in_flight, fields
    shard.log.append(encode_offload(fields, table), 1, wall_ms)
    shard.delay.far.lake.in_flight = True
    step: Step = step_of(fields, table)
    shard.uncommitted.append(Applied(shard.log.end, [], None, [], step=step))


# --- promotion ----------------------------------------------------------------------------------------


def check_promotion(shard: Shard, app: str, version: int, topic: int, rows: int) -> bool:
    """Whether an adoption is a promotion, which says `promoting` when it is appended.

    BAD_REQUEST if it is one and brings not exactly what waits, or an hour before its turn.
    """
    promotion = promotion_of(app, version)
    if promotion is None:
        return False
    lake = shard.delay.far.lake
    number, hour, of_topic = promotion
    waits = lake.count(number, hour, of_topic)
    if of_topic != topic or not waits:
        raise refused("app", f"nothing of {app}, hour {hour}, waits in the lake")
    first = lake.first_hour(number, of_topic)
    if first != hour:
        raise refused("version", f"hour {first} must be promoted before hour {hour}")
    if waits != rows:
        raise refused("files", f"{rows} rows, but {waits} wait in the lake for hour {hour}")
    if lake.in_flight:
        raise refused(
            "number", "another step of the lake is under way", code=ErrorCode.TOO_MANY_REQUESTS
        )
    return True


def promoting(shard: Shard) -> None:
    """A promotion is appended: nothing else may change what waits in the lake until it is applied."""
    shard.delay.far.lake.in_flight = True


# --- views --------------------------------------------------------------------------------------------


def _view(shard: Shard, offload: Offload, *, with_runs: bool = False) -> OffloadView:
    far = shard.delay.far
    waiting = sum(n for number, _, _, n in far.lake.left(1 << 40) if number == offload.number)
    view = OffloadView(
        offload.number,
        offload.app,
        offload.from_ms,
        offload.stage.value,
        offload.uri,
        offload.rows,
        waiting,
        shard.log.log_id,
    )
    if with_runs and offload.stage is Stage.FROZEN:
        view.runs = _runs(shard, offload, far.lake)
    return view


def _runs(shard: Shard, offload: Offload, lake: Lake) -> list[FrozenView]:
    recalled = lake.gone_of(offload.number)
    found = []
    for run in frozen_runs(shard.delay.far):
        first, stop = rows_of(run, offload.from_ms)
        if first >= stop:
            continue
        gone = frozen_gone(run, first, stop, recalled)
        bits = np.packbits(gone, bitorder="little").tobytes() if bool(gone.any()) else b""
        path = f"{shard.delay.far.directory}/{run.info.name}.run"
        origin = (
            (run.origin.position, run.origin.first_row) if isinstance(run, AdoptedRun) else None
        )
        found.append(FrozenView(path, first, stop, bits, origin))
    return found


def _lake_view(shard: Shard, to_ms: int) -> LakeView:
    lake = shard.delay.far.lake
    hours = [
        LakeHour(number, hour, topic, shard.topics.by_number[topic].name, n)
        for number, hour, topic, n in lake.left(-(-to_ms // HOUR_MS))
    ]
    offloads = [_view(shard, offload) for _, offload in sorted(lake.offloads.items())]
    return LakeView(lake.waiting, offloads, hours)
