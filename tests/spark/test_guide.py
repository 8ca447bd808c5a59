"""The examples of docs/guides/spark.md are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


def test_the_examples_schedule_messages(spark, broker, tmp_path) -> None:
    for topic in ("reminders", "campaign"):
        broker.create_topic(topic)
    text = GUIDE.read_text().replace("http://127.0.0.1:8090", broker.admin_url)
    for path in ("events", "checkpoints/reminders", "campaign.parquet", "rejects"):
        text = text.replace(f'"{path}"', f'"{tmp_path}/{path}"')  # Spark has a directory of its own
    written, stream, load = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(written, names)
    assert broker.pending("reminders") == 1_000

    (tmp_path / "events").mkdir()
    at = "2030-01-01T00:00:00Z"
    (tmp_path / "events" / "one.json").write_text(f'{{"body": "b", "deliver_at": "{at}"}}')
    exec(stream, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert broker.pending("reminders") == 1_001

    spark.sql("SELECT 'hello' AS text, current_timestamp() AS created_at").createOrReplaceTempView(
        "users"
    )
    (statements,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    for statement in filter(str.strip, statements.split(";")):
        spark.sql(statement)
    spark.catalog.dropTempView("future")
    assert broker.pending("reminders") == 1_002

    frame = spark.sql(f"SELECT 'b' AS body, timestamp '{at}' AS deliver_at FROM range(10)")
    frame.write.parquet(f"{tmp_path}/campaign.parquet")
    exec(load, names)
    assert broker.pending("campaign") == 10
