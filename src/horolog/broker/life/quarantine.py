"""Quarantine: damaged parts that cannot be rebuilt are set aside, and reported.

They are never removed; the report ends when their directory is removed by hand.

A damaged hour, buffer or run is moved into `hours/quarantined-<name>/` or
`runs/quarantined-<name>/`, and a note is written beside it:

===========  =======  ==============================================================================
field        type     meaning
===========  =======  ==============================================================================
names        [text]   what was set aside
position     int      of the checkpoint that named it; a newer one that names it means a new life of
                      that name
waiting      int      messages that were pending in it
lost         int      those of them that the log did not have any more
first_hour,  int      hours in which they were due: a hand-over in the log that names one of them
last_hour             is no broken invariant
why          text
===========  =======  ==============================================================================

The note makes the start repeatable: until a checkpoint is taken that does not name the damaged
part, every start finds the part set aside already and repairs from the log again.  When the
directory is removed the broker is healthy again, from its next start on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from horolog.delay.damage import ASIDE, Damaged
from horolog.errors import ErrorCode, HorologError, Problem
from horolog.limits import HOUR_MS
from horolog.storage.api import Storage, read_file, replace_file
from horolog.units import format_time_ms

NOTE = "note.json"
PARTS = ("hours", "runs")


class Note(NamedTuple):
    """The content of a note, and the directory that holds it."""

    place: str
    names: tuple[str, ...]
    position: int
    waiting: int
    lost: int
    first_hour: int
    last_hour: int
    why: str

    @property
    def part(self) -> str:
        """The directory of the shard in which the part was: "hours" or "runs"."""
        return self.place.split("/")[-2]

    def covers(self, position: int) -> bool:
        """Return whether a checkpoint at that position names the part that was set aside.

        A newer checkpoint names a new life of the same name.
        """
        return position <= self.position

    def problem(self) -> Problem:
        """Return the problem to show operators until the directory is removed."""
        hours = format_time_ms(self.first_hour * HOUR_MS)[:16] + "Z"
        if self.last_hour > self.first_hour:
            hours += f" to {format_time_ms((self.last_hour + 1) * HOUR_MS)[:16]}Z"
        text = (
            f"{self.place}: {self.lost} of {self.waiting} messages due {hours} are quarantined "
            f"({self.why})"
        )
        return Problem(text, self.place, self.place)


def read_notes(storage: Storage, directory: str) -> list[Note]:
    """Read all notes of a shard; raise DAMAGED if one cannot be read.

    A directory without a note was not finished: its damage is found again, and set aside in it.
    """
    notes = []
    for part in PARTS:
        for name in storage.list(f"{directory}/{part}"):
            if name.startswith(ASIDE):
                place = f"{directory}/{part}/{name}"
                try:
                    fields = orjson.loads(read_file(storage, f"{place}/{NOTE}"))
                    notes.append(Note(place, tuple(fields.pop("names")), **fields))
                except FileNotFoundError:
                    continue
                except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                    raise HorologError(
                        ErrorCode.DAMAGED,
                        f"{place}/{NOTE} cannot be read ({error}); to start without what was set "
                        "aside there, move that directory away",
                        field="--data-dir",
                    ) from error
    return notes


def is_known(notes: Iterable[Note], damaged: Damaged, position: int) -> bool:
    """Return whether that part of a checkpoint at `position` has been set aside already."""
    return any(
        note.names == damaged.names and note.part == damaged.part and note.covers(position)
        for note in notes
    )


def set_aside(storage: Storage, directory: str, damaged: Damaged, position: int) -> Note:
    """Move a damaged part away and write its note; both are durable on return."""
    parent = f"{directory}/{damaged.part}"
    place = _free_place(storage, parent, damaged.label)
    storage.make_dir(place)
    for name in damaged.names:
        path = f"{parent}/{name}"
        for each in storage.list(path):  # of a directory; a file has none
            storage.rename(f"{path}/{each}", f"{place}/{each}")
        if damaged.are_files and storage.exists(path):
            storage.rename(path, f"{place}/{name}")
        storage.sync_dir(place)
        if not damaged.are_files and storage.exists(path):
            storage.sync_dir(path)
            storage.remove_dir(path)
    storage.sync_dir(parent)
    note = Note(
        place,
        damaged.names,
        position,
        damaged.waiting,
        damaged.waiting,
        damaged.first_hour,
        damaged.last_hour,
        damaged.why,
    )
    write_note(storage, note)
    return note


def write_note(storage: Storage, note: Note) -> None:
    """Write or replace a note."""
    fields = {name: field for name, field in note._asdict().items() if name != "place"}
    replace_file(
        storage, note.place, NOTE, orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"
    )


def _free_place(storage: Storage, parent: str, label: str) -> str:
    """Return a directory without a note: a new one, or one left unfinished."""
    number = 1
    while True:
        place = f"{parent}/{ASIDE}{label}" + (f"-{number}" if number > 1 else "")
        if not storage.exists(f"{place}/{NOTE}"):
            return place
        number += 1
