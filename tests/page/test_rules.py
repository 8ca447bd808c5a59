"""Rules and scrapes as Prometheus sees them: promtool is content, and every alert fires when it should."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from tests.support.prometheus import RULES, Prometheus, hurried, promtool

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page
TEXT = RULES.read_text()
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "monitor.md"


def alerts() -> list[str]:
    return [line.split()[-1] for line in TEXT.splitlines() if line.lstrip().startswith("- alert:")]


class Case(NamedTuple):
    """Series that fire an alert, and what they are when all is well; values a minute, for an hour."""

    fires: dict[str, str]
    calm: dict[str, str]


def one(name: str, fires: str, calm: str, **labels: str) -> Case:
    series = of(name, **labels)
    return Case({series: fires}, {series: calm})


def of(name: str, **labels: str) -> str:
    labels = {"job": "horolog", "instance": "b:8090"} | labels
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def late(
    bound: str, slow: bool, name: str = "horolog_handover_lateness_seconds_bucket"
) -> dict[str, str]:
    """A hundred values a minute, half of which are above a bound, or none."""
    return {
        of(name, le="0.001"): "0+50x60",
        of(name, le=bound): "0+50x60" if slow else "0+100x60",
        of(name, le="3600"): "0+100x60",
        of(name, le="+Inf"): "0+100x60",
    }


def share(part: str, whole: str, **labels: str) -> Case:
    return Case(
        {of(part, **labels): "90x60", of(whole): "100x60"},
        {of(part, **labels): "50x60", of(whole): "100x60"},
    )


MIB = 1 << 20
CASES = {
    "HorologDown": one("up", "0x60", "1x60"),
    "HorologRestartsOften": one("horolog_start_time_seconds", "1+100x60", "5x60"),
    "HorologHandOverLate": Case(late("1", True), late("1", False)),
    "HorologOverdue": one("horolog_overdue_seconds", "60+60x60", "1x60"),
    "HorologClockStepped": one(
        "horolog_clock_steps_total", "0x50 1x10", "1x60", direction="backwards"
    ),
    "HorologTurnSlow": Case(
        late("0.1", True, "horolog_turn_seconds_bucket"),
        late("0.1", False, "horolog_turn_seconds_bucket"),
    ),
    "HorologSyncSlow": Case(
        late("0.25", True, "horolog_log_sync_seconds_bucket"),
        late("0.25", False, "horolog_log_sync_seconds_bucket"),
    ),
    "HorologLogStuck": one("horolog_log_under_way_seconds", "20+60x60", "0.2x60"),
    "HorologDiskFull": one("horolog_disk_full", "1x60", "0x60"),
    "HorologDiskFillsUp": Case(
        {of("horolog_disk_headroom_bytes"): "40-0.2x60", of("horolog_disk_size_bytes"): "100x60"},
        {of("horolog_disk_headroom_bytes"): "60-0.2x60", of("horolog_disk_size_bytes"): "100x60"},
    ),
    "HorologCheckpointOld": Case(
        {
            of("horolog_checkpoint_age_seconds"): "0+60x60",
            of("horolog_checkpoint_lag_bytes"): f"0+{MIB}x60",
        },
        {
            of("horolog_checkpoint_age_seconds"): "0+60x60",  # nothing was logged
            of("horolog_checkpoint_lag_bytes"): "64x60",
        },
    ),
    "HorologCheckpointFails": one("horolog_checkpoint_failures_total", "0+1x60", "3x60"),
    "HorologProblems": one("horolog_problems", "2x60", "0x60"),
    "HorologOffloadUnreadable": one("horolog_tier_unreadable", "1x60", "0x60"),
    "HorologBackupFailed": one("horolog_backup_state", "1x60", "0x60", state="failed"),
    "HorologGroupFallsBack": one(
        "horolog_group_lag_messages", "0+100x60", "5000-50x60", group="g", topic="t"
    ),
    "HorologGroupStuck": one(
        "horolog_group_oldest_seconds", "0+60x60", "600x60", group="g", topic="t"
    ),
    "HorologDeadLetters": one("horolog_dead_letters_total", "0x50 1x10", "7x60"),
    "HorologMessagesExpired": one("horolog_messages_expired_total", "0x50 1x10", "7x60", topic="t"),
    "HorologRedeliversMuch": Case(
        {
            of("horolog_messages_redelivered_total", topic="t"): "0+30x60",
            of("horolog_messages_leased_total", topic="t"): "0+100x60",
        },
        {
            of("horolog_messages_redelivered_total", topic="t"): "0+10x60",
            of("horolog_messages_leased_total", topic="t"): "0+100x60",
        },
    ),
    "HorologTransactionsGivenUp": one(
        "horolog_transactions_ended_total", "0x50 1x10", "7x60", outcome="given_up"
    ),
    "HorologScheduleStuck": one("horolog_schedule_problems", "1x60", "0x60"),
    "HorologLeasesNearLimit": share("horolog_leases", "horolog_leases_limit"),
    "HorologPollsNearLimit": share("horolog_parked_polls", "horolog_parked_polls_limit"),
    "HorologConnectionsNearLimit": share(
        "horolog_connections", "horolog_connections_limit", door="grpc"
    ),
    "HorologConnectionsRefused": one(
        "horolog_connections_refused_total", "0+1x60", "7x60", door="grpc"
    ),
    "HorologCommandsRefused": one("horolog_commands_refused_total", "0+1x60", "7x60"),
    "HorologFilesNearLimit": share("process_open_fds", "process_max_fds"),
    "HorologCertificateEnds": one(
        "horolog_certificate_end_timestamp_seconds", f"{10 * 86_400}x60", f"{20 * 86_400}x60"
    ),
}


def test_promtool_is_content_with_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(TEXT)
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", str(tmp_path / "rules.yml"))


def test_every_alert_has_a_case_and_a_section_in_the_guide() -> None:
    assert list(CASES) == alerts()
    headings = [line[4:] for line in GUIDE.read_text().splitlines() if line.startswith("### ")]
    assert headings == alerts()


def test_every_alert_fires_when_it_should_and_no_other_does(tmp_path: Path) -> None:
    """By promtool, an hour of each case."""
    (tmp_path / "horolog.rules.yml").write_text(TEXT)
    tests: list[dict[str, Any]] = []
    count = 'count by (alertname) (ALERTS{alertstate="firing"})'
    for alert, case in CASES.items():
        for series, fired in ((case.fires, [alert]), (case.calm, [])):
            expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fired]
            at = {"expr": count, "eval_time": "55m", "exp_samples": expected}
            values = [{"series": name, "values": each} for name, each in series.items()]
            tests.append({"interval": "1m", "input_series": values, "promql_expr_test": [at]})
    whole = {"rule_files": ["horolog.rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(whole))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "tests.yml"))


@pytest.mark.parametrize(
    ("alert", "counted"),
    [
        ("HorologMessagesExpired", of("horolog_messages_expired_total", topic="t")),
        (
            "HorologTransactionsGivenUp",
            of("horolog_transactions_ended_total", outcome="given_up"),
        ),
    ],
)
def test_what_a_start_after_a_long_outage_gives_up_fires_and_ends(
    alert: str, counted: str, tmp_path: Path
) -> None:
    """The first scrape of the new process finds it counted already, and nothing to compare it with."""
    (tmp_path / "horolog.rules.yml").write_text(TEXT)
    series = {
        counted: "0x9 _x20 5x60",  # down for twenty minutes
        of("horolog_start_time_seconds"): "1x9 _x20 1800x60",
    }
    fires = f'count by (alertname) (ALERTS{{alertstate="firing",alertname="{alert}"}})'
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    asked = [
        {"expr": fires, "eval_time": "32m", "exp_samples": expected},
        {"expr": fires, "eval_time": "50m", "exp_samples": []},
    ]
    values = [{"series": name, "values": each} for name, each in series.items()]
    test = {"interval": "1m", "input_series": values, "promql_expr_test": asked}
    whole = {"rule_files": ["horolog.rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "tests.yml").write_text(json.dumps(whole))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "tests.yml"))


def test_promtool_is_content_with_a_scrape(running: BrokerProcess) -> None:
    running.create_topic("scraped", type="normal")
    running.admin.post("/v1/messages", {"topic": "scraped", "body": "x"})
    for accept in ("text/plain", "*/*"):
        request = Request(f"{running.admin_url}/metrics", headers={"accept": accept})
        with urlopen(request) as answer:
            promtool("check", "metrics", stdin=answer.read())


def pause(broker: BrokerProcess, seconds: float) -> None:
    """As a machine that is suspended, or starved."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        threading.Event().wait(seconds)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def open_many(broker: BrokerProcess, count: int) -> list[socket.socket]:
    host, _, port = broker.grpc_endpoint.rpartition(":")
    return [socket.create_connection((host, int(port))) for _ in range(count)]


