"""Commands of the pipeline with `--master` and `--conf` on a real cluster, from the load to the proof."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cluster import CONF, Cluster
from received import bodies

from horolog.limits import HOUR_MS
from horolog.pipeline.offload import offload
from horolog.pipeline.promote import promote_due
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROWS = 900  # one every six minutes, for some four days
STEP_MS = 6 * 60_000
COMMAND_S = 180
CONF_HERE = CONF | {"spark.driver.memory": "512m"}


def pipeline(cluster: Cluster, *words: object) -> dict[str, object]:
    """What `horolog pipeline …` prints on that cluster; it ends well."""
    flags = ["--json", "--master", cluster.url]
    flags += [text for pair in CONF_HERE.items() for text in ("--conf", "=".join(pair))]
    command = [*installed_command(), "pipeline", *map(str, words), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def a_table(spark, broker: BrokerProcess, place: Path) -> Path:
    start = broker.now_ms() + HOUR_MS
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('b', id) as text", f"{start} + id * {STEP_MS} as at", "concat('m', id) as id"
    )
    rows.write.parquet(str(place))
    return place.rename(place.with_suffix(".parquet"))


def test_from_load_to_audit(cluster, spark, tmp_path) -> None:
    """What was in the lake and came back is in the proof like everything else; so is what was recalled there."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("t", queues=4)
        flags = ("--deliver-at", "at", "--body", "text", "--message-id", "id")
        flags += ("--deliver-at-unit", "ms")
        table = a_table(spark, broker, tmp_path / "rows")
        into = ("--topic", "t", "--admin", broker.admin_url, *flags)
        assert pipeline(cluster, "load", table, *into)["rows"] == ROWS
        start = broker.now_ms() + 48 * HOUR_MS
        moved = offload(broker.admin, str(tmp_path / "lake"), start).rows
        assert 0 < moved < ROWS
        due_ms = broker.now_ms() + HOUR_MS + (ROWS - 1) * STEP_MS
        last = {"topic": "t", "message_id": f"m{ROWS - 1}", "deliver_at_ms": due_ms}
        assert broker.admin.post("/v1/recall", last)["status"] == "CANCELLED"
        promoted = 0
        for _ in range(4):
            promoted += promote_due(broker.admin_url, ahead_ms=27 * HOUR_MS).rows
            broker.advance("24h")
        assert promoted == moved - 1
        assert sorted(bodies(broker, "t")) == sorted(f"b{i}" for i in range(ROWS - 1))
        proof = pipeline(cluster, "audit", broker.data_dir, "--out", tmp_path / "proof")
        assert (proof["clean"], proof["overdue"], proof["damaged"]) == (True, 0, [])
        total = proof["totals"][0]
        assert (total["handed_over"], total["recalled"]) == (ROWS - 1, 1)
        assert Path(proof["report"]).is_file()
