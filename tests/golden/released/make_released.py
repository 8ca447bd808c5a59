"""Makes tests/golden/released/VERSION.zip and .json: a data directory of the version that runs this.

Once a release, with that release's own wheel, and never again:

    RELEASE/bin/python tests/golden/released/make_released.py

It speaks to a broker of that version over HTTP alone, so it works with every one.  What it makes has each kind of thing that a
later version must find: below a checkpoint, and after it in a log that ends with a kill.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from released_directories import RELEASED, pack

from horolog import __version__
from horolog.testing.broker import BrokerProcess

MINUTE_MS, DAY_MS = 60_000, 86_400_000
TOPICS = {"orders": ("delay", 2), "far": ("delay", 1), "news": ("normal", 2), "mixed": ("mixed", 1)}


class Story:
    """Everything that is done, and what is there afterwards."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.waiting: dict[str, dict[str, Any]] = {}
        self.visible: dict[str, str] = {}  # message id → topic
        self.recalled: list[dict[str, Any]] = []
        self.acked: list[str] = []

    def send(self, topic: str, name: str, in_ms: int = 0) -> dict[str, Any]:
        """One message; its body, tag, key and property say its name."""
        body: dict[str, Any] = {
            "topic": topic, "body": f"body of {name}", "tag": "TagA", "keys": [name, "all"],
            "properties": {"name": name},
        }  # fmt: skip
        if in_ms:
            body["in_ms"] = in_ms
        sent = self.broker.admin.post("/v1/messages", body)
        row = {"topic": topic, "name": name, "deliver_at_ms": sent["deliver_at_ms"]}
        row |= {"handle": sent["recall_handle"], "message_id": sent["message_id"]}
        if in_ms:
            self.waiting[sent["message_id"]] = row
        else:
            self.visible[sent["message_id"]] = topic
        return row

    def part(self, name: str) -> None:
        """Each kind of thing once."""
        for i in range(20):
            self.send("orders", f"near-{name}-{i}", (i + 1) * 3 * MINUTE_MS)
            self.send("far", f"far-{name}-{i}", (i + 2) ** 2 * 8 * DAY_MS)
            self.send("news", f"news-{name}-{i}")
        mixed = [self.send("mixed", f"mixed-{name}-{i}", (i + 1) * DAY_MS // 2) for i in range(6)]
        for row in mixed[:2]:
            self.broker.admin.post("/v1/recall", {"handle": row["handle"]})
            self.recalled.append(self.waiting.pop(row["message_id"]))
        moved = self.broker.admin.post(
            "/v1/reschedule", {"handle": mixed[2]["handle"], "in_ms": 40 * DAY_MS}
        )
        row = self.waiting[mixed[2]["message_id"]]
        row |= {"deliver_at_ms": moved["deliver_at_ms"], "handle": moved["recall_handle"]}
        self.broker.advance("10m")
        now_ms = self.broker.now_ms()
        for message_id, row in list(self.waiting.items()):
            if row["deliver_at_ms"] <= now_ms:
                self.visible[message_id] = row["topic"]
                del self.waiting[message_id]
        wanted = {"topic": "orders", "group": "shop", "limit": 3, "invisible_ms": 3_600_000}
        leased = self.broker.admin.post("/v1/receive", wanted)["messages"]
        handles = [leased[0]["receipt_handle"]]
        wanted = {"topic": "orders", "group": "shop", "receipt_handles": handles}
        assert self.broker.admin.post("/v1/ack", wanted)["acked"] == 1
        self.acked.append(leased[0]["message_id"])
        self.broker.admin.put(f"/v1/groups/settings-{name}", {"orderly": True, "retry_max": 7})
        schedule = {"name": f"daily-{name}", "topic": "mixed", "body": "x", "cron": "0 9 * * *"}
        self.broker.admin.post("/v1/schedules", {**schedule, "zone": "Europe/Berlin"})
        self.broker.admin.post(f"/v1/schedules/daily-{name}/pause", {})


def main() -> int:
    """Write the two files."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with BrokerProcess(data) as broker:
            # A clock that is behind the machine's would be set when it is opened
            broker.advance("3650d")
            story = Story(broker)
            for name, (kind, queues) in TOPICS.items():
                broker.create_topic(name, kind, queues)
            story.part("first")
            broker.restart()
            story.part("second")
            now_ms = broker.now_ms()
            broker.kill()
        target = RELEASED / f"{__version__}.zip"
        sizes = pack(data, target)
    content = {
        "version": __version__,
        "now_ms": now_ms,
        "topics": sorted(TOPICS),
        "groups": ["settings-first", "settings-second", "shop"],
        "schedules": ["daily-first", "daily-second"],
        "waiting": sorted(story.waiting.values(), key=lambda row: row["deliver_at_ms"]),
        "visible": story.visible,
        "recalled": story.recalled,
        "acked": story.acked,
        "sizes": sizes,
    }
    target.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(target, target.stat().st_size, "bytes,", len(story.waiting), "messages wait")
    return 0


if __name__ == "__main__":
    sys.exit(main())
