"""Offloads of the running broker: slow work runs in threads, decisions are made in the core.

    begin    freeze messages, wait until all of them are in runs, and name the files
    commit   sum up the frozen rows in a thread, compare with the table, and let the core cut the
             runs

`lake.core.decisions` explains the steps; `pipeline.offload` reads the files and writes the table.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from horolog.delay.row_sum import MASK, row_sum
from horolog.delay.tier import Tier
from horolog.errors import ErrorCode, refused
from horolog.lake.frozen_run import FrozenRun
from horolog.lake.serve.late import LatePromotion
from horolog.lake.serve.reader import LakeMessages
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
    TierView,
)
from horolog.server.adoptions import Core
from horolog.server.running import Promote
from horolog.server.threads import in_pool

_log = logging.getLogger("horolog.offloads")
_SEALED_S = 120.0  # longest wait for far buffers to become runs; a full disk may take longer
_SUM_ROWS = 262_144


class Offloads:
    """The offloads of a broker; belongs to the event loop's thread, sums run in another."""

    def __init__(self, engine: Core, tier: Tier, data_dir: Path) -> None:
        self._engine = engine
        self._tier = tier
        self._data_dir = data_dir.absolute()
        self.late: LatePromotion | None = None
        self.messages = LakeMessages(engine)
        self._freezes: dict[int, asyncio.Future[OffloadView]] = {}  # freezes under way

    def promote_late(self, promote: Promote, url: str) -> None:
        """Start late promotion; `url` is that of the broker's own admin port."""
        self.late = LatePromotion(self._engine, self._tier, promote, url)

    async def close(self) -> None:
        """Stop late promotion."""
        late, self.late = self.late, None
        if late is not None:
            await late.stop()

    async def begin(self, app: str, from_ms: int) -> dict[str, Any]:
        """Begin or continue an offload; return it as JSON once its runs may be read."""
        view: OffloadView = await self._engine.submit(BeginOffload(app, from_ms))
        _log.info("frozen number=%d app=%s from_ms=%d", view.offload_id, app, view.from_ms)
        return self.as_json(await self._when_sealed(view.offload_id))

    async def _when_sealed(self, offload_id: int) -> OffloadView:
        """Return the offload with its runs, once they have all frozen messages."""
        try:
            await asyncio.wait_for(asyncio.shield(self._freeze(offload_id)), _SEALED_S)
        except TimeoutError:
            raise refused(
                "number",
                f"far buffers of offload {offload_id} are still being written; try another time",
                code=ErrorCode.TOO_MANY_REQUESTS,
            ) from None
        view: OffloadView = await self._engine.submit(DescribeOffload(offload_id))
        return view

    def _freeze(self, offload_id: int) -> asyncio.Future[OffloadView]:
        """Return the freeze of an offload, shared by all callers; it continues without them."""
        freeze = self._freezes.get(offload_id)
        if freeze is None:

            def over(done: asyncio.Future[OffloadView]) -> None:
                del self._freezes[offload_id]
                done.exception()  # retrieve it, in case no caller waits any more

            freeze = self._freezes[offload_id] = self._engine.submit(FreezeOffload(offload_id))
            freeze.add_done_callback(over)
        return freeze

    async def commit(self, offload_id: int, rows: int, checksum: str, uri: str) -> dict[str, Any]:
        """Compare table and runs, and commit; `already` if that was done before.

        BAD_REQUEST if the rows or the checksum differ.
        """
        view = await self._when_sealed(offload_id)
        if view.stage != "lake":
            has = await in_pool(sum_rows, self._runs_as_json(view.runs, view.log_id))
            if has != (rows, checksum):
                raise refused(
                    "checksum",
                    f"the lake has {rows} rows with sum {checksum}, the broker {has[0]} with "
                    f"{has[1]}; nothing was changed",
                )
            done = await self._engine.submit(CommitOffload(offload_id, rows, uri))
            _log.info("in the lake number=%d rows=%d lake=%s", offload_id, rows, uri)
            return {**self.as_json(done), "already": False}
        return {**self.as_json(view), "already": True}

    async def abort(self, offload_id: int) -> bool:
        """Abort an offload; return whether there was one to abort."""
        return bool(await self._engine.submit(AbortOffload(offload_id)))

    async def show(self, to_ms: int) -> dict[str, Any]:
        """Return all offloads, and the counts of hours that begin before `to_ms`, as JSON."""
        view: TierView = await self._engine.submit(DescribeTier(to_ms))
        return {
            "waiting": view.waiting,
            "offloads": [self.as_json(each) for each in view.offloads],
            "hours": [hour.row() for hour in view.hours],
        }

    async def recalled_origins(self, offload_id: int, hour: int | None) -> list[tuple[int, int]]:
        """Return the origins of the recalled messages of an offload (and hour)."""
        found: list[tuple[int, int]] = await self._engine.submit(ListRecalled(offload_id, hour))
        return found

    def as_json(self, view: OffloadView) -> dict[str, Any]:
        """Build the JSON of an offload; `runs` as `lake.frozen_run` takes them."""
        return {
            "number": view.offload_id,
            "app": view.app,
            "from_ms": view.from_ms,
            "stage": view.stage,
            "lake": view.uri,
            "rows": view.rows,
            "waiting": view.waiting,
            "log_id": f"{view.log_id:016x}",
            "runs": self._runs_as_json(view.runs, view.log_id),
        }

    def _runs_as_json(self, runs: Sequence[FrozenView], log_id: int) -> list[dict[str, Any]]:
        return [
            {
                **(
                    {"position": run.adopted[0], "first_row": run.adopted[1]} if run.adopted else {}
                ),
                "path": str(self._data_dir / run.path),
                "log_id": f"{log_id:016x}",
                "first": run.first,
                "stop": run.stop,
                "gone": _packed(run.removed),
            }
            for run in runs
        ]


def _packed(removed: bytes) -> str:
    """Encode the bits of removed rows as JSON has them; "" if no row is removed."""
    return base64.b64encode(zlib.compress(removed)).decode() if removed else ""


def sum_rows(runs: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """Return count and checksum (16 hex digits) of frozen rows, which the table must match."""
    rows = checksum = 0
    for each in runs:
        frozen = FrozenRun(each)
        mine = frozen.rows_between(0, 1 << 62)
        for first in range(0, len(mine), _SUM_ROWS):
            entries = frozen.entries(mine[first : first + _SUM_ROWS])
            positions, origin_rows = frozen.origins(entries)
            checksum += row_sum(entries["key"], entries["due_ms"], positions, origin_rows)
        rows += len(mine)
    return rows, f"{checksum & MASK:016x}"
