"""The dashboard for Grafana: the committed JSON is what the script makes, and a real Prometheus answers every query."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.grafana_dashboard import PLACE, dashboard_json
from tests.support.grafana_panels import ROWS, expressions
from tests.support.prometheus import RULES, Prometheus

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


def test_the_dashboard_is_as_made() -> None:
    """If this fails: python -m tests.support.grafana_dashboard."""
    assert PLACE.read_text(encoding="utf-8") == dashboard_json()


def test_it_asks_what_the_script_says() -> None:
    made: dict[str, Any] = json.loads(PLACE.read_text())
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    asked = {panel["title"]: [each["expr"] for each in panel["targets"]] for panel in panels}
    assert asked == expressions()
    for panel in panels:
        assert [each["refId"] for each in panel["targets"]] == list("ABCDE")[
            : len(panel["targets"])
        ]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
    assert [each["title"] for each in made["panels"] if each["type"] == "row"] == list(ROWS)


def test_lines_of_each_broker_name_it() -> None:
    """Otherwise the lines of several brokers have one name."""
    for panels in ROWS.values():
        for panel in panels:
            for text, legend in panel.queries:
                of_all = re.search(r"\b(sum|max|min)\b", text) and "by (instance)" not in text
                assert of_all or "{{instance}}" in legend, (panel.title, legend)


def work(broker: BrokerProcess, prometheus: Prometheus) -> None:
    """Some of everything: sent, scheduled, handed over, recalled, received, acknowledged."""
    broker.create_topic("t", type="mixed")
    # Only what is counted after this is a rate
    prometheus.until('horolog_messages_sent_total{topic="t"}')
    admin = broker.admin
    for _ in range(5):
        admin.post("/v1/messages", {"topic": "t", "body": "now"})
        soon = broker.now_ms() + 100
        admin.post("/v1/messages", {"topic": "t", "body": "soon", "deliver_at_ms": soon})
    later = admin.post(
        "/v1/messages", {"topic": "t", "body": "later", "deliver_at_ms": soon + 3_600_000}
    )
    admin.post("/v1/recall", {"handle": later["recall_handle"]})
    receive = {"topic": "t", "group": "g", "limit": 8, "poll_ms": 5_000}
    handles: list[str] = []
    while len(handles) < 10:
        leased = admin.post("/v1/receive", receive)["messages"]
        assert leased, "nothing has come"
        handles += [each["receipt_handle"] for each in leased]
    admin.post("/v1/ack", {"topic": "t", "group": "g", "receipt_handles": handles[:2]})


def test_every_query_gives_data(tmp_path: Path) -> None:
    with BrokerProcess(clock="system") as broker:
        target = broker.admin_url.removeprefix("http://")
        with Prometheus(tmp_path / "prometheus", [target], RULES.read_text()) as prometheus:
            prometheus.until('up{job="horolog"} == 1')
            work(broker, prometheus)
            every = expressions(job="horolog", instance=".*", __rate_interval="5m")
            for title, asked in every.items():
                for expression in asked:
                    found = prometheus.until(expression)
                    assert found, (title, expression)
                    if "quantile" in expression:
                        prometheus.until(f"({expression}) >= 0")  # not NaN: something was counted
                    else:
                        assert not any(math.isnan(each["value"]) for each in found), title
            loaded = prometheus.ask("rules")["groups"]
            assert {rule["health"] for group in loaded for rule in group["rules"]} <= {
                "ok",
                "unknown",
            }
