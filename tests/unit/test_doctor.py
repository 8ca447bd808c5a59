"""What `horolog doctor` makes of a broker's answers: each kind of trouble is seen, and says what to do."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from horolog import __version__
from horolog.cli.checkup.answers import Answers
from horolog.cli.checkup.check import State, is_well
from horolog.cli.checkup.local_process import LocalProcess, address_of
from horolog.cli.checkup.running import examine
from horolog.cli.checkup.stopped import check_stopped
from horolog.server.open_broker import open_engine

NOW_MS = 1_772_964_000_000
LATENESS = {"bounds_ms": [1, 60_000], "minute": [5, 0, 0], "minute_p99_ms": 2}
OVERVIEW = {
    "now_ms": NOW_MS,
    "overdue_ms": 0,
    "lateness": LATENESS,
    "disk": {"headroom": 1 << 40, "is_full": False},
}
WELL = Answers(
    health={"healthy": True, "checks": [{"name": "core", "ok": True, "detail": ""}]},
    broker={
        "broker_name": "broker-a",
        "epoch": 3,
        "pending": 7,
        "version": __version__,
        "problems": [],
    },
    clock={"kind": "system", "wall_ms": NOW_MS, "wall": "2026-03-08T10:00:00Z"},
    now_ms=NOW_MS,
    slack_ms=3,
    overview=OVERVIEW,
    groups=[{"group": "g", "waiting": 0, "leased": 0, "members": 0}],
    process=LocalProcess(4711, 50, 1_000_000, []),
)


def test_all_is_well() -> None:
    checks = examine(WELL)
    assert is_well(checks)
    assert {check.state for check in checks} == {State.OK}
    assert not any(check.do for check in checks)


def test_a_stopped_directory_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    """The mount is acted: whoever runs the tests may be root, whom no permission stops."""

    async def begin_and_end() -> None:
        engine = await open_engine(tmp_path, clock="system", segment_bytes=1 << 20)
        await engine.stop()

    asyncio.run(begin_and_end())
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    checks = check_stopped(tmp_path, lambda what, done, total: None)
    assert {check.name: check.state for check in checks}["writable"] is State.WARNING
    assert not is_well(checks)
    assert checks[-1].state is State.OK  # it was verified all the same


def broker(**changes: Any) -> dict[str, Any]:
    return {"broker": {**WELL.broker, **changes}}


def clock(**changes: Any) -> dict[str, Any]:
    return {"clock": {**WELL.clock, **changes}}


def overview(**changes: Any) -> dict[str, Any]:
    return {"overview": {**OVERVIEW, **changes}}


def one_group(**changes: Any) -> dict[str, Any]:
    return {"groups": [{"group": "shop", "waiting": 5, "leased": 0, "members": 0, **changes}]}


LAGGING = {
    "group": "shop",
    "topics": [
        {"topic": "orders", "waiting": 2, "oldest_waiting_ms": NOW_MS - 7_300_000},
        {"topic": "idle", "waiting": 0, "oldest_waiting_ms": 0},
    ],
}


@pytest.mark.parametrize(
    ("changes", "name", "state", "seen", "do"),
    [
        (broker(version="0.0.9"), "version", "warning", "the broker is horolog 0.0.9", "version"),
        (clock(wall_ms=NOW_MS + 9_000), "clock", "warning", "9.0 s ahead of", "NTP"),
        (clock(wall_ms=NOW_MS - 9_000), "clock", "warning", "9.0 s behind", "NTP"),
        (clock(kind="simulated"), "clock", "note", "simulated, at 2026", ""),
        (
            broker(problems=["x: 1 of 2 messages are quarantined"]),
            "problem", "wrong", "x: 1 of 2", "#damage",
        ),
        (
            broker(problems=["disk: 5 bytes are free"]),
            "problem", "wrong", "disk: 5 bytes", "make room",
        ),
        (broker(repairs=3), "repairs", "note", "3 damaged parts repaired", "check the disk"),
        (broker(problems=["what nobody knows"]), "problem", "wrong", "what", "#health"),
        (
            overview(overdue_ms=200_000),
            "lateness", "wrong", "has been due for 3 minutes", "CPU and disk",
        ),
        (
            overview(lateness={**LATENESS, "minute_p99_ms": 2_500}),
            "lateness", "warning", "up to 2,500 ms late", "--by second",
        ),
        (
            overview(lateness={**LATENESS, "minute_p99_ms": None}),
            "lateness", "warning", "more than 60,000 ms late", "--by second",
        ),
        (overview(lateness=None), "lateness", "ok", "nothing is overdue", ""),
        (
            overview(disk={"headroom": 1 << 20, "is_full": False}),
            "disk", "warning", "room for 1.0 MiB", "make room",
        ),
        (overview(disk={"headroom": 0, "is_full": True}), "disk", "wrong", "full", "make room"),
        (
            {"process": LocalProcess(4711, 900, 1_000, [])},
            "files", "warning", "900 open, connections up to 1,000 (process 4711)", "LimitNOFILE=",
        ),
        ({"process": LocalProcess(1, 9, 1_000, [])}, "files", "note", "9 open, connections up to 1,000", "20,000"),
        (  # as `--connections 500` sets it
            {"process": LocalProcess(1, 9, 4_700, [], 262_144)}, "files", "ok", "9 open, connections up to 4,700", "",
        ),
        (
            {"process": LocalProcess(1, 9, 1_000_000, [("0.0.0.0", 8081)])},
            "access", "warning", "can connect to 0.0.0.0:8081", "--access",
        ),
        ({"process": None}, "access", "note", "off: everybody", "--access"),
        (
            overview(certificate_ends_ms=NOW_MS + 3 * 86_400_000),
            "certificate", "warning", "expires in 3 days", "systemctl reload",
        ),
        (
            overview(certificate_ends_ms=NOW_MS - 3_600_000),
            "certificate", "wrong", "expired 60 minutes ago", "--tls-cert",
        ),
        (overview(certificate_ends_ms=NOW_MS + 90 * 86_400_000), "certificate", "ok", "expires in", ""),
        ({"process": None, "guarded": True}, "access", "ok", "only clients with a key", ""),
        (one_group(), "groups", "warning", "1 group (shop 5) with messages and no", "start"),
        (
            one_group(members=1) | {"lagging": [LAGGING]},
            "groups", "warning", "group shop lags 2 hours behind in orders",
            "describe shop",
        ),
        (
            {"dead_letters": [{"group": "shop", "topic": "x", "waiting": 1_200, "redriven": 0}]},
            "dead letters", "warning", "1,200 messages of 1 group (shop 1,200)", "dlq list shop",
        ),
    ],
)  # fmt: skip
def test_trouble_is_seen(
    changes: dict[str, Any], name: str, state: str, seen: str, do: str
) -> None:
    checks = examine(replace(WELL, **changes))
    others = [check for check in checks if check.name != name]
    assert {check.state for check in others} <= {State.OK}
    (check,) = [check for check in checks if check.name == name]
    assert check.state == state
    assert seen in check.seen
    assert do in check.do
    assert bool(check.do) == bool(do)
    assert is_well(checks) == (state in ("ok", "note"))


def test_a_check_that_is_not_ok_is_reported_once() -> None:
    """The store's detail is the list of problems; another check has a text of its own."""
    store = {"name": "store", "ok": False, "detail": "a; b"}
    core = {"name": "core", "ok": False, "detail": "no answer within 2 s"}
    health = {"healthy": False, "checks": [store, core]}
    checks = examine(replace(WELL, health=health, **broker(problems=["a", "b"])))
    wrong = [(check.name, check.seen) for check in checks if check.state is State.WRONG]
    assert wrong == [("core", "no answer within 2 s"), ("problem", "a"), ("problem", "b")]


def test_a_broker_that_knows_no_overview() -> None:
    assert is_well(examine(replace(WELL, overview=None)))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
    ],
)
def test_addresses_as_the_kernel_writes_them(text: str, address: str) -> None:
    """On a little-endian machine, as every one that CI has."""
    assert address_of(text) == ip_address(address)