PROVOKED = (
    "HorologHandOverLate",
    "HorologMessagesExpired",
    "HorologScheduleStuck",
    "HorologConnectionsRefused",
    "HorologDown",
)


def test_alerts_of_a_live_broker(tmp_path: Path) -> None:
    """Late hand-overs, expired messages, refused connections, a stuck schedule, and its end, on purpose.

    None of them fires before. Others may: the disk of a machine that runs tests fills up indeed.
    """
    with BrokerProcess(clock="system", flush="os", arguments=["--connections", "16"]) as broker:
        admin, target = broker.admin, broker.admin_url.removeprefix("http://")
        broker.create_topic("late")
        drops = {"name": "drops", "type": "delay", "late": "drop", "late_after_ms": 1_000}
        admin.post("/v1/topics", drops)
        broker.create_topic("closed")
        with Prometheus(tmp_path / "prometheus", [target], hurried(TEXT)) as prometheus:
            prometheus.until('up{job="horolog"} == 1')
            prometheus.until("topic:horolog_handover_lateness_seconds:p99_5m")
            assert prometheus.query(f'ALERTS{{alertname=~"{"|".join(PROVOKED)}"}}') == []
            due_ms = broker.now_ms() + 2_000  # while it is paused, however slow the machine
            for topic in ("late", "drops"):
                body = {"topic": topic, "body": "x", "deliver_at_ms": due_ms}
                admin.post("/v1/messages", body)
            pause(broker, 5)
            assert prometheus.until_fires("HorologHandOverLate")["metric"]["instance"] == target
            assert prometheus.until_fires("HorologMessagesExpired")["metric"]["topic"] == "drops"
            tick = {"name": "tick", "topic": "closed", "body": "x", "every_ms": 1_000}
            admin.post("/v1/schedules", tick)
            admin.patch("/v1/topics/closed", {"perm": 4})
            prometheus.until_fires("HorologScheduleStuck")
            sockets = open_many(broker, 40)
            assert prometheus.until_fires("HorologConnectionsRefused")["metric"]["door"] == "grpc"
            for each in sockets:
                each.close()
            broker.kill()
            prometheus.until_fires("HorologDown")
