"""The pipeline after the day, as a child process, and whether it agrees with the books."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from broker import Client, DemoError

YEAR_TOPIC = "boarding-calls-next-year"
FLIGHTS = 336_776
WITHIN_S = 300.0


class Year(Client):
    """year.py: bulk load, forecast, audit."""

    def __init__(self, work_dir: Path) -> None:
        super().__init__("year", work_dir)
        self._work_dir_of_it = work_dir

    async def result(
        self, admin: str, data_dir: Path, table: Path, topic: str, note: Callable[[str], None]
    ) -> dict[str, Any]:
        """Run it to its end; `told` hears of its stages."""
        await self.start(
            sys.executable,
            Path(__file__).with_name("year.py"),
            *("--admin", admin, "--data-dir", data_dir, "--table", table),
            *("--work-dir", self._work_dir_of_it),
            *("--topic", topic, "--year-topic", YEAR_TOPIC),
        )
        try:
            return await asyncio.wait_for(self._listen_to_end(note), WITHIN_S)
        except TimeoutError:
            raise DemoError(f"Spark was not done within {WITHIN_S:.0f} s; see {self.log}") from None

    async def _listen_to_end(self, note: Callable[[str], None]) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def take(line: dict[str, Any]) -> None:
            if line["kind"] == "stage":
                note(line["what"])
            else:
                found.update(line)

        await self.listen(take)
        await self.popen.wait()
        if found.get("kind") == "failed":
            raise DemoError(found["why"])
        if found.get("kind") != "done":
            raise self.ended()
        return found


async def table_of(python: Path) -> Path:
    """Path of the flights of the year in the environment that has them."""
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(Path(__file__).with_name("day.py")),
        "--table",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise DemoError("the flights of the year could not be found; see above")
    return Path(json.loads(output))


def compare(found: dict[str, Any], arrived: int, pending: int) -> list[str]:
    """What does not add up between the pipeline, the consumer and the broker.

    arrived  messages that the consumer saw: queue offsets
    pending  of the year's topic, as the broker counts them
    """
    faults = []
    if found["visible"] != arrived:
        faults.append(
            f"the audit finds {found['visible']} messages handed over, the consumer saw {arrived}"
        )
    for fault, n in found["counts"].items():
        faults.append(f"the audit finds {n} times: {fault}")
    if found["faults"] and not found["counts"]:
        faults.append("the audit finds that the log is damaged")
    for name, count_of in (
        ("scheduled by Spark", found["loaded"]),
        ("pending, says the broker", pending),
        ("forecast", found["forecast"]),
        ("adopted, says the audit", found["adopted"]),
    ):
        if count_of != FLIGHTS:
            faults.append(f"{count_of} of {FLIGHTS} flights are {name}")
    return faults


def show(console: Console, found: dict[str, Any], faults: list[str]) -> None:
    """Print the result; the path of the report comes last."""
    hottest = datetime.fromtimestamp(found["hottest"]["second_ms"] / 1000, UTC)
    speed = found["loaded"] / max(found["load_s"], 0.001)
    lines = [
        f"Spark scheduled {found['loaded']:,} boarding calls of {found['year']} in"
        f" {found['load_s']:.1f} s ({speed:,.0f}/s).",
        f"Forecast, {found['forecast_s']:.1f} s: {found['forecast']:,} pending; the hottest second is"
        f" {hottest:%Y-%m-%d %H:%M:%S} UTC with {found['hottest']['messages']} calls.",
        f"Audit, {found['audit_s']:.1f} s: {found['visible']:,} calls handed over,"
        f" {found['faults']} faults.",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    for fault in faults:
        console.print(f"[bold red]Does not add up:[/] {fault}")
    if not faults:
        console.print("[bold green]The audit agrees with the consumer.[/]")
    for name in ("forecast_report", "report"):
        console.print(f"{name.replace('_', ' ')}: {found[name]}", highlight=False, soft_wrap=True)
