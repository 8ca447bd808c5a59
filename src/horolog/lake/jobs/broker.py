"""The requests of lake jobs to a broker's admin API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from horolog.admin.client import AdminClient
from horolog.lake.frozen_run import FrozenRun
from horolog.limits import ADMIN_LIST_MAX
from horolog.protocol.tier_commands import TierHour

BEGIN_TIMEOUT_S = 180.0
REPAIRED_MAX = 1_000  # damaged rows of an offload that the broker is asked to repair
COMMIT_TIMEOUT_S = 3_600.0  # the broker reads the index of all frozen runs


class Frozen(NamedTuple):
    """A frozen offload: its id, its log, and its runs as the broker described them."""

    offload_id: int
    log_id: str
    from_ms: int
    runs: list[dict[str, Any]]

    def opened(self) -> list[FrozenRun]:
        """Return the runs, which open their files at first use."""
        return [FrozenRun(run) for run in self.runs]


def begin(admin: AdminClient, app: str, from_ms: int) -> Frozen:
    """Freeze the messages due from `from_ms` on, or continue with a frozen offload of the app."""
    answer = admin.post(
        "/v1/offloads/begin", {"app": app, "from_ms": from_ms}, timeout_s=BEGIN_TIMEOUT_S
    )
    return Frozen(answer["number"], answer["log_id"], answer["from_ms"], answer["runs"])


def repair(admin: AdminClient, frozen: Frozen) -> bool:
    """Have the broker repair damaged rows of frozen runs; return whether there were any.

    A broker verifies the messages that it lists, and repairs a damaged one from the log if the log
    still has it.  If more than REPAIRED_MAX rows are damaged, some stay as they are.
    """
    spans = [span for run in frozen.opened() for span in run.damaged_spans()]
    for from_ms, to_ms in sorted(set(spans))[:REPAIRED_MAX]:
        asked = {"from": from_ms, "to": to_ms, "limit": ADMIN_LIST_MAX}
        admin.get("/v1/pending/messages", asked)
    return bool(spans)


def commit(
    admin: AdminClient, offload_id: int, rows: int, checksum: int, uri: str
) -> dict[str, Any]:
    """Tell the broker that the table has the messages of an offload."""
    body = {"number": offload_id, "rows": rows, "checksum": f"{checksum:016x}", "lake": uri}
    return admin.post("/v1/offloads/commit", body, timeout_s=COMMIT_TIMEOUT_S)


def hours(admin: AdminClient, to_ms: int) -> tuple[dict[int, str], list[TierHour]]:
    """Return the table's URI of each offload, and the counts of hours that begin before `to_ms`.

    The counts are ordered by offload and hour.
    """
    answer = admin.get("/v1/offloads", {"to_ms": to_ms})
    tables = {each["number"]: each["lake"] for each in answer["offloads"]}
    return tables, sorted(TierHour(row.pop("number"), **row) for row in answer["hours"])


def recalled_origins(admin: AdminClient, offload_id: int, hour: int | None = None) -> pa.Table:
    """Return (origin_position, origin_row) of the recalled messages of an offload (and hour)."""
    answer = admin.get(f"/v1/offloads/{offload_id}/recalled", {"hour": hour})
    return origins_table(answer["recalled"])


def origins_table(origins: Sequence[Sequence[int]]) -> pa.Table:
    """Build an Arrow table of origins."""
    return pa.table(
        {
            "origin_position": pa.array([row[0] for row in origins], pa.int64()),
            "origin_row": pa.array([row[1] for row in origins], pa.int64()),
        }
    )
